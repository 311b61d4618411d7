"""Responses of the group coordinator to members, as values. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from flotilla.groups import membership
from flotilla.groups.state import Assignment, Group, Member

_REBALANCE_HEARTBEAT_MS_MAX = 500
_HEARTBEATS_PER_TIMEOUT = 3
_PARTITIONS_NAMED = 3  # in an error message


class AssignmentResponse(NamedTuple):
    """Response to a join or a sync."""

    member: Member
    assignment: Assignment
    heartbeat_ms: int
    state: str


class HeartbeatResponse(NamedTuple):
    """Response to a heartbeat."""

    generation: int
    state: str
    heartbeat_ms: int
    should_sync: bool


def state_of(group: Group) -> str:
    """Return the state of a group: empty, stable or rebalancing."""
    if not group.members:
        return "empty"
    return "stable" if membership.is_stable(group) else "rebalancing"


def assignment_response(group: Group, member_id: str) -> AssignmentResponse:
    """Respond to a join or a sync."""
    member = group.members[member_id]
    assignment = membership.assignment_of(group, member_id)
    return AssignmentResponse(member, assignment, _heartbeat_ms(group, member), state_of(group))


def heartbeat_response(group: Group, member: Member, generation: int, held: int | None) -> HeartbeatResponse:
    """Respond to a heartbeat."""
    sync = membership.should_sync(group, member.id, generation=generation, held=held)
    return HeartbeatResponse(group.generation, state_of(group), _heartbeat_ms(group, member), sync)


def not_owner_message(member_id: str, generation: int, partitions: Sequence[tuple[str, int]]) -> str:
    """Return the error message of a commit to partitions (topic and number) that the member does not own."""
    named = [f"{topic}/{number}" for topic, number in dict.fromkeys(partitions)]
    which = ", ".join(named[:_PARTITIONS_NAMED]) or "these partitions"  # topics may be deleted meanwhile
    if len(named) > _PARTITIONS_NAMED:
        which = f"{which} and {len(named) - _PARTITIONS_NAMED} more"
    it = "it" if len(named) == 1 else "them"
    return f"member '{member_id}' does not own {which} in generation {generation}: stop processing {it}, and sync"


def _heartbeat_ms(group: Group, member: Member) -> int:
    """Return the heartbeat interval: a fraction of the session timeout, and shorter during a rebalance."""
    every_ms = member.timeout_ms // _HEARTBEATS_PER_TIMEOUT
    return every_ms if membership.is_stable(group) else min(every_ms, _REBALANCE_HEARTBEAT_MS_MAX)
