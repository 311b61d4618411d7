"""What members and those who look after a group are told of it, as values. Pure, like all decisions about groups."""

from typing import NamedTuple

from flotilla.groups import membership
from flotilla.groups.state import Group, Member, Told

_HEARTBEAT_MS_MAX = 500  # while partitions change hands
_BEATS = 3  # in a timeout


class Answer(NamedTuple):
    """What a member is told when it joins or syncs."""

    member: Member
    told: Told
    heartbeat_ms: int
    state: str


class Beaten(NamedTuple):
    """What a member is told when it shows that it lives."""

    generation: int
    state: str
    heartbeat_ms: int
    should_sync: bool


def state_of(group: Group) -> str:
    """Say in a word how a group is."""
    if not group.members:
        return "empty"
    return "stable" if membership.is_stable(group) else "rebalancing"


def answer(group: Group, member_id: str) -> Answer:
    """Answer a join or a sync."""
    member = group.members[member_id]
    return Answer(member, membership.told(group, member_id), _heartbeat_ms(group, member), state_of(group))


def answer_beat(group: Group, member: Member, generation: int, held: int | None) -> Beaten:
    """Answer a heartbeat."""
    sync = membership.should_sync(group, member.id, generation=generation, held=held)
    return Beaten(group.generation, state_of(group), _heartbeat_ms(group, member), sync)


def _heartbeat_ms(group: Group, member: Member) -> int:
    """Tell how often to show that one lives: often enough, and more often while partitions change hands."""
    every_ms = member.timeout_ms // _BEATS
    return every_ms if membership.is_stable(group) else min(every_ms, _HEARTBEAT_MS_MAX)
