"""What Spark asks a stream's reader for, in the order in which it does, with a system that answers as it is told."""

import logging
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Self, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from flotilla import Client
from flotilla.client.errors import NotAllowed, TopicMissing
from pyspark_flotilla import reading
from pyspark_flotilla.offsets import Span
from pyspark_flotilla.options import read_options
from pyspark_flotilla.reading import BatchReader, DataLoss, Share, StreamReader

ALL = ReadAllAvailable()


class System:
    """Topics, by the first and the next offsets of their partitions."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.found = topics
        self.stale: list[dict[str, list[tuple[int, int]]]] = []  # what is answered before that
        self.closed: set[str] = set()  # topics that may not be read
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
        """Give the records of a range, as far as whoever answers has them."""
        (at,) = partitions
        first, last = (self.stale.pop(0) if self.stale else self.found)[name][at]
        for offset in range(max(start[at], first), min(end[at], last)):
            yield pa.RecordBatch.from_pydict({"offset": pa.array([offset], pa.int64())})

    def offsets(self, name: str, at: int | None = None) -> Sequence[Any]:
        if name in self.closed:
            raise NotAllowed("no", "forbidden", {})
        found = (self.stale.pop(0) if self.stale else self.found).get(name)
        if found is None:
            raise TopicMissing(f"there is no topic '{name}'", "not_found", {})
        return [
            SimpleNamespace(
                index=index, first_offset=first, next_offset=end, offset=None if at is None else self.at(end)
            )
            for index, (first, end) in enumerate(found)
        ]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    made = System(t=[(0, 10)])
    monkeypatch.setattr(reading, "connect", lambda _: made)
    monkeypatch.setattr(reading, "ASK_S_MIN", 0.0)
    monkeypatch.setattr(reading, "_AGAIN_S", 0.01)
    monkeypatch.setattr(reading, "STALE_S", 0.2)
    return made


def stream(**options: str) -> StreamReader:
    return StreamReader(read_options({"subscribe": "t", **options}, is_stream=True))


def latest(reader: StreamReader, start: dict[str, dict[str, int]], limit: ReadLimit = ALL) -> dict[str, dict[str, int]]:
    return reader.latestOffset(start, limit)


def spans(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    shares = [one for one in reader.partitions(start, end) if isinstance(one, Share)]
    return [(one.span.partition, one.span.start, one.span.end) for one in shares]


@pytest.mark.usefixtures("system")
def test_the_first_micro_batch_has_spark_write_down_where_the_query_begins() -> None:
    reader = stream(startingOffsets="earliest")
    start = reader.initialOffset()
    end = latest(reader, start)
    assert end == start == {"t": {"0": 0}}
    assert spans(reader, reader.initialOffset(), end) == []  # Spark asks for the start once more
    assert latest(reader, end) == {"t": {"0": 10}}


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_a_first_micro_batch_that_is_run_again_goes_on_from_where_the_query_began(system: System, begin: str) -> None:
    """Nothing is skipped, and what was removed meanwhile is missed: Spark asks for the start anew, which has moved."""
    reader = stream(startingOffsets=begin)
    noted = latest(reader, reader.initialOffset())
    system.found["t"] = [(4, 17)]
    again = stream(startingOffsets=begin)
    assert spans(again, again.initialOffset(), noted) == []
    end = latest(again, noted)
    assert spans(again, noted, end) == [(0, 0 if begin == "earliest" else 10, 17)]


@pytest.mark.usefixtures("system")
def test_a_query_that_goes_on_from_a_checkpoint_reads_at_once() -> None:
    assert latest(stream(startingOffsets="earliest"), {"t": {"0": 3}}) == {"t": {"0": 10}}


def test_an_answer_of_a_broker_that_leads_no_more_is_not_believed(system: System) -> None:
    """Without this the whole partition would be read again, as one that was made anew."""
    reader = stream(failOnDataLoss="false")
    system.stale = [{"t": [(0, 7)]}] * 3
    assert latest(reader, {"t": {"0": 10}}) == {"t": {"0": 10}}


def test_a_topic_that_was_made_anew_is_told_of_or_read_from_its_beginning(system: System) -> None:
    system.found["t"] = [(0, 7)]
    with pytest.raises(DataLoss, match=r"ends at 7, before 10.*--allow-loss"):
        latest(stream(), {"t": {"0": 10}})
    reader = stream(failOnDataLoss="false")
    assert latest(reader, {"t": {"0": 10}}) == {"t": {"0": 0}}
    assert spans(reader, {"t": {"0": 10}}, {"t": {"0": 0}}) == []
    assert latest(reader, {"t": {"0": 0}}) == {"t": {"0": 7}}


@pytest.mark.usefixtures("system")
def test_a_topic_that_never_was_there_is_refused_also_by_a_query_that_goes_on() -> None:
    with pytest.raises(TopicMissing, match="there is no topic 'typo'"):
        latest(stream(subscribe="t,typo"), {"t": {"0": 3}})
    with pytest.raises(DataLoss, match="partition 0 of 'x' is not there any more, or not chosen any more"):
        latest(stream(), {"t": {"0": 3}, "x": {"0": 5}})


def test_a_topic_that_matches_and_may_not_be_read_is_left_out_and_told_of_once(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    system.found["t-secret"] = [(0, 5)]
    system.closed = {"t-secret"}
    reader = StreamReader(read_options({"subscribePattern": "t.*"}, is_stream=True))
    with caplog.at_level(logging.WARNING):
        assert latest(reader, {"t": {"0": 3}}) == latest(reader, {"t": {"0": 3}}) == {"t": {"0": 10}}
    assert caplog.text.count("topic 't-secret' matches 't.*'") == 1
    with pytest.raises(NotAllowed):
        latest(stream(subscribe="t-secret"), {})


def test_a_time_that_is_yet_to_come_is_the_end_also_while_records_come(system: System) -> None:
    """Where a time is looked up, the partition has more records than when its end was asked for."""
    system.at = lambda end: end + 3
    options = {"subscribe": "t", "endingTimestamp": "9999999999999"}
    (found,) = BatchReader(read_options(options, is_stream=False)).partitions()
    assert isinstance(found, Share)
    assert (found.span.start, found.span.end) == (0, 10)


@pytest.mark.parametrize(
    ("stale", "there", "found"),
    [
        ([], (0, 10), [5, 6, 7, 8, 9]),
        ([(0, 7), (0, 7), (0, 10)], (0, 10), [5, 6, 7, 8, 9]),  # and one that leads no more, between two that do
        ([], (8, 20), [8, 9]),
        ([], (12, 20), []),
        ([], (0, 7), [5, 6]),
    ],
)
def test_a_task_reads_all_that_was_there_though_a_broker_that_leads_no_more_answers_first(
    system: System, stale: list[tuple[int, int]], there: tuple[int, int], found: list[int]
) -> None:
    """Nothing is skipped, also where losses are allowed; what is gone is not waited for."""
    system.found = {"t": [there]}
    system.stale = [{"t": [one]} for one in stale]
    got = [
        batch.column("offset")[0].as_py() for batch in reading.fetch(cast("Client", system), Span("t", 0, 5, 10), [])
    ]
    assert got == found


def test_a_batch_up_to_an_offset_asks_again_before_it_says_that_records_are_lost(system: System) -> None:
    system.stale = [{"t": [(0, 7)]}] * 2
    options = {"subscribe": "t", "endingOffsets": '{"t": {"0": 9}}'}
    (got,) = BatchReader(read_options(options, is_stream=False)).partitions()
    assert isinstance(got, Share)
    assert (got.span.start, got.span.end) == (0, 9)
