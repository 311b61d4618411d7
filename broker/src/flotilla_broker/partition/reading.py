"""Selects the batches of a fetch from entries: whole batches, committed ones only."""

from collections.abc import Iterable

from flotilla.records import BatchHeader, split
from flotilla_broker.log import Entry
from flotilla_broker.log.files import Buffer
from flotilla_broker.partition.entries import RECORDS


def select_batches(entries: Iterable[Entry], offset: int, committed_index: int, bytes_max: int) -> list[Buffer]:
    """Return the batches from the one with `offset` on, up to `bytes_max`, but at least one.

    Only the first and the last entry are split; others are returned as they are.
    """
    found: list[Buffer] = []
    for entry in entries:
        if entry.index > committed_index:
            break
        payload = memoryview(entry.payload)
        if payload[:1] != RECORDS or entry.next_offset <= offset:
            continue
        batches = payload[1:]
        start, end = 0, len(batches)
        if end > bytes_max or not found:
            start, end = _cut(batches, offset, bytes_max, at_least_one=not found)
        if end > start:
            found.append(batches[start:end])
            bytes_max -= end - start
        if end < len(batches):
            break  # no gaps
    return found


def _cut(batches: memoryview, offset: int, bytes_max: int, *, at_least_one: bool) -> tuple[int, int]:
    """Return the range without batches that end before `offset`, and without later ones that do not fit."""
    start = end = 0
    for batch in split(batches):
        if BatchHeader.from_bytes(batch).next_offset <= offset:
            start = end = end + len(batch)
        elif end + len(batch) - start <= bytes_max or (at_least_one and end == start):
            end += len(batch)
        else:
            break
    return start, end
