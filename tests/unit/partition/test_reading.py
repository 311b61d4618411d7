"""Selection of batches for a fetch: whole batches, in order, without gaps, and only committed ones."""

from hypothesis import given
from hypothesis import strategies as st

from flotilla.records import assign, decode, encode, split
from flotilla_broker.log import Entry
from flotilla_broker.partition.entries import NOOP, RECORDS
from flotilla_broker.partition.reading import select_batches


def make_entries(shape: list[list[int]]) -> list[Entry]:
    """Make an entry for each list: batches with these numbers of records, or a no-op if the list is empty."""
    entries, offset = [], 0
    for index, counts in enumerate(shape, 1):
        payload = bytearray(RECORDS if counts else NOOP)
        for count in counts:
            batch = encode([b"%d" % (offset + at) for at in range(count)])
            assign(batch, offset, 0)
            payload += batch
            offset += count
        entries.append(Entry(index, 1, offset, 0, bytes(payload)))
    return entries


shapes = st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=1, max_size=6)


@given(shapes, st.data())
def test_selected_batches_are_consecutive(shape: list[list[int]], data: st.DataObject) -> None:
    entries = make_entries(shape)
    offset = data.draw(st.integers(0, entries[-1].next_offset))
    committed = data.draw(st.integers(0, len(entries)))
    bytes_max = data.draw(st.integers(1, 2000))
    found = [decode(batch) for part in select_batches(entries, offset, committed, bytes_max) for batch in split(part)]
    wanted = [
        batch
        for entry in entries[:committed]
        if entry.payload[:1] == RECORDS
        for part in split(memoryview(entry.payload)[1:])
        if (batch := decode(part)).header.next_offset > offset
    ]
    assert [batch.header for batch in found] == [batch.header for batch in wanted[: len(found)]]
    size = sum(batch.header.total_bytes for batch in found)
    assert size <= bytes_max or len(found) == 1
    if len(found) < len(wanted):
        assert found
        assert size + wanted[len(found)].header.total_bytes > bytes_max


def test_at_least_one_batch_is_selected_whatever_its_size() -> None:
    (entry,) = make_entries([[3, 3]])
    assert len(list(split(select_batches([entry], 0, 1, 1)[0]))) == 1


def test_uncommitted_batches_are_not_selected() -> None:
    assert select_batches(make_entries([[1], [1]]), 0, 0, 1000) == []
