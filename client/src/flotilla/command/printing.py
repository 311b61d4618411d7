"""The work of `flotilla consume`: reads records, and writes them to standard output.

Records are written in blocks, and whenever there is no more to read at once. In a group, each batch is written and
flushed before the next one is asked for, which says that it is done with: so what is committed was written.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from flotilla.client.blocking import Client
from flotilla.client.consumer import Consumer
from flotilla.client.errors import ConfigInvalid
from flotilla.client.positions import ConsumerBatch, Start
from flotilla.command import asking
from flotilla.command.errors import CommandError, InputInvalid
from flotilla.command.formats import TAB, Format, parse_format
from flotilla.command.piping import Ending, endable, find_topic
from flotilla.command.progress import progress
from flotilla.command.units import parse_duration_s, parse_time
from flotilla.records import BatchInvalid

_BLOCK_BYTES = 1 << 20
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is read, from where to where, and how it is written; as it was said, and not checked yet."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...] = ()
    is_from_beginning: bool = False
    since: str | None = None
    offset: int | None = None
    group: str | None = None
    records_max: int | None = None
    is_until_end: bool = False
    timeout_s: float | None = None
    shape: str | None = None
    separator: bytes | None = None
    is_json: bool = False

    def check(self) -> None:
        """Raise InputInvalid if something contradicts something else."""
        starts = {"--from-beginning": self.is_from_beginning, "--from": self.since, "--offset": self.offset is not None}
        given = [name for name, value in starts.items() if value]
        _require(self.group != "", "--group is empty: give it a name, or leave it out")
        _require(len(given) <= 1, f"{' and '.join(given)} contradict each other; give one of them")
        _require(self.offset is None or self.partitions, "--offset is for one partition: say which with --partition")
        _require(not self.partitions or len(self.topics) == 1, "--partition is for a single topic")
        _require(
            self.offset is None or self.group is None,
            "--offset and --group do not go together: a group goes on "
            "where it is, and `flotilla groups reset` moves it",
        )
        _require(
            not self.is_until_end or self.group is None or self.partitions,
            "--until-end and --group do not go together, since others may have the partitions: use --timeout",
        )
        is_shaped = self.is_json or self.shape not in {None, "key-value"}
        _require(self.shape is None or not self.is_json, "--format and --json contradict each other; give one of them")
        _require(self.separator is None or not is_shaped, "--key-separator is for the format key-value alone")

    def start(self, now: datetime) -> Start:
        """Tell where to begin; raises InputInvalid."""
        if self.since is not None:
            return parse_since(self.since, now)
        return "earliest" if self.is_from_beginning else "latest"

    def format(self) -> Format:
        """Tell how records are written; raises InputInvalid."""
        default = "json" if self.is_json else "value" if self.separator is None else "key-value"
        try:
            return parse_format(
                default if self.shape is None else self.shape, TAB if self.separator is None else self.separator
            )
        except ValueError as error:
            raise InputInvalid(f"--format: {error}") from error


def parse_since(text: str, now: datetime) -> datetime:
    """Read a moment, or how long ago it was, as in -1h; raises InputInvalid."""
    try:
        is_ago = text.startswith("-")
        found = now - timedelta(seconds=parse_duration_s(text[1:])) if is_ago else parse_time(text)
        return max(found, _EPOCH)  # nothing is older
    except (ValueError, OverflowError) as error:
        raise InputInvalid(f"--from: {error}; or write how long ago, as in -1h") from error


class Printer:
    """Writes batches out, up to a number of records."""

    def __init__(self, out: BinaryIO, format_: Format, records_max: int | None, *, is_careful: bool) -> None:
        """Collect blocks; one that is careful writes each batch at once."""
        self._out = out
        self._format = format_
        self._left = records_max
        self._block_bytes = 0 if is_careful else _BLOCK_BYTES
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many records as were wanted."""
        return self._left == 0

    def print(self, batch: ConsumerBatch) -> int:
        """Write a batch, or the first of its records, and tell how many; raises CommandError, BrokenPipeError."""
        count = len(batch) if self._left is None else min(self._left, len(batch))
        try:
            part = self._format.write(batch, count)
        except BatchInvalid as error:
            where = f"topic '{batch.topic}', partition {batch.partition}, offset {batch.offset}"
            raise CommandError(f"the records at {where} cannot be read: {error}") from error
        if self._left is not None:
            self._left -= count
        self._parts.append(part)
        self._size += len(part)
        if self._size >= self._block_bytes:
            self.flush()
        return count

    def flush(self) -> None:
        """Write what was collected; raises BrokenPipeError."""
        left = memoryview(b"".join(self._parts))
        self._parts, self._size = [], 0
        while left:  # with PYTHONUNBUFFERED, standard output may take a part, and says so by the number alone
            left = left[self._out.write(left) :]
        self._out.flush()


def run(server: asking.Server, wanted: Wanted) -> None:
    """Consume, until there is a reason to end; raises CommandError, BrokenPipeError, KeyboardInterrupt, SystemExit."""
    wanted.check()
    if sys.stdout is None:
        raise CommandError("standard output is closed; there is nowhere to write to")
    printer = Printer(sys.stdout.buffer, wanted.format(), wanted.records_max, is_careful=wanted.group is not None)
    start = wanted.start(datetime.now(UTC))
    for name in wanted.topics:
        _check(server, name, wanted.partitions)
    with asking.explained(server), server.open() as client:
        _check_offset(client, wanted)
        with _open(client, wanted, start) as consumer, endable() as ending:
            ending.stop = consumer.stop
            _print_all(consumer, wanted, printer, ending)
    ending.end()


def _check(server: asking.Server, name: str, partitions: tuple[int, ...]) -> None:
    count = len(find_topic(server, name).partitions)
    for partition in partitions:
        _require(partition < count, f"topic '{name}' has {count} partitions, 0 to {count - 1}, and no {partition}")


def _check_offset(client: Client, wanted: Wanted) -> None:
    """See that the offset is there: from one that is not, reading would go on elsewhere."""
    if wanted.offset is None:
        return
    for one in client.topics.offsets(wanted.topics[0]):
        if one.index in wanted.partitions and not one.first_offset <= wanted.offset <= one.next_offset:
            where = f"partition {one.index} of '{wanted.topics[0]}'"
            raise InputInvalid(f"{where} has offsets from {one.first_offset} to {one.next_offset}, not {wanted.offset}")


def _open(client: Client, wanted: Wanted, start: Start) -> Consumer:
    partitions = {wanted.topics[0]: wanted.partitions} if wanted.partitions else None
    consumer = client.consumer(wanted.topics, start=start, partitions=partitions, group=wanted.group)
    if wanted.offset is not None:
        for partition in wanted.partitions:
            consumer.seek(wanted.topics[0], partition, wanted.offset)
    return consumer


def _print_all(consumer: Consumer, wanted: Wanted, printer: Printer, ending: Ending) -> None:
    is_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    with progress(f"from {' '.join(wanted.topics)}", None, is_wanted=is_file) as note:
        for batch in _batches(consumer, wanted, ending):
            if batch is None:
                printer.flush()
                continue
            count = printer.print(batch)
            note(count, batch.batch.value_column.data.nbytes)
            if printer.is_full:
                printer.flush()
                _go_back(consumer, batch, count)
                return
    printer.flush()


def _batches(consumer: Consumer, wanted: Wanted, ending: Ending) -> Iterator[ConsumerBatch | None]:
    """Iterate over batches, until one is asked to end; None says that there is no more at once."""
    if wanted.is_until_end:  # what is waited for is there, and comes soon
        yield from consumer.batches(timeout_s=wanted.timeout_s, until="end")
        return
    batch: ConsumerBatch | None
    while not ending.asked:
        yield from consumer.batches(timeout_s=0)
        yield None
        if ending.asked or (batch := next(consumer.batches(timeout_s=wanted.timeout_s), None)) is None:
            return
        yield batch


def _go_back(consumer: Consumer, batch: ConsumerBatch, count: int) -> None:
    """Leave the rest of a batch for whoever goes on."""
    if count < len(batch):
        with suppress(ConfigInvalid):  # the partition is somebody else's by now, and so is the rest
            consumer.seek(batch.topic, batch.partition, batch.offset + count)


def _require(holds: object, rule: str) -> None:
    if not holds:
        raise InputInvalid(rule)
