"""The measurements of `flotilla bench`: produce, consume and end-to-end."""

import os
import struct
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from flotilla.client.blocking import Client
from flotilla.client.consumer import Consumer
from flotilla.client.deliveries import Delivery
from flotilla.client.producer import Producer
from flotilla.command.errors import CommandError
from flotilla.command.output import Advance

CALL_RECORDS = 1000
CALL_BYTES = 8 << 20  # fewer large records per call, to bound memory
MARK_BYTES = 8
SIZE_MIN = MARK_BYTES + 8

_ARRIVAL_TIMEOUT_S = 30.0  # without a record for this time, the rest is considered lost
_STAMP = struct.Struct("<d")


@dataclass(frozen=True)
class Load:
    """What to send or read, and the limits of records and seconds."""

    topic: str
    size: int
    records_max: int
    seconds_max: float
    rate: int
    is_each: bool
    compression: str

    @property
    def call_records(self) -> int:
        """Number of records per call."""
        return max(1, min(CALL_RECORDS, CALL_BYTES // self.size))

    def done(self, records: int, seconds: float) -> float:
        """Return the progress, from 0 to 1."""
        return min(1.0, max(records / self.records_max, seconds / self.seconds_max))


@dataclass(frozen=True)
class Measurement:
    """Result of a measurement."""

    what: str
    records: int
    bytes: int
    seconds: float
    latencies_s: list[float] = field(repr=False, default_factory=list)


class Meter:
    """Counts records, advances the progress bar, and knows when the limits are reached."""

    def __init__(self, load: Load, advance: Advance, clock: Callable[[], float] = time.perf_counter) -> None:
        self._load = load
        self._advance = advance
        self._clock = clock
        self._shown = 0.0
        self.began = clock()
        self.records = 0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self._clock() - self.began

    @property
    def left(self) -> int:
        """Number of records until the limit; 0 if the time is over."""
        return 0 if self._done() >= 1.0 else self._load.records_max - self.records

    def add(self, records: int) -> None:
        """Count records."""
        self.records += records
        done = self._done()
        self._advance(records, done - self._shown)
        self._shown = done

    def _done(self) -> float:
        return self._load.done(self.records, self.seconds)


def produce(client: Client, load: Load, advance: Advance) -> Measurement:
    """Send as fast as possible until all is acknowledged; measure the latency of the last record of each call."""
    took: list[float] = []
    values = [os.urandom(load.size) for _ in range(load.call_records)]
    with client.producer(compression=load.compression) as producer:
        producer.send(load.topic, values[0]).result()  # opens the connections
        meter = Meter(load, advance)
        while left := min(meter.left, load.call_records):
            _send(producer, load, values[: left - 1])
            sent = time.perf_counter()
            producer.send(load.topic, values[-1]).add_done_callback(partial(_record_latency, took, sent))
            meter.add(left)
        producer.flush()
        seconds, stats = meter.seconds, producer.stats
    if stats.failed or stats.unknown:
        raise CommandError(
            f"measurement aborted: {stats.failed} records failed, {stats.unknown} have an unknown outcome; check "
            "`flotilla brokers list`"
        )
    return Measurement("produce", meter.records, meter.records * load.size, seconds, took)


def _send(producer: Producer, load: Load, values: list[bytes]) -> None:
    if load.is_each:
        for value in values:
            producer.send(load.topic, value)
    else:
        producer.send_many(load.topic, values)


def _record_latency(took: list[float], sent: float, _: Delivery) -> None:
    took.append(time.perf_counter() - sent)


def consume(client: Client, load: Load, advance: Advance) -> Measurement:
    """Read the topic from the beginning, with a Python object for each value."""
    size = 0
    meter = Meter(load, advance)
    with client.consumer(load.topic, start="earliest") as consumer:
        for batch in consumer.batches(until="end"):
            values = batch.values
            size += sum(map(len, values))
            meter.add(len(values))
            if not meter.left:
                break
        seconds = meter.seconds
    return Measurement("consume", meter.records, size, seconds)


def end_to_end(client: Client, load: Load, advance: Advance) -> Measurement:
    """Send at a constant rate, and measure the time until each record is consumed."""
    mark = os.urandom(MARK_BYTES)
    wanted = max(1, min(load.records_max, round(load.rate * load.seconds_max)))
    with client.consumer(load.topic, start="latest") as consumer, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(_read, consumer, mark, wanted)
        try:
            meter = Meter(load, advance)
            _send_at_rate(client, load, mark, wanted, meter)
            took, seconds = reading.result(), meter.seconds
        finally:
            consumer.stop()
    if len(took) < wanted:
        raise CommandError(f"{wanted - len(took)} of {wanted} records did not arrive within {_ARRIVAL_TIMEOUT_S:g} s")
    return Measurement("end-to-end", wanted, wanted * load.size, seconds, took)


def _send_at_rate(client: Client, load: Load, mark: bytes, wanted: int, meter: Meter) -> None:
    padding = os.urandom(load.size - SIZE_MIN)
    with client.producer(compression=load.compression) as producer:
        for number in range(wanted):
            time.sleep(max(0.0, number / load.rate - meter.seconds))
            producer.send(load.topic, mark + _STAMP.pack(time.perf_counter()) + padding)
            meter.add(1)


def _read(consumer: Consumer, mark: bytes, wanted: int) -> list[float]:
    took: list[float] = []
    for batch in consumer.batches(timeout_s=_ARRIVAL_TIMEOUT_S):
        took += _times(batch.values, mark, time.perf_counter())
        if len(took) >= wanted:
            break
    return took


def _times(values: Iterable[bytes], mark: bytes, now: float) -> list[float]:
    """Return the latencies of records with the mark; other producers may write to the topic, too."""
    sent = (_STAMP.unpack_from(value, MARK_BYTES)[0] for value in values if value.startswith(mark))
    return [now - at for at in sent]


MEASUREMENTS: dict[str, Callable[[Client, Load, Advance], Measurement]] = {
    "produce": produce,
    "consume": consume,
    "end-to-end": end_to_end,
}
