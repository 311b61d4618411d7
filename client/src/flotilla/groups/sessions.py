"""Session timeouts of the members of a group, by the clock of the coordinator.

A join, a sync and a heartbeat extend the session of a member. Time in which the coordinator itself was paused or busy
must not count against members: the caller detects it, and calls `extend` or `restart`.
"""

from flotilla.groups.state import Group, Member, Topology


class GroupSessions:
    """A group with members, as last stored, and the session deadlines of its members."""

    def __init__(self, group: Group, now: float) -> None:
        """Start a full session timeout for all members."""
        self.group = group
        self.topology: Topology | None = None  # the topics for which the assignment was last found up to date
        self._deadlines: dict[str, float] = {}
        self.restart(now)

    def update(self, group: Group, now: float) -> None:
        """Set a new state of the group. New members get a full session timeout."""
        before = self._deadlines
        self.group = group
        self._deadlines = {id_: before.get(id_, _deadline(member, now)) for id_, member in group.members.items()}

    def renew(self, member: Member, now: float) -> None:
        """Restart the session timeout of a member."""
        self._deadlines[member.id] = _deadline(member, now)

    def expired(self, now: float) -> list[str]:
        """List the members whose session has timed out."""
        return sorted(id_ for id_, deadline in self._deadlines.items() if deadline <= now)

    def restart(self, now: float) -> None:
        """Restart the session timeouts of all members: their heartbeats may have been missed."""
        self._deadlines = {id_: _deadline(member, now) for id_, member in self.group.members.items()}

    def extend(self, seconds: float) -> None:
        """Extend all sessions by the time in which the coordinator received nothing."""
        self._deadlines = {id_: deadline + seconds for id_, deadline in self._deadlines.items()}


def _deadline(member: Member, now: float) -> float:
    return now + member.timeout_ms / 1000
