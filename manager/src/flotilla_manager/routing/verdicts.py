"""Meaning of a broker's response for a manager. Rejected credentials concern the manager, not its caller."""

from flotilla.net import verdicts
from flotilla.net.verdicts import ErrorResponse, Step
from flotilla.protocol.errors import Refusal

_CREDENTIAL_ERRORS = {"unauthorized", "forbidden"}  # the manager's credentials, not the caller's


def next_step(status: int, body: bytes = b"") -> Step:
    """Decide how to continue, by status and error code."""
    response = verdicts.read(body) if status != 200 else ErrorResponse()  # noqa: PLR2004 - success has no code
    return Step.LATER if response.code in _CREDENTIAL_ERRORS else verdicts.next_step(status, response)


def leader_in(body: bytes) -> str | None:
    """Return the leader's id from a `not_leader` response."""
    found = verdicts.read(body).leader.get("id")
    return found if isinstance(found, str) else None


def refusal_in(body: bytes) -> Refusal:
    """Translate a broker's error for the client."""
    response = verdicts.read(body)
    if response.code is None or not response.message:
        return Refusal("unavailable", "invalid response from a broker")
    if response.code in _CREDENTIAL_ERRORS:
        return Refusal(
            "unavailable", "a broker rejected this manager's credentials; all servers must have the same secret"
        )
    refusal = Refusal(response.code, response.message)
    refusal.details = dict(response.details)
    return refusal
