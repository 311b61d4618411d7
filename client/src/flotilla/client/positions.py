"""Where a consumer is, and what it hands out: places, where to start, records and batches. Pure values.

A position is the next offset to hand out. Servers send whole batches, so the first batch that is fetched from an offset
may begin before it: the records before the position are skipped here, and only here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count, islice, repeat
from typing import TYPE_CHECKING, NamedTuple

from flotilla.client.errors import ConfigInvalid, DataInvalid
from flotilla.records import Batch, BatchInvalid, Headers

if TYPE_CHECKING:
    import pyarrow as pa

Start = str | int | datetime
Partitions = Sequence[int] | Mapping[str, Sequence[int]]

EARLIEST, LATEST = "offset=earliest", "offset=latest"


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Share(NamedTuple):
    """A partition of one topic and no other: one that is made again under its name has another id."""

    topic: str
    topic_id: str
    partition: int

    @property
    def place(self) -> Place:
        """How users name it."""
        return Place(self.topic, self.partition)


class ConsumerRecord(NamedTuple):
    """A record, and where it lies."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes
    headers: Headers
    append_time_ms: int


# Without the constructor, which is written in Python, a record takes little more than half the time to make.
_make_record = partial(tuple.__new__, ConsumerRecord)


@dataclass(frozen=True)
class ConsumerBatch:
    """Records of one partition that lie one behind the other, as they were sent together.

    `batch` is all that was sent, and `start` says how many of its records are not for this consumer, because they lie
    before its position. `values`, `keys`, `len` and iteration skip them; who uses the columns of `batch` skips them.

        for batch in consumer.batches():
            total += sum(map(len, batch.values))
    """

    topic: str
    partition: int
    batch: Batch
    start: int = 0

    @property
    def offset(self) -> int:
        """The offset of the first record."""
        return self.batch.header.base_offset + self.start

    @property
    def next_offset(self) -> int:
        """The offset behind the last record."""
        return self.batch.header.base_offset + self.batch.header.count

    @property
    def values(self) -> list[bytes]:
        """The values."""
        return self.batch.values[self.start :] if self.start else self.batch.values

    @property
    def keys(self) -> list[bytes | None] | None:
        """The keys; None if no record has one."""
        keys = self.batch.keys
        return keys if keys is None or not self.start else keys[self.start :]

    def to_arrow(self) -> "pa.RecordBatch":
        """Hand the records out as Arrow's columns, in the memory of the batch: no record is copied.

        Raises ExtraMissing if there is no pyarrow, DataInvalid.
        """
        from flotilla.arrow import to_record_batch  # noqa: PLC0415 - pyarrow is optional, and takes a while to load

        try:
            return to_record_batch(Place(self.topic, self.partition), self.batch, self.start)
        except BatchInvalid as error:  # the records' own headers are looked at only now
            text = (
                f"{self.topic}, partition {self.partition}: the batch at offset {self.offset} cannot be read: {error}"
            )
            raise DataInvalid(text) from error

    def __len__(self) -> int:
        return self.batch.header.count - self.start

    def __iter__(self) -> Iterator[ConsumerRecord]:
        batch = self.batch
        columns = zip(
            repeat(self.topic),
            repeat(self.partition),
            count(batch.header.base_offset),
            repeat(None) if batch.timestamps_ms is None else batch.timestamps_ms,
            repeat(None) if batch.keys is None else batch.keys,
            batch.values,
            repeat(()) if batch.headers is None else batch.headers,
            repeat(batch.header.append_time_ms),
        )
        records = map(_make_record, columns)
        return islice(records, self.start, None) if self.start else records


def parse_start(start: Start, name: str = "start", number: str = "milliseconds since 1970") -> str:
    """Turn what users give into what servers are asked; raises ConfigInvalid, which says what a number is."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigInvalid(f"{name} must be a time with a time zone, as in datetime.now(UTC)")
        return parse_start(int(start.timestamp() * 1000), name)
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return f"timestamp_ms={start}"
    if start in {"earliest", "latest"}:
        return f"offset={start}"
    raise ConfigInvalid(f"{name} must be earliest, latest, a datetime, or {number}")


def parse_topics(topics: str | Iterable[str]) -> tuple[str, ...]:
    """List the topics, each once; raises ConfigInvalid."""
    found = tuple(dict.fromkeys([topics] if isinstance(topics, str) else topics))
    if not found or not all(isinstance(topic, str) and topic for topic in found):
        raise ConfigInvalid("topics must be given: the name of one, or several names")
    return found


def parse_partitions(topics: Sequence[str], partitions: Partitions | None) -> dict[str, tuple[int, ...]] | None:
    """List the partitions that are wanted of each topic; None is all of them. Raises ConfigInvalid."""
    if partitions is None:
        return None
    if not isinstance(partitions, Mapping):
        if len(topics) != 1:
            raise ConfigInvalid("partitions must say of which topic they are, as in {'orders': [0, 1]}")
        partitions = {topics[0]: partitions}
    if partitions.keys() != set(topics):
        raise ConfigInvalid("partitions must be given for each of the topics, and for no other")
    found = {topic: tuple(dict.fromkeys(ones)) for topic, ones in partitions.items()}
    if not all(ones and all(one >= 0 for one in ones) for ones in found.values()):
        raise ConfigInvalid("partitions must be numbers from 0 on, at least one of each topic")
    return found


@dataclass(frozen=True)
class Wanted:
    """What a consumer reads, and from where on."""

    topics: tuple[str, ...]
    partitions: Mapping[str, tuple[int, ...]] | None
    query: str
    group: str | None

    @classmethod
    def parse(
        cls, topics: str | Iterable[str], partitions: Partitions | None, start: Start, group: str | None
    ) -> "Wanted":
        """Check what a user gives; raises ConfigInvalid."""
        names = parse_topics(topics)
        return cls(names, parse_partitions(names, partitions), parse_start(start), group)
