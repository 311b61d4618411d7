"""A group in the memory of whoever decides, and until when each of its members may be silent, by a clock of its own.

A member is heard of when it joins, syncs or sends a heartbeat. Time in which this process did not listen, because it
slept or was busy, is nobody's silence: it is for the caller to notice, and to say so here.
"""

from flotilla.groups.state import Group, Member, Topology


class Kept:
    """A group with members, as it was last written down."""

    def __init__(self, group: Group, now: float) -> None:
        """Keep a group. Everybody has a full timeout."""
        self.group = group
        self.fitted: Topology | None = None  # the topics that it was last seen to fit
        self._deadlines: dict[str, float] = {}
        self.forgive(now)

    def become(self, group: Group, now: float) -> None:
        """Take on a new state. Whoever is new in it has a full timeout."""
        before = self._deadlines
        self.group = group
        self._deadlines = {id_: before.get(id_, _deadline(member, now)) for id_, member in group.members.items()}

    def hear(self, member: Member, now: float) -> None:
        """Hear of a member."""
        self._deadlines[member.id] = _deadline(member, now)

    def silent(self, now: float) -> list[str]:
        """List those of whom nothing was heard for too long."""
        return sorted(id_ for id_, deadline in self._deadlines.items() if deadline <= now)

    def forgive(self, now: float) -> None:
        """Give everybody a full timeout: it is not known whether they were silent."""
        self._deadlines = {id_: _deadline(member, now) for id_, member in self.group.members.items()}

    def wait_longer(self, seconds: float) -> None:
        """Give everybody the time back in which nobody listened."""
        self._deadlines = {id_: deadline + seconds for id_, deadline in self._deadlines.items()}


def _deadline(member: Member, now: float) -> float:
    return now + member.timeout_ms / 1000
