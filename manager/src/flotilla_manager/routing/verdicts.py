"""What a broker's answer means for a manager: as for everybody, but for what is about itself and not its caller."""

from flotilla.net import verdicts
from flotilla.net.verdicts import Said, Step
from flotilla.serving.errors import Refusal

_STRANGERS = {"unauthorized", "forbidden"}  # about this manager, and not about its caller


def next_step(status: int, body: bytes = b"") -> Step:
    """Judge an answer by its status, and by the code of the refusal that it holds."""
    said = verdicts.read(body) if status != 200 else Said()  # noqa: PLR2004 - nothing to read in a success
    return Step.LATER if said.code in _STRANGERS else verdicts.next_step(status, said)


def leader_in(body: bytes) -> str | None:
    """Find the leader's id in an answer that says that another one leads."""
    found = verdicts.read(body).leader.get("id")
    return found if isinstance(found, str) else None


def refusal_in(body: bytes) -> Refusal:
    """Make a broker's refusal one's own."""
    said = verdicts.read(body)
    if said.code is None or not said.message:
        return Refusal("unavailable", "a broker gave an answer that cannot be understood")
    if said.code in _STRANGERS:
        return Refusal(
            "unavailable", "a broker does not take this manager for one; all servers have to share one secret"
        )
    refusal = Refusal(said.code, said.message)
    refusal.details = dict(said.details)
    return refusal
