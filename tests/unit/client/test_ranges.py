"""Which records are wanted: what users give, and what becomes of it when it is known what is there."""

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
def test_an_edge_is_an_offset_or_a_question_to_servers(
    edge: Edges, parsed: Mapping[int, int | str] | int | str
) -> None:
    """A number is an offset, and a datetime is a time; either for all partitions, or for each of them."""
    assert Range.parse("t", start=edge).start == parsed
    assert Range.parse("t", end=edge).end == parsed


@pytest.mark.parametrize("edge", ["yesterday", -1, True, 1.5, datetime(2026, 1, 1), {0: "soon"}, {0: {}}])  # noqa: DTZ001 - that is the mistake
@pytest.mark.parametrize("name", ["start", "end"])
def test_an_edge_that_cannot_be_is_refused_with_the_rule(name: str, edge: Any) -> None:  # noqa: ANN401 - any mistake
    """The error names the option. A time without a zone would mean something else on each machine."""
    with pytest.raises(ConfigInvalid, match=f"{name} must be"):
        Range.parse("t", **{name: edge})


def test_by_default_everything_of_all_partitions_is_meant() -> None:
    """As a table of a database is read."""
    wanted = Range.parse("t")
    assert (wanted.partitions, wanted.edges(3)) == (None, ("offset=earliest", "offset=latest"))


def test_partitions_are_those_that_are_named() -> None:
    """By themselves, or by where they begin or end."""
    assert Range.parse("t", [2, 0, 2]).partitions == (0, 2)
    assert Range.parse("t", start={1: 5, 0: 3}).partitions == (0, 1)
    assert Range.parse("t", end={1: 5}).partitions == (1,)
    wanted = Range.parse("t", [0, 1], start={0: 3, 1: 5}, end=10)
    assert [wanted.edges(at) for at in (0, 1)] == [(3, 10), (5, 10)]


def test_numbers_may_come_out_of_a_frame() -> None:
    """Whoever goes on behind the last offset that a frame has need not turn it into another kind of number."""
    frame = pd.DataFrame({"partition": [0, 1], "offset": [10, 20]})
    wanted = Range.parse("t", frame["partition"], start=frame["offset"].max() + 1)
    assert (wanted.partitions, wanted.start) == ((0, 1), 21)
    assert [type(one) for one in (*(wanted.partitions or ()), wanted.start)] == [int, int, int]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"partitions": [0], "start": {0: 1, 1: 1}}, "each of the partitions that are read, and no other"),
        ({"partitions": [0, 1], "end": {0: 1}}, "each of the partitions that are read, and no other"),
        ({"start": {0: 1}, "end": {1: 2}}, "each of the partitions that are read, and no other"),
        ({"partitions": [-1]}, "partitions must be numbers from 0 on"),
        ({"partitions": [True]}, "partitions must be numbers from 0 on"),
        ({"partitions": [0, "1"]}, "partitions must be numbers from 0 on"),
        ({"partitions": 0}, "partitions must be numbers from 0 on"),
        ({"start": {0: 1, "1": 2}}, "partitions must be numbers from 0 on"),
        ({"on_gone": "latest"}, "on_gone must be raise or earliest"),
        ({"max_bytes": 0}, "max_bytes must be at least 1, or None"),
        ({"max_bytes": "2 GiB"}, "max_bytes must be at least 1, or None"),
        ({"topic": ""}, "topic must be the name of one"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_rule(options: dict[str, Any], rule: str) -> None:
    """Nobody is asked, and nobody has to guess what was meant."""
    with pytest.raises(ConfigInvalid, match=rule):
        Range.parse(**{"topic": "t", **options})


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_span_is_what_a_slice_of_the_log_would_be(start: int, end: int, first: int, length: int) -> None:
    """No offset that is there and in the range is left out, and none is made up."""
    there = range(first, first + length)
    wanted = Range.parse("t", start=start, end=end, on_gone="earliest")
    span = Span(0, start, end).clamp(there.stop).skip_gone(wanted, there.start, there.stop)
    assert list(range(span.start, span.end)) == [offset for offset in there if start <= offset < end]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_records_that_are_gone_are_not_left_out_in_silence(start: int, end: int, first: int, length: int) -> None:
    """A table lacks nothing that was asked for; the error says how many are missing, and where records begin."""
    there = range(first, first + length)
    span, wanted = Span(0, start, end).clamp(there.stop), Range.parse("t", start=start, end=end)
    missing = [offset for offset in range(there.stop) if start <= offset < end and offset not in there]
    if not missing:
        assert span.skip_gone(wanted, there.start, there.stop).start == span.start
        return
    with pytest.raises(OffsetOutOfRange, match=f"{len(missing)} records of 't', partition 0, from offset {start} on"):
        span.skip_gone(wanted, there.start, there.stop)


def test_whoever_wants_what_is_there_does_not_care_where_it_begins() -> None:
    """With `earliest`, retention may go on until the first record is read."""
    span = Span(0, 5, 20, may_begin_later=True)
    assert span.skip_gone(Range.parse("t"), 10, 20) == Span(0, 10, 20, may_begin_later=True)
