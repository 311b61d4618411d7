"""What a Raft group needs from its surroundings, and what it does for them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from flotilla_broker.log import Entry as LogEntry
from flotilla_broker.raft.grouplog import LogListener
from flotilla_broker.raft.messages import Entry, Message

ReadDone = Callable[[list[LogEntry] | None], None]


class Port(Protocol):
    """The way out of a group: to other members, and to the disk."""

    def send(self, peer: str, message: Message, *, held: bool) -> None:
        """Send a message; one that is held leaves only when everything logged so far is durable (guard D)."""

    def is_writable(self, peer: str) -> bool:
        """Tell whether there is room on the connection for more than a small message."""

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Read entries from the disk and hand them to `done`, perhaps later; None if they are gone."""


class Machine(LogListener, Protocol):
    """What a group is for: it hears of every entry, and of what is committed."""

    def check(self, entries: Sequence[Entry], next_offset: int) -> None:
        """Raise EntryRefused unless entries from another broker follow the record before `next_offset`."""

    def committed(self, index: int) -> None:
        """Everything up to `index` is committed, and on this disk too."""

    def role_changed(self) -> None:
        """The role, the term or the known leader changed."""

    def snapshot(self) -> tuple[int, bytes]:
        """Return the index up to which commits were heard of, and a summary of the entries up to there."""

    def check_state(self, index: int, state: bytes) -> None:
        """Raise EntryRefused unless a summary of the entries up to `index` can be read."""

    def installed(self, index: int, state: bytes) -> None:
        """A copy of another replica's log took the place of this one's, with this summary."""
