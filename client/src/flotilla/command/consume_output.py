"""`flotilla consume`: reads records, and prints them to standard output.

Output is flushed in blocks, and whenever no more records are available. In a group, each batch is flushed before the
next one is polled, which marks it as processed: only printed records are committed.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from flotilla.client.blocking import Client
from flotilla.client.consumer import Consumer
from flotilla.client.errors import ConfigInvalid
from flotilla.client.positions import ConsumerBatch, Start
from flotilla.command import connection
from flotilla.command.errors import CommandError, InputInvalid
from flotilla.command.formats import TAB, Format, parse_format
from flotilla.command.interrupts import Interrupts, handle_interrupts
from flotilla.command.output import progress
from flotilla.records import BatchInvalid
from flotilla.units import parse_timestamp

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ConsumeSpec:
    """The options of the command, not validated yet."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...] = ()
    is_from_beginning: bool = False
    since: str | None = None
    offset: int | None = None
    group: str | None = None
    records_max: int | None = None
    is_until_end: bool = False
    timeout_s: float | None = None
    format_name: str | None = None
    separator: bytes | None = None
    is_json: bool = False

    def check(self) -> None:
        """Raise InputInvalid if options contradict each other."""
        starts = {"--from-beginning": self.is_from_beginning, "--from": self.since, "--offset": self.offset is not None}
        given = [name for name, value in starts.items() if value]
        _require(self.group != "", "--group must not be empty: set a name, or omit the option")
        _require(len(given) <= 1, f"{' and '.join(given)} are mutually exclusive")
        _require(self.offset is None or self.partitions, "--offset requires --partition")
        _require(not self.partitions or len(self.topics) == 1, "--partition requires a single topic")
        _require(
            self.offset is None or self.group is None,
            "--offset and --group are mutually exclusive: a group starts at its committed offsets, which "
            "`flotilla groups reset` changes",
        )
        _require(
            not self.is_until_end or self.group is None or self.partitions,
            "--until-end with --group requires --partition, because other members may own partitions; or use --timeout",
        )
        is_shaped = self.is_json or self.format_name not in {None, "key-value"}
        _require(self.format_name is None or not self.is_json, "--format and --json are mutually exclusive")
        _require(self.separator is None or not is_shaped, "--key-separator requires --format key-value")

    def start(self, now: datetime) -> Start:
        """Return the start position; raises InputInvalid."""
        if self.since is not None:
            return parse_from(self.since, now)
        return "earliest" if self.is_from_beginning else "latest"

    def format(self) -> Format:
        """Return the output format; raises InputInvalid."""
        default = "json" if self.is_json else "value" if self.separator is None else "key-value"
        try:
            return parse_format(
                default if self.format_name is None else self.format_name,
                TAB if self.separator is None else self.separator,
            )
        except ValueError as error:
            raise InputInvalid(f"--format: {error}") from error


def parse_from(text: str, now: datetime) -> datetime:
    """Parse a timestamp or a negative duration such as -1h; raises InputInvalid."""
    try:
        return parse_timestamp(text, now)
    except ValueError as error:
        raise InputInvalid(f"--from: {error}") from error


class RecordPrinter:
    """Prints batches, up to a number of records."""

    def __init__(self, out: BinaryIO, format_: Format, records_max: int | None, *, flush_each: bool) -> None:
        """Buffer output in blocks, or flush after each batch."""
        self._out = out
        self._format = format_
        self._left = records_max
        self._block_bytes = 0 if flush_each else _BLOCK_BYTES
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of records is reached."""
        return self._left == 0

    def print(self, batch: ConsumerBatch) -> int:
        """Print a batch up to the limit, and return the number of records; raises CommandError, BrokenPipeError."""
        count = len(batch) if self._left is None else min(self._left, len(batch))
        try:
            part = self._format.write(batch, count)
        except BatchInvalid as error:
            where = f"topic '{batch.topic}', partition {batch.partition}, from offset {batch.offset}"
            remedy = "skip them with --offset, or in a group with flotilla groups reset"
            raise CommandError(f"records of {where} cannot be decoded: {error}; {remedy}") from error
        if self._left is not None:
            self._left -= count
        self._parts.append(part)
        self._size += len(part)
        if self._size >= self._block_bytes:
            self.flush()
        return count

    def flush(self) -> None:
        """Write the buffer; raises BrokenPipeError."""
        left = memoryview(b"".join(self._parts))
        self._parts, self._size = [], 0
        while left:  # with PYTHONUNBUFFERED, a write may be partial
            left = left[self._out.write(left) :]
        self._out.flush()


def run(server: connection.ConnectionTarget, spec: ConsumeSpec) -> None:
    """Consume until a limit or an interrupt; raises CommandError, BrokenPipeError, KeyboardInterrupt, SystemExit."""
    spec.check()
    if sys.stdout is None:
        raise CommandError("standard output is closed")
    printer = RecordPrinter(sys.stdout.buffer, spec.format(), spec.records_max, flush_each=spec.group is not None)
    start = spec.start(datetime.now(UTC))
    for name in spec.topics:
        _check(server, name, spec.partitions)
    with connection.translate_errors(server), server.open() as client:
        _check_offset(client, spec)
        with _open(client, spec, start) as consumer, handle_interrupts() as interrupts:
            interrupts.stop = consumer.stop
            _print_all(consumer, spec, printer, interrupts)
    interrupts.raise_pending()


def _check(server: connection.ConnectionTarget, name: str, partitions: tuple[int, ...]) -> None:
    count = len(connection.find_topic(server, name).partitions)
    for partition in partitions:
        _require(partition < count, f"topic '{name}' has no partition {partition}: the last one is {count - 1}")


def _check_offset(client: Client, spec: ConsumeSpec) -> None:
    """Check that the offset exists: a consumer would silently continue at another one."""
    if spec.offset is None:
        return
    for one in client.topics.offsets(spec.topics[0]):
        if one.index in spec.partitions and not one.first_offset <= spec.offset <= one.next_offset:
            where = f"partition {one.index} of '{spec.topics[0]}'"
            valid = f"{one.first_offset} to {one.next_offset}"
            raise InputInvalid(f"--offset {spec.offset} is out of range: {where} has offsets {valid}")


def _open(client: Client, spec: ConsumeSpec, start: Start) -> Consumer:
    partitions = {spec.topics[0]: spec.partitions} if spec.partitions else None
    consumer = client.consumer(spec.topics, start=start, partitions=partitions, group=spec.group)
    if spec.offset is not None:
        for partition in spec.partitions:
            consumer.seek(spec.topics[0], partition, spec.offset)
    return consumer


def _print_all(consumer: Consumer, spec: ConsumeSpec, printer: RecordPrinter, interrupts: Interrupts) -> None:
    is_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    with progress(f"from {' '.join(spec.topics)}", None, enabled=is_file) as advance:
        for batch in _batches(consumer, spec, interrupts):
            if batch is None:
                printer.flush()
                continue
            count = printer.print(batch)
            advance(count, batch.batch.value_column.data.nbytes)
            if printer.is_full:
                printer.flush()
                _seek_back(consumer, batch, count)
                return
    printer.flush()


def _batches(consumer: Consumer, spec: ConsumeSpec, interrupts: Interrupts) -> Iterator[ConsumerBatch | None]:
    """Iterate over batches until interrupted; None means that no more records are available now."""
    if spec.is_until_end:  # the records exist, so there is no need to flush in between
        yield from consumer.batches(timeout_s=spec.timeout_s, until="end")
        return
    batch: ConsumerBatch | None
    while not interrupts.count:
        yield from consumer.batches(timeout_s=0)
        yield None
        if interrupts.count or (batch := next(consumer.batches(timeout_s=spec.timeout_s), None)) is None:
            return
        yield batch


def _seek_back(consumer: Consumer, batch: ConsumerBatch, count: int) -> None:
    """Seek to the rest of a batch, so that the group continues there."""
    if count < len(batch):
        with suppress(ConfigInvalid):  # another member owns the partition by now
            consumer.seek(batch.topic, batch.partition, batch.offset + count)


def _require(holds: object, rule: str) -> None:
    if not holds:
        raise InputInvalid(rule)
