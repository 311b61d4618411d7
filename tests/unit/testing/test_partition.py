"""A partition in memory holds what one on disks holds."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.records import decode, encode
from flotilla.serving.errors import Refusal
from flotilla.testing.partition import Partition

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def filled(sizes: list[int]) -> tuple[Partition, list[bytes]]:
    """Make a partition with batches of these sizes, the n-th at time n; return what is in it, too."""
    partition, values = Partition(), [b"%d" % number for number in range(sum(sizes))]
    for at, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        assert partition.append(encode(values[end - size : end]), at) == (end - size, at)
    return partition, values


@given(sizes=SIZES, data=st.data())
def test_every_record_is_found_from_every_offset(sizes: list[int], data: st.DataObject) -> None:
    """Whole batches are read, from the one that holds the offset on, as many as fit and at least one."""
    partition, values = filled(sizes)
    offset = data.draw(st.integers(0, len(values)))
    bytes_max = data.draw(st.integers(1, 2000))
    batches = partition.read(offset, bytes_max)
    found = [record.value for batch in batches for record in decode(batch) if record.offset >= offset]
    assert found == values[offset : offset + len(found)]
    assert bool(batches) == (offset < len(values))
    assert len(batches) <= 1 or sum(map(len, batches)) <= bytes_max
    assert [record.value for record in partition.records(offset)] == values[offset:]


@given(sizes=SIZES, data=st.data())
def test_what_is_deleted_is_gone_and_the_rest_stays_where_it_is(sizes: list[int], data: st.DataObject) -> None:
    """Also if the cut lies in a batch. Where records begin never goes back."""
    partition, values = filled(sizes)
    first = 0
    for offset in data.draw(st.lists(st.integers(0, len(values)), max_size=4)):
        partition.delete_before(offset)
        first = max(first, offset)
        assert (partition.first_offset, partition.next_offset) == (first, len(values))
        assert [(one.offset, one.value) for one in partition.records(0)] == list(enumerate(values))[first:]
        if first:
            with pytest.raises(Refusal, match=f"offset {first - 1} is gone: records begin at {first}"):
                partition.read(first - 1, 100)
    assert partition.append(encode([b"next"]), 0) == (len(values), len(sizes) - 1), "nor does time"


@given(sizes=SIZES, data=st.data())
def test_a_time_leads_to_the_first_record_that_was_appended_then_or_later(
    sizes: list[int], data: st.DataObject
) -> None:
    partition, values = filled(sizes)
    cut = data.draw(st.integers(0, len(values)))
    partition.delete_before(cut)
    for time_ms in range(len(sizes) + 1):
        expected = next((one.offset for one in partition.records(0) if one.append_time_ms >= time_ms), len(values))
        assert partition.offset_at_time(time_ms) == expected


def test_what_is_stored_is_not_touched_by_whoever_sent_it() -> None:
    partition, batch = Partition(), encode([b"value"])
    partition.append(batch, 5)
    batch[:] = bytes(len(batch))
    assert [(one.value, one.append_time_ms) for one in partition.records(0)] == [(b"value", 5)]


def test_who_watches_is_told_once_of_records_that_come_or_go() -> None:
    partition, told = Partition(), list[str]()
    partition.watch(lambda: told.append("first"))
    undo = partition.watch(lambda: told.append("undone"))
    undo()
    undo()
    partition.append(encode([b"value"]), 0)
    partition.append(encode([b"value"]), 0)
    partition.watch(lambda: told.append("second"))
    partition.delete_before(1)
    partition.watch(lambda: told.append("third"))
    partition.close()
    assert told == ["first", "second", "third"]
