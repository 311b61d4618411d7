"""Model of a log: a list of changes with their sequence numbers, and the resulting plain lists.

A log that is opened after a crash must equal the model up to some sequence number, which must not be below the last
durable one. `check_log` compares everything that the log can return.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from flotilla_broker.log import Log


@dataclass
class ModelGroup:
    """One group as plain lists."""

    meta: bytes
    term: int = 0
    vote: bytes = b""
    anchor_index: int = 0
    anchor_term: int = 0
    first_offset: int = 0
    entries: list[tuple[int, int, int, bytes]] = field(default_factory=list)  # term, next offset, time, payload

    @property
    def first_index(self) -> int:
        return self.anchor_index + 1

    @property
    def last_index(self) -> int:
        return self.anchor_index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1][0] if self.entries else self.anchor_term

    @property
    def next_offset(self) -> int:
        return self.entries[-1][1] if self.entries else self.first_offset

    def truncate(self, index: int) -> None:
        del self.entries[index - self.first_index :]

    def trim(self, index: int) -> None:
        removed = self.entries[: index - self.first_index]
        if removed:
            self.anchor_term, self.first_offset = removed[-1][0], removed[-1][1]
        del self.entries[: len(removed)]
        self.anchor_index = index - 1


Groups = dict[int, ModelGroup]
Change = Callable[[Groups], None]


@dataclass
class Model:
    """The changes and their result."""

    changes: list[tuple[int, Change]] = field(default_factory=list)
    groups: Groups = field(default_factory=dict)

    def apply(self, lsn: int, change: Change) -> None:
        """Apply a change."""
        self.changes.append((lsn, change))
        change(self.groups)

    def forget_after(self, lsn: int) -> None:
        """Discard the changes after `lsn`."""
        self.changes = [item for item in self.changes if item[0] <= lsn]
        self.groups = {}
        for _, change in self.changes:
            change(self.groups)


def check_log(log: Log, model: Model) -> None:
    """Compare all results of the log with the model."""
    assert log.damage == (), log.damage
    assert set(log.groups) == set(model.groups)
    for number, expected in model.groups.items():
        check_group(log, number, expected)


def check_group(log: Log, number: int, expected: ModelGroup) -> None:
    """Compare one group."""
    group = log.group(number)
    assert (group.meta, group.term, group.vote) == (expected.meta, expected.term, expected.vote)
    assert (group.first_index, group.last_index) == (expected.first_index, expected.last_index)
    assert (group.anchor_term, group.last_term) == (expected.anchor_term, expected.last_term)
    assert (group.first_offset, group.next_offset) == (expected.first_offset, expected.next_offset)
    assert not group.quarantined
    found = read_all(log, number)
    assert found == [
        (expected.first_index + at, term, next_offset, time_ms, payload)
        for at, (term, next_offset, time_ms, payload) in enumerate(expected.entries)
    ]
    check_lookups(log, number, expected)
    if group.state_index < group.last_index:  # the caller can always rebuild its state
        assert log.read(number, group.state_index + 1, bytes_max=1)[0].index == group.state_index + 1


def check_lookups(log: Log, number: int, expected: ModelGroup) -> None:
    """Compare searches by offset and by time with a plain search."""
    for offset in {
        expected.first_offset,
        (expected.first_offset + expected.next_offset) // 2,
        expected.next_offset,
    }:
        at = next((i for i, e in enumerate(expected.entries) if e[1] > offset), len(expected.entries))
        assert log.find_offset(number, offset) == expected.first_index + at
    for time_ms in {e[2] for e in expected.entries[:: max(1, len(expected.entries) // 3)]}:
        at = next(i for i, e in enumerate(expected.entries) if e[2] >= time_ms)
        assert log.find_time(number, time_ms) == expected.first_index + at


def read_all(log: Log, number: int, bytes_max: int = 3000) -> list[tuple[int, int, int, int, bytes]]:
    """Read every entry of a group, in several calls."""
    group = log.group(number)
    index, found = group.first_index, []
    while index <= group.last_index:
        entries = log.read(number, index, bytes_max=bytes_max)
        found += [(e.index, e.term, e.next_offset, e.time_ms, bytes(e.payload)) for e in entries]
        index = entries[-1].index + 1
    return found
