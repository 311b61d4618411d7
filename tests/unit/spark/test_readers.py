"""Readers, called in the order in which Spark calls them, with a fake client."""

import logging
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Self, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from flotilla import Client
from flotilla.client.errors import NotAllowed, TopicMissing
from pyspark_flotilla import readers
from pyspark_flotilla.offsets import OffsetRange
from pyspark_flotilla.options import read_options
from pyspark_flotilla.readers import BatchReader, DataLoss, RangePartition, StreamReader

ALL = ReadAllAvailable()


class FakeClient:
    """Fake client: topics with the first and next offset of each partition."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.found = topics
        self.stale: list[dict[str, list[tuple[int, int]]]] = []  # answers of former leaders, returned first
        self.unreadable: set[str] = set()  # topics that the token cannot read
        self.at: Callable[[int], int] = lambda _: 0
        self.topics = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def list(self) -> Sequence[Any]:
        return [SimpleNamespace(name=name) for name in self.found]

    def iter_arrow(
        self, name: str, *, partitions: Sequence[int], start: dict[int, int], end: dict[int, int], **_: object
    ) -> Iterator[pa.RecordBatch]:
        """Return the records of a range that exist."""
        (at,) = partitions
        first, last = (self.stale.pop(0) if self.stale else self.found)[name][at]
        for offset in range(max(start[at], first), min(end[at], last)):
            yield pa.RecordBatch.from_pydict({"offset": pa.array([offset], pa.int64())})

    def offsets(self, name: str, at: int | None = None) -> Sequence[Any]:
        if name in self.unreadable:
            raise NotAllowed("no", "forbidden", {})
        found = (self.stale.pop(0) if self.stale else self.found).get(name)
        if found is None:
            raise TopicMissing(f"topic '{name}' does not exist", "not_found", {})
        return [
            SimpleNamespace(
                index=index, first_offset=first, next_offset=end, offset=None if at is None else self.at(end)
            )
            for index, (first, end) in enumerate(found)
        ]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient(t=[(0, 10)])
    monkeypatch.setattr(readers, "connect", lambda _: made)
    monkeypatch.setattr(readers, "POLL_S_MIN", 0.0)
    monkeypatch.setattr(readers, "_RETRY_S", 0.01)
    monkeypatch.setattr(readers, "STALE_LEADER_S", 0.2)
    return made


def stream(**options: str) -> StreamReader:
    return StreamReader(read_options({"subscribe": "t", **options}, is_stream=True))


def latest(reader: StreamReader, start: dict[str, dict[str, int]], limit: ReadLimit = ALL) -> dict[str, dict[str, int]]:
    return reader.latestOffset(start, limit)


def spans(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    shares = [one for one in reader.partitions(start, end) if isinstance(one, RangePartition)]
    return [(one.range.partition, one.range.start, one.range.end) for one in shares]


@pytest.mark.usefixtures("client")
def test_first_micro_batch_is_empty_and_stores_the_starting_offsets() -> None:
    reader = stream(startingOffsets="earliest")
    start = reader.initialOffset()
    end = latest(reader, start)
    assert end == start == {"t": {"0": 0}}
    assert spans(reader, reader.initialOffset(), end) == []  # Spark calls initialOffset again
    assert latest(reader, end) == {"t": {"0": 10}}


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_repeated_first_micro_batch_continues_from_the_stored_starting_offsets(client: FakeClient, begin: str) -> None:
    """No record is skipped, and removed records are detected, although `initialOffset` now returns other offsets."""
    reader = stream(startingOffsets=begin)
    noted = latest(reader, reader.initialOffset())
    client.found["t"] = [(4, 17)]
    again = stream(startingOffsets=begin)
    assert spans(again, again.initialOffset(), noted) == []
    end = latest(again, noted)
    assert spans(again, noted, end) == [(0, 0 if begin == "earliest" else 10, 17)]


@pytest.mark.usefixtures("client")
def test_query_that_continues_from_a_checkpoint_reads_in_its_first_micro_batch() -> None:
    assert latest(stream(startingOffsets="earliest"), {"t": {"0": 3}}) == {"t": {"0": 10}}


def test_answer_of_a_former_leader_is_retried(client: FakeClient) -> None:
    """Otherwise the partition would be read again from its start, as a recreated one."""
    reader = stream(failOnDataLoss="false")
    client.stale = [{"t": [(0, 7)]}] * 3
    assert latest(reader, {"t": {"0": 10}}) == {"t": {"0": 10}}


def test_recreated_topic_is_a_data_loss_or_is_read_from_its_first_offset(client: FakeClient) -> None:
    client.found["t"] = [(0, 7)]
    with pytest.raises(DataLoss, match=r"ends at 7, before 10.*--allow-loss"):
        latest(stream(), {"t": {"0": 10}})
    reader = stream(failOnDataLoss="false")
    assert latest(reader, {"t": {"0": 10}}) == {"t": {"0": 0}}
    assert spans(reader, {"t": {"0": 10}}, {"t": {"0": 0}}) == []
    assert latest(reader, {"t": {"0": 0}}) == {"t": {"0": 7}}


@pytest.mark.usefixtures("client")
def test_missing_topic_fails_a_query_that_continues_from_a_checkpoint() -> None:
    with pytest.raises(TopicMissing, match="topic 'typo' does not exist"):
        latest(stream(subscribe="t,typo"), {"t": {"0": 3}})
    with pytest.raises(DataLoss, match="partition 0 of 'x' no longer exists, or is no longer selected"):
        latest(stream(), {"t": {"0": 3}, "x": {"0": 5}})


def test_matching_topic_that_the_token_cannot_read_is_skipped_with_one_warning(
    client: FakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.found["t-secret"] = [(0, 5)]
    client.unreadable = {"t-secret"}
    reader = StreamReader(read_options({"subscribePattern": "t.*"}, is_stream=True))
    with caplog.at_level(logging.WARNING):
        assert latest(reader, {"t": {"0": 3}}) == latest(reader, {"t": {"0": 3}}) == {"t": {"0": 10}}
    assert caplog.text.count("topic=t-secret pattern=t.*") == 1
    with pytest.raises(NotAllowed):
        latest(stream(subscribe="t-secret"), {})


def test_future_timestamp_is_the_listed_end_while_records_arrive(client: FakeClient) -> None:
    """The partition grows between listing its end and looking up the timestamp."""
    client.at = lambda end: end + 3
    options = {"subscribe": "t", "endingTimestamp": "9999999999999"}
    (found,) = BatchReader(read_options(options, is_stream=False)).partitions()
    assert isinstance(found, RangePartition)
    assert (found.range.start, found.range.end) == (0, 10)


@pytest.mark.parametrize(
    ("stale", "there", "found"),
    [
        ([], (0, 10), [5, 6, 7, 8, 9]),
        ([(0, 7), (0, 7), (0, 10)], (0, 10), [5, 6, 7, 8, 9]),  # former leaders answer twice
        ([], (8, 20), [8, 9]),
        ([], (12, 20), []),
        ([], (0, 7), [5, 6]),
    ],
)
def test_task_reads_its_whole_range_although_a_former_leader_answers_first(
    client: FakeClient, stale: list[tuple[int, int]], there: tuple[int, int], found: list[int]
) -> None:
    """No existing record is skipped, and removed records are not waited for."""
    client.found = {"t": [there]}
    client.stale = [{"t": [one]} for one in stale]
    got = [
        batch.column("offset")[0].as_py()
        for batch in readers.fetch(cast("Client", client), OffsetRange("t", 0, 5, 10), [])
    ]
    assert got == found


def test_batch_retries_before_it_reports_offsets_beyond_the_end(client: FakeClient) -> None:
    client.stale = [{"t": [(0, 7)]}] * 2
    options = {"subscribe": "t", "endingOffsets": '{"t": {"0": 9}}'}
    (got,) = BatchReader(read_options(options, is_stream=False)).partitions()
    assert isinstance(got, RangePartition)
    assert (got.range.start, got.range.end) == (0, 9)
