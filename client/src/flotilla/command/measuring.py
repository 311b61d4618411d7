"""What `flotilla bench` measures: producing, consuming, and the way of a record from end to end."""

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
from flotilla.command.progress import Note

CALL_RECORDS = 1000
CALL_BYTES = 8 << 20  # large records go in smaller calls: all of a call are held at once
MARK_BYTES = 8
SIZE_MIN = MARK_BYTES + 8

_QUIET_S = 30.0  # when nothing came for so long, something is lost
_STAMP = struct.Struct("<d")


@dataclass(frozen=True)
class Load:
    """What is sent or read, and when that is enough: after so many records, or so many seconds."""

    topic: str
    size: int
    records_max: int
    seconds_max: float
    rate: int
    is_each: bool
    compression: str

    @property
    def call_records(self) -> int:
        """How many are sent with a call."""
        return max(1, min(CALL_RECORDS, CALL_BYTES // self.size))

    def done(self, records: int, seconds: float) -> float:
        """Tell how much of it is done, from 0 to 1."""
        return min(1.0, max(records / self.records_max, seconds / self.seconds_max))


@dataclass(frozen=True)
class Measured:
    """What was found."""

    what: str
    records: int
    bytes: int
    seconds: float
    took_s: list[float] = field(repr=False, default_factory=list)


class Meter:
    """Watches a load: counts, shows, and tells when it is enough."""

    def __init__(self, load: Load, note: Note, clock: Callable[[], float] = time.perf_counter) -> None:
        self._load = load
        self._note = note
        self._clock = clock
        self._shown = 0.0
        self.began = clock()
        self.records = 0

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self._clock() - self.began

    @property
    def left(self) -> int:
        """How many records are left, if the time is enough for them; 0 if it is over."""
        return 0 if self._done() >= 1.0 else self._load.records_max - self.records

    def add(self, records: int) -> None:
        """Count records."""
        self.records += records
        done = self._done()
        self._note(records, done - self._shown)
        self._shown = done

    def _done(self) -> float:
        return self._load.done(self.records, self.seconds)


def produce(client: Client, load: Load, note: Note) -> Measured:
    """Send as fast as it goes, until all is acknowledged; of each call, the last record is timed."""
    took: list[float] = []
    values = [os.urandom(load.size) for _ in range(load.call_records)]
    with client.producer(compression=load.compression) as producer:
        producer.send(load.topic, values[0]).result()  # connections are made
        meter = Meter(load, note)
        while left := min(meter.left, load.call_records):
            _send(producer, load, values[: left - 1])
            sent = time.perf_counter()
            producer.send(load.topic, values[-1]).add_done_callback(partial(_take_time, took, sent))
            meter.add(left)
        producer.flush()
        seconds, stats = meter.seconds, producer.stats
    if stats.failed or stats.unknown:
        raise CommandError(
            f"{stats.failed} records were not stored, and {stats.unknown} perhaps; this measures nothing"
        )
    return Measured("produce", meter.records, meter.records * load.size, seconds, took)


def _send(producer: Producer, load: Load, values: list[bytes]) -> None:
    if load.is_each:
        for value in values:
            producer.send(load.topic, value)
    else:
        producer.send_many(load.topic, values)


def _take_time(took: list[float], sent: float, _: Delivery) -> None:
    took.append(time.perf_counter() - sent)


def consume(client: Client, load: Load, note: Note) -> Measured:
    """Read what is there, from the beginning, and make a Python object of each value."""
    size = 0
    meter = Meter(load, note)
    with client.consumer(load.topic, start="earliest") as consumer:
        for batch in consumer.batches(until="end"):
            values = batch.values
            size += sum(map(len, values))
            meter.add(len(values))
            if not meter.left:
                break
        seconds = meter.seconds
    return Measured("consume", meter.records, size, seconds)


def end_to_end(client: Client, load: Load, note: Note) -> Measured:
    """Send at a steady rate, and see how long each record takes until it is read."""
    mark = os.urandom(MARK_BYTES)
    wanted = max(1, min(load.records_max, round(load.rate * load.seconds_max)))
    with client.consumer(load.topic, start="latest") as consumer, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(_read, consumer, mark, wanted)
        try:
            meter = Meter(load, note)
            _pace(client, load, mark, wanted, meter)
            took, seconds = reading.result(), meter.seconds
        finally:
            consumer.stop()
    if len(took) < wanted:
        raise CommandError(f"{wanted - len(took)} of {wanted} records did not arrive within {_QUIET_S:g} s")
    return Measured("end-to-end", wanted, wanted * load.size, seconds, took)


def _pace(client: Client, load: Load, mark: bytes, wanted: int, meter: Meter) -> None:
    padding = os.urandom(load.size - SIZE_MIN)
    with client.producer(compression=load.compression) as producer:
        for number in range(wanted):
            time.sleep(max(0.0, number / load.rate - meter.seconds))
            producer.send(load.topic, mark + _STAMP.pack(time.perf_counter()) + padding)
            meter.add(1)


def _read(consumer: Consumer, mark: bytes, wanted: int) -> list[float]:
    took: list[float] = []
    for batch in consumer.batches(timeout_s=_QUIET_S):
        took += _times(batch.values, mark, time.perf_counter())
        if len(took) >= wanted:
            break
    return took


def _times(values: Iterable[bytes], mark: bytes, now: float) -> list[float]:
    """Tell how long those have taken that bear the mark: others may write to the topic, too."""
    sent = (_STAMP.unpack_from(value, MARK_BYTES)[0] for value in values if value.startswith(mark))
    return [now - at for at in sent]


WAYS: dict[str, Callable[[Client, Load, Note], Measured]] = {
    "produce": produce,
    "consume": consume,
    "end-to-end": end_to_end,
}
