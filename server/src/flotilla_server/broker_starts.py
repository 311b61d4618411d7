"""Starts of brokers, and whether a data folder is an older copy of the one that its broker had before.

A broker that runs on an older copy, for example on a restored volume snapshot, has lost votes and acknowledged entries.
It cannot know that itself. So other brokers and managers remember its last start, and the log sequence number (LSN) up
to which its log was durable. An LSN never decreases: every frame of a log has the next one.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

_INT64_MAX = (1 << 63) - 1

Lsn = Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]


class Start(msgspec.Struct, frozen=True, array_like=True):
    """One start of a broker: its number, counted in the log, and a random token. Part of disk and wire formats."""

    number: Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)] = 0
    token: Annotated[bytes, msgspec.Meta(max_length=16)] = b""
    lsn: Lsn = 0  # durable up to here; 0 if it is unknown, as in 0.2

    @property
    def key(self) -> tuple[int, bytes]:
        """Identifies the start, and so its process."""
        return self.number, self.token

    def is_same(self, other: "Start") -> bool:
        """Whether both are the same start, so the same process."""
        return self.key == other.key

    def is_older_copy(self, recovered_lsn: int | None, known: "Start") -> bool:
        """Whether this start has an older copy of the log that had the start `known`.

        `recovered_lsn` is the LSN at which this start found its log; None if it is unknown, as in 0.2.
        """
        if self.is_same(known):
            return False
        if recovered_lsn is None or known.lsn == 0:
            return self.number <= known.number
        return recovered_lsn < known.lsn


class StartReport(msgspec.Struct, frozen=True, kw_only=True):
    """A start in heartbeats of its broker."""

    number: Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
    token: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{2}){1,16}$(?!\n)")]
    lsn: Lsn
    recovered_lsn: Lsn
    is_confirmed: bool = False  # by other brokers, or by an earlier answer
    is_copy: bool = False  # the log is a copy of that of a running broker

    @property
    def start(self) -> Start:
        """The start."""
        return Start(self.number, bytes.fromhex(self.token), self.lsn)


class StartVerdict(StrEnum):
    """Verdict of managers on a start, in the response to a heartbeat."""

    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"  # the last start may still be running; ask again
    OLDER_COPY = "older_copy"  # the broker must give up its id
    DUPLICATE = "duplicate"  # the last start is still running; the broker must exit
