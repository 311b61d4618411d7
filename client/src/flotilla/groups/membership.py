"""State transitions of a consumer group: each request of a member, and each change of topics, gives a new group.

Invariants, also if requests are lost, repeated, delayed or reordered:

- A partition has at most one owner. It gets another owner only after its owner released it, left or was removed.
- A member releases a partition only by a sync that it sent when it knew that it owned the partition. A late or repeated
  sync does not release partitions that the member got later: a member keeps a partition at least for the generation in
  which it got it. So a sync of that generation or an earlier one, without the partition, was sent before the member
  knew of it.
- The generation never decreases. It increases with every change of the target assignment and with every join, so that
  the incarnations of a member have separate ranges of generations.
- If all members sync when they should, the group becomes stable: all have synced, and every partition is owned by its
  target.

`topology` has the current topics; changes since the last transition are applied on the way. Partitions of a deleted
topic are removed at once, also from their owners. While the group has members, a partition without subscribers stays
with its owner until the owner releases it.

The functions do not use a clock: the caller finds members whose session has timed out (`flotilla.groups.sessions`).

    GroupError
    ├── UnknownMember           the group has no such member; it has to join
    ├── StaleGeneration         from an earlier incarnation of the member, or of a group deleted since; it has to join
    └── InconsistentStrategy    the other members use another strategy
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar

from flotilla.groups.assignors import assign
from flotilla.groups.state import Assignment, Group, Holding, Member, PartitionId, Strategy, Topology


class GroupError(Exception):
    """A rejected request; the message has the reason and what to do.

    Attributes:
        code: the error code, as in `flotilla.net.codes`.
    """

    code: ClassVar[str]


class UnknownMember(GroupError):
    """The group has no such member: it left, timed out or was removed."""

    code = "unknown_member"

    def __init__(self) -> None:
        super().__init__("the group has no such member: it left, timed out or was removed; join again")


class StaleGeneration(GroupError):
    """The request is from another incarnation of the member."""

    code = "stale_generation"

    def __init__(self, generation: int, joined: int, present: int) -> None:
        super().__init__(
            f"generation {generation} is stale: the member joined in generation {joined}, and the group is in "
            f"{present}; join again"
        )


class InconsistentStrategy(GroupError):
    """The other members use another assignment strategy."""

    code = "conflict"

    def __init__(self, current: Strategy, requested: Strategy) -> None:
        super().__init__(
            f"the members of this group use the strategy '{current}': join with it, not with '{requested}'"
        )
        self.current = current


def check(group: Group, member_id: str, generation: int) -> Member:
    """Return the member if the generation is of its current incarnation. Raises UnknownMember, StaleGeneration."""
    return _present(group.members.get(member_id), generation, group.generation)


def join(
    group: Group, member_id: str, topics: Collection[str], timeout_ms: int, strategy: Strategy, topology: Topology
) -> Group:
    """Add a member, and give it its unowned target partitions.

    A join with the id of a member starts a new incarnation of it, which keeps its partitions.
    """
    if group.strategy not in {None, strategy} and group.members.keys() - {member_id}:
        raise InconsistentStrategy(group.strategy or strategy, strategy)
    now = group.generation + 1
    member = Member(id=member_id, topics=tuple(sorted(set(topics))), timeout_ms=timeout_ms, joined=now, synced=now)
    members = {**group.members, member_id: member}
    group = replace(group, strategy=strategy, generation=now, members=members)
    return _give(replace(group, holdings=_find_holdings(group, topology)), member_id)


def sync(group: Group, member_id: str, generation: int, owned: Collection[PartitionId]) -> Group:
    """Release the partitions that a member no longer owns, and give it its unowned target partitions.

    A sync that was sent before the response to the last one changes nothing. Returns the same object if nothing
    changes.
    """
    member = check(group, member_id, generation)
    if generation < member.synced:
        return group
    kept = frozenset(owned)
    released = {
        tp: replace(holding, owner=None)
        for tp in group.owned_by(member_id)
        if tp not in kept
        and (holding := group.holdings[tp]).since
        < generation  # else it was sent before the member knew that it owns this
    }
    if released:
        group = _with(group, released)
    if member.synced != group.generation:
        group = replace(group, members={**group.members, member_id: replace(member, synced=group.generation)})
    return _give(group, member_id)


def leave(group: Group, member_id: str, generation: int, topology: Topology) -> Group:
    """Remove a member that leaves. Its partitions become unowned."""
    check(group, member_id, generation)
    return remove(group, (member_id,), topology)


def remove(group: Group, member_ids: Collection[str], topology: Topology) -> Group:
    """Remove members: expired ones, or all of them by force. Unknown ids are ignored."""
    members = {id_: member for id_, member in group.members.items() if id_ not in member_ids}
    if len(members) == len(group.members):
        return group
    return _rebalance(replace(group, members=members), topology)


def apply_topology(group: Group, topology: Topology) -> Group:
    """Rebalance after topics were created, extended or deleted. Returns the same object if nothing changes."""
    wanted = {topology[name].id: topology[name].partitions for name in group.topics if name in topology}
    # Called for every group at each sweep, so the case without a change must be cheap.
    if group.target_counts == wanted and (
        not group.unsubscribed_topics or group.unsubscribed_topics <= {topic.id for topic in topology.values()}
    ):
        return group
    return _rebalance(group, topology)


def assignment_of(group: Group, member_id: str) -> Assignment:
    """Return the assignment of a member, for the response to a join or a sync."""
    mine = {tp: group.holdings[tp] for tp in sorted(group.partitions_by_member.get(member_id, ()))}
    return Assignment(
        generation=group.generation,
        assigned=tuple(tp for tp, one in mine.items() if one.owner == one.target == member_id),
        revoked=tuple(tp for tp, one in mine.items() if one.owner == member_id != one.target),
        pending=sum(one.owner != member_id for one in mine.values()),
    )


def should_sync(group: Group, member_id: str, *, generation: int | None = None, held: int | None = None) -> bool:
    """Return whether a sync would change the group, or report an assignment that the member does not know.

    `generation` and `held` are the generation and the number of partitions that the member knows, if it sent them. A
    late sync whose response was not read may have given it partitions that it does not know of; only `held` reveals it.
    """
    if min(group.members[member_id].synced, group.generation if generation is None else generation) < group.generation:
        return True
    mine = [group.holdings[tp] for tp in group.partitions_by_member.get(member_id, ())]
    return any(one.owner is None or one.owner == member_id != one.target for one in mine) or (
        held is not None and held != sum(one.owner == member_id for one in mine)
    )


def find_not_owned(
    member: Member | None,
    generation: int,
    group_generation: int,
    holdings: Mapping[PartitionId, Holding],
    partitions: Collection[PartitionId],
) -> list[PartitionId]:
    """Return the partitions that a member cannot commit to: it does not own them in its generation.

    Raises UnknownMember, StaleGeneration.
    """
    id_ = _present(member, generation, group_generation).id
    return [
        tp
        for tp in partitions
        if (holding := holdings.get(tp)) is None or holding.owner != id_ or generation < holding.since
    ]


def is_stable(group: Group) -> bool:
    """Return whether all members have synced and every partition is owned by its target."""
    return group.is_stable


def _present(member: Member | None, generation: int, present: int) -> Member:
    if member is None:
        raise UnknownMember
    if not member.joined <= generation <= present:
        raise StaleGeneration(generation, member.joined, present)
    return member


def _with(group: Group, changed: Mapping[PartitionId, Holding]) -> Group:
    """Change holdings; remove those without owner and target."""
    holdings = {**group.holdings, **changed}
    for tp, holding in changed.items():
        if holding.owner is None and holding.target is None:
            del holdings[tp]
    return replace(group, holdings=holdings)


def _give(group: Group, member_id: str) -> Group:
    """Make a member the owner of its unowned target partitions."""
    given = {
        tp: Holding(owner=member_id, since=group.generation, target=member_id)
        for tp in group.partitions_by_member.get(member_id, ())
        if group.holdings[tp].owner is None
    }
    return _with(group, given) if given else group


def _rebalance(group: Group, topology: Topology) -> Group:
    """Compute a new target assignment; if it differs from the old one, start a new generation."""
    holdings = _find_holdings(group, topology)
    before = {tp: holding.target for tp, holding in group.holdings.items()}
    moved = before != {tp: holding.target for tp, holding in holdings.items()}
    return replace(group, holdings=holdings, generation=group.generation + moved)


def _find_holdings(group: Group, topology: Topology) -> dict[PartitionId, Holding]:
    """Return the holdings for the current members and topics. Owners keep their partitions until they release them."""
    members = {id_: member.topics for id_, member in group.members.items()}
    current = _current(group, topology)
    tentative = {
        tp for tp, member in current.items() if group.holdings[tp].target != member
    }  # in release by their owner
    targets = assign(group.strategy or Strategy.STICKY, members, topology, current, tentative)
    sizes = {topic.id: topic.partitions for topic in topology.values()}
    holdings = {}
    for tp, old in group.holdings.items():
        owner = old.owner if old.owner in members else None
        target = targets.pop(tp, None)
        if target is None and (owner is None or tp.partition >= sizes.get(tp.topic_id, 0)):
            continue
        is_same = (owner, target) == (old.owner, old.target)
        holdings[tp] = old if is_same else Holding(owner=owner, since=old.since, target=target)
    holdings.update({tp: Holding(owner=None, since=0, target=target) for tp, target in targets.items()})
    return holdings


def _current(group: Group, topology: Topology) -> dict[PartitionId, str]:
    """Return the current assignment: the target of each partition, or its owner if the target cannot have it."""
    read = {
        topics: frozenset(topology[name].id for name in topics if name in topology)
        for topics in {member.topics for member in group.members.values()}
    }
    reads = {id_: read[member.topics] for id_, member in group.members.items()}
    current = {}
    for tp, holding in group.holdings.items():
        for one in (holding.target, holding.owner):
            if one is not None and tp.topic_id in reads.get(one, ()):
                current[tp] = one
                break
    return current
