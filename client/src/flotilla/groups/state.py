"""A consumer group as values.

Every partition of the topics that a group reads has at most one owner: the member that may commit there. A partition
goes from one member to another in steps. First it gets a new target. Its owner is told so, finishes, commits, and says
that it has let go of it; or it leaves, or falls silent. Only then does the target become the owner.

A generation is a number that rises with every change of who is to have what, and with every join. It fences:
- `Member.joined`: what comes with a lower generation is from an earlier life of this member, or from a stranger.
- `Holding.since`: a commit with a lower generation was meant before this member got the partition (again).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


class Strategy(StrEnum):
    """How partitions are dealt out."""

    RANGE = "range"
    ROUND_ROBIN = "round-robin"
    STICKY = "sticky"


class Place(NamedTuple):
    """A partition."""

    topic_id: str
    partition: int


@dataclass(frozen=True, kw_only=True)
class Member:
    """A consumer in a group."""

    id: str
    topics: tuple[str, ...]  # names, sorted, each once
    timeout_ms: int
    joined: int  # the generation in which it joined last
    synced: int  # the generation in which it was told last what it has


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Who has a partition, since which generation, and who is to have it."""

    owner: str | None
    since: int
    target: str | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group. One without members has no holdings; its generation and its commits stay.

    What follows from the fields is found out once for each state of a group: members ask much more often than they
    change anything.
    """

    name: str
    strategy: Strategy | None = None  # of the members that it has or had last
    generation: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    holdings: Mapping[Place, Holding] = field(default_factory=dict)

    @cached_property
    def concerns(self) -> Mapping[str, Sequence[Place]]:
        """The places that each member owns or is to own."""
        found: defaultdict[str, list[Place]] = defaultdict(list)
        for place, holding in self.holdings.items():
            if holding.owner is not None:
                found[holding.owner].append(place)
            if holding.target is not None and holding.target != holding.owner:
                found[holding.target].append(place)
        return found

    def owned_by(self, member_id: str) -> list[Place]:
        """List the places that a member owns."""
        return [place for place in self.concerns.get(member_id, ()) if self.holdings[place].owner == member_id]

    @cached_property
    def topics(self) -> frozenset[str]:
        """The names that anybody subscribes to."""
        return frozenset(topic for member in self.members.values() for topic in member.topics)

    @cached_property
    def dealt(self) -> Mapping[str, int]:
        """How many partitions of each topic, by its id, are to be somebody's."""
        return Counter(place.topic_id for place, holding in self.holdings.items() if holding.target is not None)

    @cached_property
    def unwanted(self) -> frozenset[str]:
        """The ids of topics that nobody subscribes to any more, but of which somebody still owns partitions."""
        return frozenset(place.topic_id for place, holding in self.holdings.items() if holding.target is None)

    @cached_property
    def is_settled(self) -> bool:
        """Whether everybody knows what it is to have, and has it."""
        return all(member.synced == self.generation for member in self.members.values()) and all(
            holding.owner == holding.target for holding in self.holdings.values()
        )


class Subscribed(NamedTuple):
    """A topic as groups see it."""

    id: str
    partitions: int


Topology = Mapping[str, Subscribed]  # topics that can be used, by name


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a member is told: what it may work on, and what it has to let go of."""

    generation: int
    assigned: tuple[Place, ...]  # it owns these, and is to keep them
    revoked: tuple[Place, ...]  # it owns these, and has to let go of them: finish, commit, sync without them
    pending: int  # so many more it will get, once others have let go
