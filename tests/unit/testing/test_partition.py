"""An in-memory partition behaves like a stored one."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.protocol.errors import Refusal
from flotilla.records import decode, encode
from flotilla.testing.partition import Partition

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=12)


def path_params(sizes: list[int]) -> tuple[Partition, list[bytes]]:
    """Make a partition with batches of these sizes, the n-th at time n; return it and its values."""
    partition, values = Partition(), [b"%d" % number for number in range(sum(sizes))]
    for at, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        assert partition.append(encode(values[end - size : end]), at) == (end - size, at)
    return partition, values


@given(sizes=SIZES, data=st.data())
def test_read_returns_all_records_from_any_offset(sizes: list[int], data: st.DataObject) -> None:
    """`read` returns whole batches from the one with the offset on, within the size limit but at least one."""
    partition, values = path_params(sizes)
    offset = data.draw(st.integers(0, len(values)))
    bytes_max = data.draw(st.integers(1, 2000))
    batches = partition.read(offset, bytes_max)
    found = [record.value for batch in batches for record in decode(batch) if record.offset >= offset]
    assert found == values[offset : offset + len(found)]
    assert bool(batches) == (offset < len(values))
    assert len(batches) <= 1 or sum(map(len, batches)) <= bytes_max
    assert [record.value for record in partition.records(offset)] == values[offset:]


@given(sizes=SIZES, data=st.data())
def test_delete_before_removes_only_records_below_the_offset(sizes: list[int], data: st.DataObject) -> None:
    """Also inside of a batch. The first offset never decreases."""
    partition, values = path_params(sizes)
    first = 0
    for offset in data.draw(st.lists(st.integers(0, len(values)), max_size=4)):
        partition.delete_before(offset)
        first = max(first, offset)
        assert (partition.first_offset, partition.next_offset) == (first, len(values))
        assert [(one.offset, one.value) for one in partition.records(0)] == list(enumerate(values))[first:]
        if first:
            with pytest.raises(Refusal, match=f"offset {first - 1} is below the first offset, {first}"):
                partition.read(first - 1, 100)
    assert partition.append(encode([b"next"]), 0) == (len(values), len(sizes) - 1), "nor does time"


@given(sizes=SIZES, data=st.data())
def test_offset_at_time_returns_the_first_record_at_or_after_it(sizes: list[int], data: st.DataObject) -> None:
    partition, values = path_params(sizes)
    cut = data.draw(st.integers(0, len(values)))
    partition.delete_before(cut)
    for time_ms in range(len(sizes) + 1):
        expected = next((one.offset for one in partition.records(0) if one.append_time_ms >= time_ms), len(values))
        assert partition.offset_at_time(time_ms) == expected


def test_stored_batch_is_independent_of_the_sent_buffer() -> None:
    partition, batch = Partition(), encode([b"value"])
    partition.append(batch, 5)
    batch[:] = bytes(len(batch))
    assert [(one.value, one.append_time_ms) for one in partition.records(0)] == [(b"value", 5)]


def test_watcher_is_notified_once_per_change() -> None:
    partition, notified = Partition(), list[str]()
    partition.watch(lambda: notified.append("first"))
    undo = partition.watch(lambda: notified.append("undone"))
    undo()
    undo()
    partition.append(encode([b"value"]), 0)
    partition.append(encode([b"value"]), 0)
    partition.watch(lambda: notified.append("second"))
    partition.delete_before(1)
    partition.watch(lambda: notified.append("third"))
    partition.close()
    assert notified == ["first", "second", "third"]
