"""Offsets: where a query begins and ends, and who reads what."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_flotilla.offsets import Bounds, Span, advance, from_json, limit, resolve, split, to_json
from pyspark_flotilla.options import EARLIEST, LATEST, Edges, Moment, OptionInvalid

places = st.tuples(st.sampled_from("ab"), st.integers(0, 3))
amounts = st.dictionaries(places, st.integers(0, 1000), min_size=1)


def test_offsets_are_kept_as_kafkas_source_keeps_them() -> None:
    found = {("a", 1): 5, ("a", 0): 7, ("b", 0): 0}
    assert to_json(found) == {"a": {"0": 7, "1": 5}, "b": {"0": 0}}
    assert from_json(to_json(found)) == found


def test_edges_become_offsets_and_a_time_is_asked_for_once() -> None:
    asked = []

    def find(topic: str, ms: int) -> dict[int, int]:
        asked.append((topic, ms))
        return {0: 11, 1: 12}

    known = {("a", 0): Bounds(3, 20), ("a", 1): Bounds(0, 9)}
    assert resolve(Edges(EARLIEST), known, find) == {("a", 0): 3, ("a", 1): 0}
    assert resolve(Edges(LATEST, {("a", 0): 8}), known, find) == {("a", 0): 8, ("a", 1): 9}
    assert asked == []
    assert resolve(Edges(Moment(5)), known, find) == {("a", 0): 11, ("a", 1): 9}, "an end that was known does not move"
    assert asked == [("a", 5)]


def test_offsets_for_what_is_not_read_are_refused() -> None:
    with pytest.raises(OptionInvalid, match="partition 1 of 'a', which is not read"):
        resolve(Edges(LATEST, {("a", 0): 3, ("a", 1): 3}), {("a", 0): Bounds(0, 9)}, lambda _, __: {})


@given(amounts, st.integers(1, 500))
@example({("a", 0): 1, ("a", 1): 1}, 1)
def test_a_limit_holds_and_takes_something_of_each(waiting: dict[tuple[str, int], int], most: int) -> None:
    start = dict.fromkeys(waiting, 100)
    latest = {place: 100 + count for place, count in waiting.items()}
    end = limit(start, latest, most)
    taken = {place: end[place] - 100 for place in waiting}
    full = sum(count > 0 for count in waiting.values())
    assert all(min(1, waiting[place]) <= taken[place] <= waiting[place] for place in waiting)
    assert sum(taken.values()) <= max(most, full)
    assert sum(taken.values()) > min(most, sum(waiting.values())) - len(waiting)
    assert limit(start, latest, None) == latest


A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def test_a_partition_that_is_new_is_read_by_the_micro_batch_after_the_one_that_notes_where_it_begins() -> None:
    """A micro-batch that is run again has the same start, whatever retention has removed in between."""
    known = {A0: Bounds(0, 20), A1: Bounds(1_000_000, 1_000_007)}
    first = advance({A0: 5}, known, None, None)
    assert first == {A0: 20, A1: 1_000_000}
    assert advance(first, known, None, None) == {A0: 20, A1: 1_000_007}


def test_a_partition_that_was_made_anew_is_read_from_its_beginning_and_one_that_is_gone_stays() -> None:
    known = {A0: Bounds(0, 3), A1: Bounds(0, 9)}
    first = advance({A0: 10, A1: 4, B0: 7}, known, None, None)
    assert first == {A0: 0, A1: 9, B0: 7}
    assert advance(first, known, None, None) == {A0: 3, A1: 9, B0: 7}


def test_what_was_removed_is_not_waited_for_one_limit_after_the_other() -> None:
    known = {A0: Bounds(1_000_000, 1_000_500), A1: Bounds(0, 500)}
    assert advance({A0: 0, A1: 0}, known, None, 500) == {A0: 1_000_250, A1: 250}
    assert advance({A0: 0, A1: 0}, {A0: Bounds(9, 9), A1: Bounds(0, 0)}, None, 500) == {A0: 9, A1: 0}


def test_nothing_is_read_from_the_point_on_at_which_a_query_ends() -> None:
    known = {A0: Bounds(0, 20), A1: Bounds(0, 20), B0: Bounds(0, 20)}
    assert advance({A0: 5}, known, {A0: 10, A1: 7}, None) == {A0: 10, A1: 0}, "what came later is for the next run"
    assert advance({A0: 10, A1: 0}, known, {A0: 10, A1: 7}, None) == {A0: 10, A1: 7}
    assert advance({A0: 12, A1: 7}, known, {A0: 10, A1: 7}, None) == {A0: 12, A1: 7}, "offsets never go back"


@given(amounts, st.integers(1, 20) | st.none(), st.integers(1, 200) | st.none())
def test_parts_cover_everything_once_and_are_as_many_and_as_small_as_wanted(
    waiting: dict[tuple[str, int], int], least: int | None, most: int | None
) -> None:
    spans = [Span(*place, 5, 5 + count) for place, count in waiting.items()]
    parts = split(spans, least, most)
    covered = [(one.topic, one.partition, at) for one in parts for at in range(one.start, one.end)]
    assert sorted(covered) == sorted((*place, at) for place, count in waiting.items() for at in range(5, 5 + count))
    assert all(one.count > 0 for one in parts)
    assert most is None or all(one.count <= most for one in parts)
    total = sum(waiting.values())
    assert least is None or len(parts) >= min(least, total)
