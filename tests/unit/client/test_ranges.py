"""Ranges: options of the user, resolved with the offsets of partitions."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.client.errors import ConfigInvalid, OffsetOutOfRange
from flotilla.client.ranges import Edges, Range, Span

MOMENT = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)


@pytest.mark.parametrize(
    ("edge", "parsed"),
    [
        ("earliest", "offset=earliest"),
        ("latest", "offset=latest"),
        (0, 0),
        (1500, 1500),
        (MOMENT, "timestamp_ms=1500"),
        ({0: 7, 2: MOMENT}, {0: 7, 2: "timestamp_ms=1500"}),
    ],
)
def test_edge_is_an_offset_or_a_query_parameter(edge: Edges, parsed: Mapping[int, int | str] | int | str) -> None:
    """A number is an offset, and a datetime is a time; one for all partitions, or one for each."""
    assert Range.parse("t", start=edge).start == parsed
    assert Range.parse("t", end=edge).end == parsed


@pytest.mark.parametrize("edge", ["yesterday", -1, True, 1.5, datetime(2026, 1, 1), {0: "soon"}, {0: {}}])  # noqa: DTZ001 - that is the mistake
@pytest.mark.parametrize("name", ["start", "end"])
def test_invalid_edge_raises_with_name_and_rule(name: str, edge: Any) -> None:  # noqa: ANN401 - any mistake
    """A time without a time zone would differ between machines."""
    with pytest.raises(ConfigInvalid, match=f"{name} must be"):
        Range.parse("t", **{name: edge})


def test_default_range_is_all_records_of_all_partitions() -> None:
    wanted = Range.parse("t")
    assert (wanted.partitions, wanted.edges(3)) == (None, ("offset=earliest", "offset=latest"))


def test_partitions_of_the_range_come_from_partitions_start_or_end() -> None:
    assert Range.parse("t", [2, 0, 2]).partitions == (0, 2)
    assert Range.parse("t", start={1: 5, 0: 3}).partitions == (0, 1)
    assert Range.parse("t", end={1: 5}).partitions == (1,)
    wanted = Range.parse("t", [0, 1], start={0: 3, 1: 5}, end=10)
    assert [wanted.edges(at) for at in (0, 1)] == [(3, 10), (5, 10)]


def test_numpy_integers_are_valid_offsets() -> None:
    """Offsets from a pandas frame need no conversion."""
    frame = pd.DataFrame({"partition": [0, 1], "offset": [10, 20]})
    wanted = Range.parse("t", frame["partition"], start=frame["offset"].max() + 1)
    assert (wanted.partitions, wanted.start) == ((0, 1), 21)
    assert [type(one) for one in (*(wanted.partitions or ()), wanted.start)] == [int, int, int]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"partitions": [0], "start": {0: 1, 1: 1}}, "start and end must name the same partitions"),
        ({"partitions": [0, 1], "end": {0: 1}}, "start and end must name the same partitions"),
        ({"start": {0: 1}, "end": {1: 2}}, "start and end must name the same partitions"),
        ({"partitions": [-1]}, "partitions must be numbers of partitions, from 0"),
        ({"partitions": [True]}, "partitions must be numbers of partitions, from 0"),
        ({"partitions": [0, "1"]}, "partitions must be numbers of partitions, from 0"),
        ({"partitions": 0}, "partitions must be numbers of partitions, from 0"),
        ({"start": {0: 1, "1": 2}}, "partitions must be numbers of partitions, from 0"),
        ({"on_gone": "latest"}, "on_gone must be raise or earliest"),
        ({"max_bytes": 0}, "max_bytes must be at least 1, or None"),
        ({"max_bytes": "2 GiB"}, "max_bytes must be at least 1, or None"),
        ({"topic": ""}, "topic must be the name of a topic"),
    ],
)
def test_invalid_range_raises_with_the_rule(options: dict[str, Any], rule: str) -> None:
    """Without a request."""
    with pytest.raises(ConfigInvalid, match=rule):
        Range.parse(**{"topic": "t", **options})


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_span_equals_a_slice_of_the_log(start: int, end: int, first: int, length: int) -> None:
    """Every existing offset of the range is included, and no other."""
    there = range(first, first + length)
    wanted = Range.parse("t", start=start, end=end, on_gone="earliest")
    span = Span(0, start, end).clamp(there.stop).skip_gone(wanted, there.start, there.stop)
    assert list(range(span.start, span.end)) == [offset for offset in there if start <= offset < end]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_deleted_records_in_the_span_raise(start: int, end: int, first: int, length: int) -> None:
    """The error has the number of missing records, and the first offset."""
    there = range(first, first + length)
    span, wanted = Span(0, start, end).clamp(there.stop), Range.parse("t", start=start, end=end)
    missing = [offset for offset in range(there.stop) if start <= offset < end and offset not in there]
    if not missing:
        assert span.skip_gone(wanted, there.start, there.stop).start == span.start
        return
    with pytest.raises(OffsetOutOfRange, match=f"{len(missing)} records from offset {start} were deleted"):
        span.skip_gone(wanted, there.start, there.stop)


def test_span_from_earliest_may_start_later() -> None:
    """With `earliest`, retention may delete records until the first one is read."""
    span = Span(0, 5, 20, may_begin_later=True)
    assert span.skip_gone(Range.parse("t"), 10, 20) == Span(0, 10, 20, may_begin_later=True)
