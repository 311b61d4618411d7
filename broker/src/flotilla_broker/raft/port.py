"""Interfaces between a Raft group and its environment: Port (I/O) and StateMachine."""

from collections.abc import Callable, Sequence
from typing import Protocol

from flotilla_broker.log import Entry as LogEntry
from flotilla_broker.raft.grouplog import LogListener
from flotilla_broker.raft.messages import Entry, Message

ReadDone = Callable[[list[LogEntry] | None], None]


class Port(Protocol):
    """The I/O of a group: messages to other members, and reads from disk."""

    def send(self, peer: str, message: Message, *, after_flush: bool) -> None:
        """Send a message; if `after_flush`, after the flush that covers everything logged so far."""

    def is_writable(self, peer: str) -> bool:
        """Whether the connection can take more than a small message."""

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Read entries from disk and pass them to `done`, now or later; None if they were trimmed."""


class StateMachine(LogListener, Protocol):
    """The replicated state machine: gets every entry, and the commit index."""

    def check(self, entries: Sequence[Entry], next_offset: int) -> None:
        """Check entries from another broker, whose first record must have `next_offset`; raises EntryInvalid."""

    def committed(self, index: int) -> None:
        """All entries up to `index` are committed, and durable on this broker."""

    def role_changed(self) -> None:
        """The role, the term or the known leader changed."""

    def snapshot(self) -> tuple[int, bytes]:
        """Return the last applied index, and the state after it."""

    def check_state(self, index: int, state: bytes) -> None:
        """Check a state after `index`; raises EntryInvalid."""

    def installed(self, index: int, state: bytes) -> None:
        """A snapshot with this state replaced the log."""
