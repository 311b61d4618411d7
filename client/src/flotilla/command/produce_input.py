"""`flotilla produce`: reads lines, sends them as records, and counts the outcomes.

Available input is read in blocks and sent at once: large files are sent in large calls, typed input line by line. The
command stops at the first invalid line and at the first record that is not stored; earlier lines have been sent. In all
cases it waits for records in flight, and counts them.
"""

import os
import select
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flotilla.client.deliveries import Deliveries, Failure
from flotilla.client.errors import RecordInvalid
from flotilla.client.producer import Producer, ProducerStats
from flotilla.command import connection
from flotilla.command.errors import CommandError, InputInvalid
from flotilla.command.interrupts import Interrupts, handle_interrupts
from flotilla.command.lines import LineInvalid, LineSplitter, Rows, split_keys
from flotilla.command.output import Advance, print_json, print_message, progress
from flotilla.records import Headers
from flotilla.units import write_rough_size

STDIN = Path("-")
_STDIN_FD = 0  # `sys.stdin` is None if it is closed
_BLOCK_BYTES = 1 << 18
_POLL_S = 0.5  # how often outcomes are checked while there is no input


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """The input files, and how lines become records."""

    topic: str
    files: tuple[Path, ...] = (STDIN,)
    separator: bytes | None = None
    is_key_optional: bool = False
    headers: Headers = ()
    partition: int | None = None
    compression: str = "auto"
    delivery_s: float = 60.0


@dataclass(frozen=True)
class ProduceSummary:
    """Numbers of stored, failed and unknown records."""

    topic: str
    records: int
    bytes: int
    seconds: float
    failed: int
    unknown: int
    error: str | None

    @classmethod
    def of(
        cls, producer: "LineProducer", stats: ProducerStats, seconds: float, stopped: BaseException | None
    ) -> "ProduceSummary":
        """Build the summary."""
        error = stopped if isinstance(stopped, Exception) else producer.error
        text = None if error is None else str(error)
        return cls(producer.topic, stats.acknowledged, producer.bytes, seconds, stats.failed, stats.unknown, text)

    def __str__(self) -> str:
        rate = self.records / max(self.seconds, 1e-9)
        text = f"{_count(self.records)} stored, {write_rough_size(self.bytes)}, {rate:,.0f} records/s"
        text += f"; {_count(self.failed)} failed" if self.failed else ""
        return text + (f"; {_count(self.unknown)} with unknown outcome" if self.unknown else "")


class LineProducer:
    """Sends lines, and keeps the first failure."""

    def __init__(self, producer: Producer, spec: InputSpec, interrupts: Interrupts) -> None:
        self.topic = spec.topic
        self.bytes = 0  # of lines that are known to be stored
        self.error: Failure | None = None
        self._producer = producer
        self._spec = spec
        self._interrupts = interrupts
        self._in_flight: deque[tuple[Deliveries, list[int]]] = deque()  # with the size of each line

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines. Raises LineInvalid after sending the lines before the invalid one."""
        if not lines:
            return
        try:
            self._send_lines(lines)
        except (LineInvalid, RecordInvalid):  # nothing of this call was sent
            self._send_each(lines)
        self.poll_outcomes()

    def poll_outcomes(self) -> bool:
        """Collect known outcomes; return whether none has failed."""
        while self._in_flight and self._in_flight[0][0].done():
            self._count_outcomes(*self._in_flight.popleft())
        return self.error is None

    def _send_lines(self, lines: Sequence[bytes]) -> None:
        rows, headers = self._rows(lines), self._spec.headers
        deliveries = self._producer.send_many(
            self.topic,
            rows.values,
            keys=rows.keys,
            headers=[headers] * len(lines) if headers else None,
            partition=self._spec.partition,
        )
        self._in_flight.append((deliveries, list(map(len, lines))))

    def _rows(self, lines: Sequence[bytes]) -> Rows:
        if self._spec.separator is None:
            return Rows(lines, None)
        return split_keys(lines, self._spec.separator, is_optional=self._spec.is_key_optional)

    def _send_each(self, lines: Sequence[bytes]) -> None:
        """Send line by line up to the invalid line."""
        for at, line in enumerate(lines):
            try:
                self._send_lines([line])
            except (LineInvalid, RecordInvalid) as error:
                raise LineInvalid(at, str(error)) from error

    def _count_outcomes(self, deliveries: Deliveries, sizes: list[int]) -> None:
        failure = deliveries.exception()
        self.error = self.error or failure
        if failure is not None:  # some of the records may be stored
            sizes = [size for size, one in zip(sizes, deliveries, strict=True) if one.exception() is None]
        self.bytes += sum(sizes)

    def finish(self) -> None:
        """Wait for all outcomes; a further interrupt gives up on the rest."""
        try:
            waiting = self._producer.stats.waiting
            if self._interrupts.count and waiting:
                print_message(f"waiting for {_count(waiting)} in flight; interrupt again to give up on them")
            self._producer.flush(0 if self._interrupts.count > 1 else None)
        except (KeyboardInterrupt, SystemExit, TimeoutError):
            self._producer.close(timeout_s=0)
        while self._in_flight:
            self._count_outcomes(*self._in_flight.popleft())


def run(server: connection.ConnectionTarget, spec: InputSpec, *, as_json: bool) -> None:
    """Produce, and print the summary; raises CommandError, KeyboardInterrupt, SystemExit."""
    _check(server, spec)
    with connection.translate_errors(server), server.open() as client, handle_interrupts() as interrupts:
        producer = client.producer(compression=spec.compression, delivery_s=spec.delivery_s)
        line_producer = LineProducer(producer, spec, interrupts)
        began, stopped = time.perf_counter(), None
        try:
            _send_all(line_producer, spec.files, interrupts)
        except BaseException as error:  # noqa: BLE001 - raised again after the summary
            stopped = error
        line_producer.finish()
        summary = ProduceSummary.of(line_producer, producer.stats, time.perf_counter() - began, stopped)
        if as_json:
            print_json(summary)
        else:
            print_message(str(summary))
        if isinstance(stopped, Exception):
            raise stopped
        if interrupts.count and summary.error is not None:
            print_message(summary.error)
        interrupts.raise_pending()
    if summary.error is not None:
        raise CommandError(summary.error)


def _check(server: connection.ConnectionTarget, spec: InputSpec) -> None:
    topic = connection.find_topic(server, spec.topic)
    count = len(topic.partitions)
    if spec.partition is not None and spec.partition >= count:
        raise InputInvalid(f"topic '{spec.topic}' has no partition {spec.partition}: the last one is {count - 1}")


def _send_all(producer: LineProducer, files: Sequence[Path], interrupts: Interrupts) -> None:
    is_typed = STDIN in files and os.isatty(_STDIN_FD)  # a progress bar would disturb typing
    with progress(f"to {producer.topic}", _total_bytes(files), enabled=not is_typed) as advance:
        for path in files:
            if producer.error is not None:
                return
            with _open_input(path, interrupts) as fd:
                _send_file(
                    producer,
                    _read_blocks(fd, interrupts, producer.poll_outcomes),
                    "standard input" if path == STDIN else str(path),
                    advance,
                )


def _read_blocks(fd: int, interrupts: Interrupts, is_healthy: Callable[[], bool]) -> Iterator[bytes]:
    """Read available input in blocks, and wait for more until a record fails.

    Raises OSError, KeyboardInterrupt, SystemExit.
    """
    block: bytes | None = None
    while block != b"":
        with interrupts.interruptible():
            is_ready, _, _ = select.select([fd], [], [], _POLL_S)
            block = os.read(fd, _BLOCK_BYTES) if is_ready else None
        if block is not None:
            yield block
        elif not is_healthy():
            return


def _send_file(producer: LineProducer, blocks: Iterator[bytes], name: str, advance: Advance) -> None:
    splitter, before = LineSplitter(), 0
    try:
        for block in blocks:
            lines = splitter.feed(block) if block else splitter.flush()
            producer.send(lines)
            before += len(lines)
            advance(len(lines), len(block))
            if producer.error is not None:
                return
    except LineInvalid as error:
        text = f"line {before + error.at + 1} of {name} is invalid: {error}. Earlier lines were sent"
        raise CommandError(text) from error
    except OSError as error:
        raise CommandError(f"{name} cannot be read after line {before}: {error.strerror}") from error


def _total_bytes(files: Sequence[Path]) -> int | None:
    """Return the total size of the input; None if it is not known."""
    try:
        found = [os.fstat(_STDIN_FD) if path == STDIN else path.stat() for path in files]
    except OSError:
        return None
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None


@contextmanager
def _open_input(path: Path, interrupts: Interrupts) -> Iterator[int]:
    if path == STDIN:
        yield _STDIN_FD
        return
    try:
        with interrupts.interruptible():  # opening a named pipe blocks until it has a writer
            fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InputInvalid(f"{path} cannot be read: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _count(records: int) -> str:
    return f"{records:,} record{'' if records == 1 else 's'}"
