"""How a group changes: each request of a member, and each change around it, makes a new group of an old one.

What holds, whatever is lost, repeated, late or out of order:

- A partition has at most one owner, and gets another one only after its owner has let go of it, left or been removed.
- A member lets go of a partition only by a sync that it sent when it knew that it had it. A sync that comes late or
  twice takes nothing away that the member got since: in the generation in which it gets a partition it is to keep it,
  so that one of this generation or before, without the partition, was sent in ignorance of it.
- The generation never goes back. It rises whenever targets change, and with each join, so that one life of a member
  ends where the next begins.
- Once everybody syncs when it should, there is an end: everybody has synced, and every owner is its target.

Topics are given as they are now; what became of them since the last change is fitted in by the way. A partition of a
topic that is gone is gone at once, from its owner too. One that nobody subscribes to any more, while there are members,
stays with its owner until it lets go.

Nothing here knows a clock: who has been silent for too long is for the caller to find out.

    GroupError
    ├── UnknownMember       it is not there (any more); it has to join
    ├── StaleGeneration     from an earlier life of it, or from a group that was deleted since; it has to join
    └── OtherStrategy       the others that are there use another one
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar

from flotilla.groups.assigning import assign
from flotilla.groups.state import Group, Holding, Member, Place, Strategy, Told, Topology


class GroupError(Exception):
    """A group refuses a request; the message says why, and what to do.

    Attributes:
        code: names the reason for programs; it never changes.
    """

    code: ClassVar[str]


class UnknownMember(GroupError):
    """The group has no such member (any more)."""

    code = "unknown_member"

    def __init__(self) -> None:
        super().__init__("the group has no such member: it left, was silent for too long or was removed; join again")


class StaleGeneration(GroupError):
    """The request is not from the present life of this member."""

    code = "stale_generation"

    def __init__(self, generation: int, joined: int, present: int) -> None:
        super().__init__(
            f"this member joined in generation {joined}, and the group is in {present}: "
            f"{generation} is from another life of it; join again"
        )


class OtherStrategy(GroupError):
    """The other members deal partitions out in another way."""

    code = "conflict"

    def __init__(self, theirs: Strategy, asked: Strategy) -> None:
        super().__init__(f"the members of this group use the strategy '{theirs}': join with it, not with '{asked}'")
        self.theirs = theirs


def check(group: Group, member_id: str, generation: int) -> Member:
    """Return the member if this is from its present life; raise UnknownMember or StaleGeneration."""
    return _present(group.members.get(member_id), generation, group.generation)


def join(
    group: Group, member_id: str, topics: Collection[str], timeout_ms: int, strategy: Strategy, topology: Topology
) -> Group:
    """Let a member in, with what is free and to be its own; one that is there begins a new life with what it owns."""
    if group.strategy not in {None, strategy} and group.members.keys() - {member_id}:
        raise OtherStrategy(group.strategy or strategy, strategy)
    now = group.generation + 1
    member = Member(id=member_id, topics=tuple(sorted(set(topics))), timeout_ms=timeout_ms, joined=now, synced=now)
    members = {**group.members, member_id: member}
    group = replace(group, strategy=strategy, generation=now, members=members)
    return _gave(replace(group, holdings=_fitted(group, topology)), member_id)


def sync(group: Group, member_id: str, generation: int, owned: Collection[Place]) -> Group:
    """Let go of what a member says that it no longer has, and give it what is free and to be its own.

    One that was sent before the last one was answered changes nothing. It is the same object if nothing changes.
    """
    member = check(group, member_id, generation)
    if generation < member.synced:
        return group
    kept = frozenset(owned)
    let_go = {
        place: replace(holding, owner=None)
        for place in group.owned_by(member_id)
        if place not in kept
        and (holding := group.holdings[place]).since < generation  # else it was sent before it knew that it has this
    }
    if let_go:
        group = _with(group, let_go)
    if member.synced != group.generation:
        group = replace(group, members={**group.members, member_id: replace(member, synced=group.generation)})
    return _gave(group, member_id)


def leave(group: Group, member_id: str, generation: int, topology: Topology) -> Group:
    """Let a member go; what it owned is free."""
    check(group, member_id, generation)
    return remove(group, (member_id,), topology)


def remove(group: Group, member_ids: Collection[str], topology: Topology) -> Group:
    """Take members out: those that are silent, or all of them by force. Ids that are not there are passed over."""
    members = {id_: member for id_, member in group.members.items() if id_ not in member_ids}
    if len(members) == len(group.members):
        return group
    return _refitted(replace(group, members=members), topology)


def refit(group: Group, topology: Topology) -> Group:
    """Fit in topics that appeared, grew or went. It is the same object if nothing changes."""
    wanted = {topology[name].id: topology[name].partitions for name in group.topics if name in topology}
    # This is asked about every group every moment, so the usual answer must be cheap.
    if group.dealt == wanted and (not group.unwanted or group.unwanted <= {topic.id for topic in topology.values()}):
        return group
    return _refitted(group, topology)


def told(group: Group, member_id: str) -> Told:
    """Return what a member is told in answer to a join or a sync."""
    mine = {place: group.holdings[place] for place in sorted(group.concerns.get(member_id, ()))}
    return Told(
        generation=group.generation,
        assigned=tuple(place for place, one in mine.items() if one.owner == one.target == member_id),
        revoked=tuple(place for place, one in mine.items() if one.owner == member_id != one.target),
        pending=sum(one.owner != member_id for one in mine.values()),
    )


def should_sync(group: Group, member_id: str, *, generation: int | None = None, held: int | None = None) -> bool:
    """Tell whether a sync would change or tell anything.

    Pass the generation that the member knows, and how many partitions it holds, if it says so: a sync that was late,
    and whose answer nobody read, may have given it something that it does not know of. Nothing else would tell it.
    """
    if min(group.members[member_id].synced, group.generation if generation is None else generation) < group.generation:
        return True
    mine = [group.holdings[place] for place in group.concerns.get(member_id, ())]
    return any(one.owner is None or one.owner == member_id != one.target for one in mine) or (
        held is not None and held != sum(one.owner == member_id for one in mine)
    )


def may_commit(
    member: Member | None,
    generation: int,
    group_generation: int,
    holdings: Mapping[Place, Holding],
    places: Collection[Place],
) -> list[Place]:
    """Return the places that it may not commit to; raise UnknownMember or StaleGeneration if it may not at all."""
    id_ = _present(member, generation, group_generation).id
    return [
        place
        for place in places
        if (holding := holdings.get(place)) is None or holding.owner != id_ or generation < holding.since
    ]


def is_stable(group: Group) -> bool:
    """Tell whether everybody has synced and every owner is its target."""
    return group.is_settled


def _present(member: Member | None, generation: int, present: int) -> Member:
    if member is None:
        raise UnknownMember
    if not member.joined <= generation <= present:
        raise StaleGeneration(generation, member.joined, present)
    return member


def _with(group: Group, changed: Mapping[Place, Holding]) -> Group:
    """Change holdings; those that are nobody's, and are to be nobody's, are gone."""
    holdings = {**group.holdings, **changed}
    for place, holding in changed.items():
        if holding.owner is None and holding.target is None:
            del holdings[place]
    return replace(group, holdings=holdings)


def _gave(group: Group, member_id: str) -> Group:
    """Give a member what is free and to be its own."""
    given = {
        place: Holding(owner=member_id, since=group.generation, target=member_id)
        for place in group.concerns.get(member_id, ())
        if group.holdings[place].owner is None
    }
    return _with(group, given) if given else group


def _refitted(group: Group, topology: Topology) -> Group:
    """Deal out anew; a new generation begins if anybody is to have anything else than before."""
    holdings = _fitted(group, topology)
    before = {place: holding.target for place, holding in group.holdings.items()}
    moved = before != {place: holding.target for place, holding in holdings.items()}
    return replace(group, holdings=holdings, generation=group.generation + moved)


def _fitted(group: Group, topology: Topology) -> dict[Place, Holding]:
    """Find the holdings that a group is to have with its members as they are; who owns something keeps it for now."""
    members = {id_: member.topics for id_, member in group.members.items()}
    targets = assign(group.strategy or Strategy.STICKY, members, topology, _current(group, topology))
    sizes = {topic.id: topic.partitions for topic in topology.values()}
    holdings = {}
    for place, old in group.holdings.items():
        owner = old.owner if old.owner in members else None
        target = targets.pop(place, None)
        if target is None and (owner is None or place.partition >= sizes.get(place.topic_id, 0)):
            continue
        is_same = (owner, target) == (old.owner, old.target)
        holdings[place] = old if is_same else Holding(owner=owner, since=old.since, target=target)
    holdings.update({place: Holding(owner=None, since=0, target=target) for place, target in targets.items()})
    return holdings


def _current(group: Group, topology: Topology) -> dict[Place, str]:
    """Find what everybody has: what it is to have, or else, if that one is out of the question, what it owns."""
    read = {
        topics: frozenset(topology[name].id for name in topics if name in topology)
        for topics in {member.topics for member in group.members.values()}
    }
    reads = {id_: read[member.topics] for id_, member in group.members.items()}
    current = {}
    for place, holding in group.holdings.items():
        for one in (holding.target, holding.owner):
            if one is not None and place.topic_id in reads.get(one, ()):
                current[place] = one
                break
    return current
