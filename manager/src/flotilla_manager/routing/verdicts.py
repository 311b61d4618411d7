"""What a broker's answer means for the one who asked: done, ask somebody else, ask again later, or no.

Pure. An append that was sent and not answered is in doubt for ever after, whatever the next broker says: only the
same batch, under the same sequence, can find out. An answer that is not surely a refusal leaves doubt as well: a
broker's own mistake, and whatever something between us and the broker may have said in its place.
"""

from enum import Enum, auto
from typing import Any

import msgspec

from flotilla.serving.errors import Refusal

_OK = 200
_MOVED = 421
_REFUSED = range(400, 500)  # before anything was done
_STRANGERS = {"unauthorized", "forbidden"}  # about this manager, and not about its caller
_LATER = {"busy", "closed", "disk_full", "no_leader", "too_many_connections", "not_settled", "broken", "unavailable"}
_ELSEWHERE = {"unknown_partition", "not_found", "sealed"}  # what is known here of the partition is old, or too new


class Step(Enum):
    """What to do next."""

    DONE = auto()
    MOVE = auto()  # another one leads
    LATER = auto()  # nothing was changed; try again, here or elsewhere
    ELSEWHERE = auto()  # nothing was changed; learn where the partition is, and try again
    DOUBT = auto()  # nobody knows whether it was carried out
    REFUSED = auto()


def next_step(status: int, body: bytes = b"") -> Step:
    """Judge an answer by its status, and by the code of the refusal that it holds."""
    if status == _OK:
        return Step.DONE
    if status == _MOVED:
        return Step.MOVE
    code = _code(body)
    if code in _LATER or code in _STRANGERS:
        return Step.LATER
    if status not in _REFUSED:
        return Step.DOUBT
    return Step.ELSEWHERE if code is None or code in _ELSEWHERE else Step.REFUSED


def leader_in(body: bytes) -> str | None:
    """Find the leader's id in an answer that says that another one leads."""
    leader = _details(body).get("leader")
    found = leader.get("id") if isinstance(leader, dict) else None
    return found if isinstance(found, str) else None


def refusal_in(body: bytes) -> Refusal:
    """Make a broker's refusal one's own."""
    code, message = _code(body), _parse(body).get("message")
    if code is None or not isinstance(message, str):
        return Refusal("unavailable", "a broker gave an answer that cannot be understood")
    if code in _STRANGERS:
        return Refusal(
            "unavailable", "a broker does not take this manager for one; all servers have to share one secret"
        )
    refusal = Refusal(code, message)
    refusal.details = _details(body)
    return refusal


def _code(body: bytes) -> str | None:
    """Find the code of a refusal; whoever has no code that we know is no broker of ours."""
    code = _parse(body).get("code")
    return code if isinstance(code, str) and Refusal.is_known(code) else None


def _details(body: bytes) -> dict[str, Any]:
    details = _parse(body).get("details")
    return details if isinstance(details, dict) and all(isinstance(key, str) for key in details) else {}


def _parse(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
