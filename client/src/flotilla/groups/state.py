"""State of a consumer group, as immutable values.

Every partition of the subscribed topics has at most one owner: the member that may commit offsets there. Partitions
move cooperatively. First a partition gets a new target. Its owner learns this from a response, finishes, commits, and
releases the partition by a sync; or it leaves, or its session times out. Only then does the target become the owner.

The generation increases with every change of the target assignment, and with every join. It fences requests:
- `Member.joined`: a request with a lower generation is from an earlier incarnation of the member.
- `Holding.since`: a commit with a lower generation was sent before the member got the partition (again).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


class Strategy(StrEnum):
    """Assignment strategy; see `flotilla.groups.assignors`."""

    RANGE = "range"
    ROUND_ROBIN = "round-robin"
    STICKY = "sticky"


class PartitionId(NamedTuple):
    """A partition, by the id of its topic and its number. A recreated topic has another id."""

    topic_id: str
    partition: int


@dataclass(frozen=True, kw_only=True)
class Member:
    """A consumer in a group."""

    id: str
    topics: tuple[str, ...]  # names, sorted and unique
    timeout_ms: int
    joined: int  # generation of its last join
    synced: int  # generation of its last assignment


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Owner of a partition, the generation in which it became the owner, and the target owner."""

    owner: str | None
    since: int
    target: str | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group. A group without members has no holdings; it keeps its generation and its committed offsets.

    Derived values are cached: reads are much more frequent than changes.
    """

    name: str
    strategy: Strategy | None = None  # of the current or last members
    generation: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    holdings: Mapping[PartitionId, Holding] = field(default_factory=dict)

    @cached_property
    def partitions_by_member(self) -> Mapping[str, Sequence[PartitionId]]:
        """Partitions that each member owns or is the target of."""
        found: defaultdict[str, list[PartitionId]] = defaultdict(list)
        for tp, holding in self.holdings.items():
            if holding.owner is not None:
                found[holding.owner].append(tp)
            if holding.target is not None and holding.target != holding.owner:
                found[holding.target].append(tp)
        return found

    def owned_by(self, member_id: str) -> list[PartitionId]:
        """List the partitions that a member owns."""
        return [tp for tp in self.partitions_by_member.get(member_id, ()) if self.holdings[tp].owner == member_id]

    def owner_of(self, tp: PartitionId) -> str | None:
        """Return the member that owns a partition."""
        holding = self.holdings.get(tp)
        return None if holding is None else holding.owner

    @cached_property
    def topics(self) -> frozenset[str]:
        """Names of the subscribed topics."""
        return frozenset(topic for member in self.members.values() for topic in member.topics)

    @cached_property
    def target_counts(self) -> Mapping[str, int]:
        """Number of partitions with a target, by topic id."""
        return Counter(tp.topic_id for tp, holding in self.holdings.items() if holding.target is not None)

    @cached_property
    def unsubscribed_topics(self) -> frozenset[str]:
        """Ids of topics without subscribers, whose partitions are still owned."""
        return frozenset(tp.topic_id for tp, holding in self.holdings.items() if holding.target is None)

    @cached_property
    def is_stable(self) -> bool:
        """Whether all members have synced, and every partition is owned by its target."""
        return all(member.synced == self.generation for member in self.members.values()) and all(
            holding.owner == holding.target for holding in self.holdings.values()
        )


class GroupTopic(NamedTuple):
    """Id and number of partitions of a topic."""

    id: str
    partitions: int


Topology = Mapping[str, GroupTopic]  # existing topics by name


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Assignment of a member: partitions to work on, and partitions to release."""

    generation: int
    assigned: tuple[PartitionId, ...]  # owned, to keep
    revoked: tuple[PartitionId, ...]  # owned, to release: finish, commit, sync without them
    pending: int  # number of partitions to get when their owners release them
