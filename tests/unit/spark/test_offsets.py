"""Offset ranges of queries and tasks."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_flotilla.offsets import OffsetRange, PartitionOffsets, from_json, limit, plan_end, resolve, split, to_json
from pyspark_flotilla.options import EARLIEST, LATEST, AtTimestamp, OffsetSpecs, OptionInvalid

places = st.tuples(st.sampled_from("ab"), st.integers(0, 3))
amounts = st.dictionaries(places, st.integers(0, 1000), min_size=1)


def test_offsets_have_the_json_form_of_the_kafka_source() -> None:
    found = {("a", 1): 5, ("a", 0): 7, ("b", 0): 0}
    assert to_json(found) == {"a": {"0": 7, "1": 5}, "b": {"0": 0}}
    assert from_json(to_json(found)) == found


def test_specs_are_resolved_to_offsets_with_one_lookup_per_timestamp() -> None:
    asked = []

    def find(topic: str, ms: int) -> dict[int, int]:
        asked.append((topic, ms))
        return {0: 11, 1: 12}

    available = {("a", 0): PartitionOffsets(3, 20), ("a", 1): PartitionOffsets(0, 9)}
    assert resolve(OffsetSpecs(EARLIEST), available, find) == {("a", 0): 3, ("a", 1): 0}
    assert resolve(OffsetSpecs(LATEST, {("a", 0): 8}), available, find) == {("a", 0): 8, ("a", 1): 9}
    assert asked == []
    assert resolve(OffsetSpecs(AtTimestamp(5)), available, find) == {("a", 0): 11, ("a", 1): 9}, (
        "not beyond the listed end"
    )
    assert asked == [("a", 5)]


def test_offsets_of_a_partition_that_is_not_read_are_rejected() -> None:
    with pytest.raises(OptionInvalid, match="partition 1 of 'a', which is not read"):
        resolve(OffsetSpecs(LATEST, {("a", 0): 3, ("a", 1): 3}), {("a", 0): PartitionOffsets(0, 9)}, lambda _, __: {})


@given(amounts, st.integers(1, 500))
@example({("a", 0): 1, ("a", 1): 1}, 1)
def test_limit_takes_at_least_one_record_of_each_partition(lag: dict[tuple[str, int], int], records_max: int) -> None:
    start = dict.fromkeys(lag, 100)
    latest = {place: 100 + count for place, count in lag.items()}
    end = limit(start, latest, records_max)
    taken = {place: end[place] - 100 for place in lag}
    nonempty = sum(count > 0 for count in lag.values())
    assert all(min(1, lag[place]) <= taken[place] <= lag[place] for place in lag)
    assert sum(taken.values()) <= max(records_max, nonempty)
    assert sum(taken.values()) > min(records_max, sum(lag.values())) - len(lag)
    assert limit(start, latest, None) == latest


A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def test_new_partition_is_read_one_micro_batch_after_its_starting_offset_is_stored() -> None:
    """A repeated micro-batch has the same start, even if retention removed records meanwhile."""
    available = {A0: PartitionOffsets(0, 20), A1: PartitionOffsets(1_000_000, 1_000_007)}
    first = plan_end({A0: 5}, available, None, None)
    assert first == {A0: 20, A1: 1_000_000}
    assert plan_end(first, available, None, None) == {A0: 20, A1: 1_000_007}


def test_recreated_partition_restarts_at_its_first_offset_and_missing_partition_keeps_its_offset() -> None:
    available = {A0: PartitionOffsets(0, 3), A1: PartitionOffsets(0, 9)}
    first = plan_end({A0: 10, A1: 4, B0: 7}, available, None, None)
    assert first == {A0: 0, A1: 9, B0: 7}
    assert plan_end(first, available, None, None) == {A0: 3, A1: 9, B0: 7}


def test_removed_records_do_not_count_toward_the_limit() -> None:
    available = {A0: PartitionOffsets(1_000_000, 1_000_500), A1: PartitionOffsets(0, 500)}
    assert plan_end({A0: 0, A1: 0}, available, None, 500) == {A0: 1_000_250, A1: 250}
    assert plan_end({A0: 0, A1: 0}, {A0: PartitionOffsets(9, 9), A1: PartitionOffsets(0, 0)}, None, 500) == {
        A0: 9,
        A1: 0,
    }


def test_micro_batch_does_not_pass_the_end_of_an_available_now_query() -> None:
    available = {A0: PartitionOffsets(0, 20), A1: PartitionOffsets(0, 20), B0: PartitionOffsets(0, 20)}
    assert plan_end({A0: 5}, available, {A0: 10, A1: 7}, None) == {A0: 10, A1: 0}, (
        "later partitions are left to the next query"
    )
    assert plan_end({A0: 10, A1: 0}, available, {A0: 10, A1: 7}, None) == {A0: 10, A1: 7}
    assert plan_end({A0: 12, A1: 7}, available, {A0: 10, A1: 7}, None) == {A0: 12, A1: 7}, "offsets never decrease"


@given(amounts, st.integers(1, 20) | st.none(), st.integers(1, 200) | st.none())
def test_split_covers_each_record_once_within_the_limits(
    lag: dict[tuple[str, int], int], parts_min: int | None, records_max: int | None
) -> None:
    ranges = [OffsetRange(*place, 5, 5 + count) for place, count in lag.items()]
    parts = split(ranges, parts_min, records_max)
    covered = [(one.topic, one.partition, at) for one in parts for at in range(one.start, one.end)]
    assert sorted(covered) == sorted((*place, at) for place, count in lag.items() for at in range(5, 5 + count))
    assert all(one.count > 0 for one in parts)
    assert records_max is None or all(one.count <= records_max for one in parts)
    total = sum(lag.values())
    assert parts_min is None or len(parts) >= min(parts_min, total)
