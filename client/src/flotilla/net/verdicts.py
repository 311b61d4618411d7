"""What a server's answer means for the one who asked: done, ask somebody else, ask again later, or no.

Pure. An append that was sent and not answered is in doubt for ever after, whatever the next broker says: only the
same batch, under the same sequence, can find out. An answer that is not surely a refusal leaves doubt as well: a
server's own mistake, and whatever something between us and the server may have said in its place.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from flotilla.net.codes import CODES

_OK = 200
_MOVED = 421
_REFUSED = range(400, 500)  # before anything was done
_LATER = {
    "busy",
    "closed",
    "disk_full",
    "no_leader",
    "too_many_connections",
    "not_settled",
    "broken",
    "unavailable",
    "quota_exceeded",
}
_ELSEWHERE = {"unknown_partition", "not_found", "sealed"}  # what is known of the partition is old, or too new


class Step(Enum):
    """What to do next."""

    DONE = auto()
    MOVE = auto()  # another one leads
    LATER = auto()  # nothing was changed; try again, here or elsewhere
    ELSEWHERE = auto()  # nothing was changed; learn where the partition is, and try again
    DOUBT = auto()  # nobody knows whether it was carried out
    REFUSED = auto()


class Said(msgspec.Struct, frozen=True):
    """A refusal, as far as it can be read; without a code that is known, it may be from anybody."""

    code: str | None = None
    message: str = ""
    details: Mapping[str, Any] = {}

    @property
    def leader(self) -> Mapping[str, Any]:
        """The leader, in an answer that says that another one leads."""
        found = self.details.get("leader")
        return found if isinstance(found, dict) else {}


def read(body: bytes) -> Said:
    """Read a refusal."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return Said()
    if not isinstance(found, dict):
        return Said()
    code, message, details = found.get("code"), found.get("message"), found.get("details")
    return Said(
        code if isinstance(code, str) and code in CODES else None,
        message if isinstance(message, str) else "",
        details if isinstance(details, dict) and all(isinstance(key, str) for key in details) else {},
    )


def next_step(status: int, said: Said) -> Step:
    """Judge an answer by its status, and by the code of the refusal that it holds."""
    if status == _OK:
        return Step.DONE
    if status == _MOVED:
        return Step.MOVE
    if said.code in _LATER:
        return Step.LATER
    if status not in _REFUSED:
        return Step.DOUBT
    return Step.ELSEWHERE if said.code is None or said.code in _ELSEWHERE else Step.REFUSED
