"""Values of a consumer: partitions, start options, records and batches. Pure.

A position is the offset of the next record to return. Servers send whole batches, so the first batch of a fetch may
start before the position: the records before it are skipped here, and only here.
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


class TopicPartition(NamedTuple):
    """A topic name and a partition number. Written as `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition with its topic id: a topic that is created again under the same name gets another id."""

    topic: str
    topic_id: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition without the topic id."""
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(NamedTuple):
    """A record with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes
    headers: Headers
    append_time_ms: int


# Skips the constructor, which is written in Python: this takes little more than half the time.
_make_record = partial(tuple.__new__, ConsumerRecord)


@dataclass(frozen=True)
class ConsumerBatch:
    """Consecutive records of one partition, as a producer sent them.

    `batch` is the whole batch, and `start` the number of its records before the consumer's position. `values`, `keys`,
    `len` and iteration skip those; code that uses the columns of `batch` has to skip them itself.

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
        """The offset after the last record."""
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
        """Return the records as Arrow columns, without a copy: they use the memory of the batch.

        Raises ExtraMissing without pyarrow, DataInvalid.
        """
        from flotilla.arrow import to_record_batch  # noqa: PLC0415 - pyarrow is optional, and takes a while to load

        try:
            return to_record_batch(TopicPartition(self.topic, self.partition), self.batch, self.start)
        except BatchInvalid as error:  # headers of records are decoded only here
            text = f"{self.topic}-{self.partition}: batch at offset {self.offset} is damaged: {error}"
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
    """Convert a start option to a query parameter. Raises ConfigInvalid; `number` describes what a number means."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigInvalid(f"{name} must be a datetime with a time zone, as in datetime.now(UTC), not {start!r}")
        return parse_start(int(start.timestamp() * 1000), name)
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return f"timestamp_ms={start}"
    if start in {"earliest", "latest"}:
        return f"offset={start}"
    raise ConfigInvalid(f"{name} must be earliest, latest, a datetime, or {number}, not {start!r}")


def parse_topics(topics: str | Iterable[str]) -> tuple[str, ...]:
    """Return the topics without duplicates. Raises ConfigInvalid."""
    found = tuple(dict.fromkeys([topics] if isinstance(topics, str) else topics))
    if not found or not all(isinstance(topic, str) and topic for topic in found):
        raise ConfigInvalid("topics must be given: one name, or several")
    return found


def parse_partitions(topics: Sequence[str], partitions: Partitions | None) -> dict[str, tuple[int, ...]] | None:
    """Return the selected partitions of each topic; None selects all. Raises ConfigInvalid."""
    if partitions is None:
        return None
    if not isinstance(partitions, Mapping):
        if len(topics) != 1:
            raise ConfigInvalid("partitions must be a dict for several topics, as in {'orders': [0, 1]}")
        partitions = {topics[0]: partitions}
    if partitions.keys() != set(topics):
        raise ConfigInvalid("partitions must name the same topics as topics")
    found = {topic: tuple(dict.fromkeys(ones)) for topic, ones in partitions.items()}
    if not all(ones and all(one >= 0 for one in ones) for ones in found.values()):
        raise ConfigInvalid("partitions must be numbers from 0, at least one per topic")
    return found


@dataclass(frozen=True)
class Subscription:
    """What a consumer reads, and where it starts."""

    topics: tuple[str, ...]
    partitions: Mapping[str, tuple[int, ...]] | None
    query: str
    group: str | None

    @classmethod
    def parse(
        cls, topics: str | Iterable[str], partitions: Partitions | None, start: Start, group: str | None
    ) -> "Subscription":
        """Validate the user's options. Raises ConfigInvalid."""
        names = parse_topics(topics)
        return cls(names, parse_partitions(names, partitions), parse_start(start), group)
