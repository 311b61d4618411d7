"""What a broker's answer means for the one who asked: done, ask somebody else, ask again later, or no.

Pure. An append that was sent and not answered is in doubt for ever after, whatever the next broker says: only the
same batch, under the same sequence, can find out.
"""

from enum import Enum, auto
from typing import Any

import msgspec

from flotilla.serving.errors import Refusal

_OK = 200
_MOVED = 421
_UNKNOWN = 504
_LATER = {429, 503, 404}  # 404: a replica that is still to be opened, or a topic that was just removed


class Step(Enum):
    """What to do next."""

    DONE = auto()
    MOVE = auto()  # another one leads
    LATER = auto()  # nothing was changed; try again, here or elsewhere
    DOUBT = auto()  # nobody knows whether it was carried out
    REFUSED = auto()


def next_step(status: int) -> Step:
    """Judge an answer by its status."""
    if status == _OK:
        return Step.DONE
    if status == _MOVED:
        return Step.MOVE
    if status in _LATER:
        return Step.LATER
    return Step.DOUBT if status == _UNKNOWN else Step.REFUSED


def leader_in(body: bytes) -> str | None:
    """Find the leader's id in an answer that says that another one leads."""
    leader = _details(body).get("leader")
    found = leader.get("id") if isinstance(leader, dict) else None
    return found if isinstance(found, str) else None


def refusal_in(body: bytes) -> Refusal:
    """Make a broker's refusal one's own."""
    found = _parse(body)
    code, message = found.get("code"), found.get("message")
    if not isinstance(code, str) or not isinstance(message, str) or not Refusal.is_known(code):
        return Refusal("unavailable", "a broker gave an answer that cannot be understood")
    return Refusal(code, message, **_details(body))


def _details(body: bytes) -> dict[str, Any]:
    details = _parse(body).get("details")
    return details if isinstance(details, dict) and all(isinstance(key, str) for key in details) else {}


def _parse(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
