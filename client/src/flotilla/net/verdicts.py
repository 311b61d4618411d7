"""Interpretation of responses: what a client does next, by status and error code. Pure.

The outcome of an append without a response stays unknown, whatever the next broker responds: only a retry of the same
batch with the same sequence can resolve it. A response that is not certainly a refusal leaves the outcome unknown, too:
an internal error, or a response of a proxy between client and server.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from flotilla.net.codes import CODES, ERROR_CODE, ERROR_RESOURCE, RESOURCES

_OK = 200
_MOVED = 421
_REFUSED = range(400, 500)  # rejected without any effect
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
_ELSEWHERE = {"unknown_partition", "not_found", "sealed"}  # the metadata of the client or of the server is outdated


class Step(Enum):
    """The next step after a response."""

    DONE = auto()
    MOVE = auto()  # another broker is the leader
    LATER = auto()  # no effect; retry, here or at another server
    ELSEWHERE = auto()  # no effect; refresh the metadata, and retry
    DOUBT = auto()  # the outcome is unknown
    REFUSED = auto()


class ErrorResponse(msgspec.Struct, frozen=True):
    """An error response, as far as it can be parsed. Without a known code, it may be from a proxy."""

    code: str | None = None
    message: str = ""
    details: Mapping[str, Any] = {}

    @property
    def leader(self) -> Mapping[str, Any]:
        """The leader in a `not_leader` response; otherwise empty."""
        found = self.details.get("leader")
        return found if isinstance(found, dict) else {}


def read(body: bytes) -> ErrorResponse:
    """Parse an error response."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ErrorResponse()
    if not isinstance(found, dict):
        return ErrorResponse()
    code, message, details = found.get("code"), found.get("message"), found.get("details")
    return ErrorResponse(
        code if isinstance(code, str) and code in CODES else None,
        message if isinstance(message, str) else "",
        details if isinstance(details, dict) and all(isinstance(key, str) for key in details) else {},
    )


def add_code(error: ErrorResponse, headers: Mapping[bytes, bytes]) -> ErrorResponse:
    """Add the code of an error of the simple API, which is in a header; managers of 0.2 do not send it."""
    code = headers.get(ERROR_CODE.encode(), b"").decode("latin-1")
    if error.code is not None or code not in CODES:
        return error
    resource = headers.get(ERROR_RESOURCE.encode(), b"").decode("latin-1")
    return ErrorResponse(
        code, error.message, {**error.details, "resource": resource} if resource in RESOURCES else error.details
    )


def next_step(status: int, error: ErrorResponse) -> Step:
    """Return the next step, by the status and the error code of a response."""
    if status == _OK:
        return Step.DONE
    if status == _MOVED:
        return Step.MOVE
    if error.code in _LATER:
        return Step.LATER
    if status not in _REFUSED:
        return Step.DOUBT
    return Step.ELSEWHERE if error.code is None or error.code in _ELSEWHERE else Step.REFUSED
