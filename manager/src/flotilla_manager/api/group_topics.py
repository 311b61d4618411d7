"""Topics of consumer groups: names of requests to ids and back, with access checks.

A caller needs the scope consume on every topic that it names, and on every topic of a group that it reads. A caller
with admin on all topics sees every group. Access is checked before existence.
"""

from collections.abc import Iterable, Sequence

from fastapi import Request

from flotilla.access import Scope
from flotilla.groups.offsets import ListedGroup
from flotilla.groups.responses import AssignmentResponse
from flotilla.groups.state import Group, PartitionId
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.group_responses import MemberAssignment, NamedPartition
from flotilla.protocol.groups import PartitionBody
from flotilla_manager.manager import Manager
from flotilla_manager.model import Topic
from flotilla_server.authorization import caller_of, require


class GroupTopics:
    """Maps topic names to ids and back."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def find(self, request: Request, names: Iterable[str]) -> dict[str, Topic]:
        """Find topics by name; missing ones are left out. Raises Refusal, MetadataError."""
        metadata = self._manager.metadata
        wanted = sorted(set(names))
        for name in wanted:
            require(request.scope, Scope.CONSUME, name)
        if any(metadata.topic(name) is None for name in wanted):
            await metadata.refresh()
        return {name: topic for name in wanted if (topic := metadata.topic(name)) is not None}

    async def ensure_cached(self, topic_ids: Iterable[str]) -> None:
        """Refresh the cache if it lacks one of these topics."""
        snapshot = self._manager.metadata.snapshot
        if snapshot is None or any(id_ not in snapshot.topics_by_id for id_ in topic_ids):
            await self._manager.metadata.refresh()

    def require_access(self, request: Request, topic_ids: Iterable[str] = (), group: Group | None = None) -> None:
        """Require access to a group with these topics. Raises Refusal.

        The error does not name the topic: the caller may not know that it exists.
        """
        if not self.can_access(request, self.names_of(ListedGroup(group or Group(name=""), tuple(topic_ids)))):
            text = "the token lacks the scope consume on a topic of this group"
            raise Refusal("forbidden", text, scope=str(Scope.CONSUME))

    @staticmethod
    def can_access_all(request: Request) -> bool:
        """Return whether the caller can access every group."""
        return caller_of(request.scope).allows_all(Scope.ADMIN)

    def can_access(self, request: Request, names: Iterable[str]) -> bool:
        """Return whether the caller can access a group with these topics."""
        caller = caller_of(request.scope)
        return self.can_access_all(request) or all(caller.allows(Scope.CONSUME, name) for name in names)

    async def require(self, request: Request, names: Iterable[str]) -> dict[str, Topic]:
        """Find topics that must exist. Raises Refusal, MetadataError."""
        wanted = list(names)
        found = await self.find(request, wanted)
        for name in wanted:
            if name not in found:
                raise not_found("topic", f"topic '{name}' does not exist")
        return found

    async def require_partitions(self, request: Request, named: Sequence[PartitionBody]) -> list[PartitionId]:
        """Find partitions that must exist. Raises Refusal, MetadataError."""
        names = {one.topic for one in named}
        found = await self.find(request, names)
        if any(one.topic in found and not _has(found[one.topic], one) for one in named):
            await self._manager.metadata.refresh()  # partitions may have been added, or the topic created again
            found = await self.find(request, names)
        for one in named:
            if one.topic not in found or not _has(found[one.topic], one):
                which = "" if one.topic_id is None else f" with id {one.topic_id}"
                text = f"topic '{one.topic}'{which} does not exist or has no partition {one.partition}"
                raise Refusal("unknown_partition", text, topic=one.topic, partition=one.partition)
        return self.to_ids(found, named)

    @staticmethod
    def to_ids(found: dict[str, Topic], named: Sequence[PartitionBody]) -> list[PartitionId]:
        """Map names to ids; missing topics are left out."""
        return [
            PartitionId(found[one.topic].id, one.partition)
            for one in named
            if one.topic in found and _has(found[one.topic], one)
        ]

    def by_id(self, partitions: Iterable[PartitionId]) -> dict[str, Topic]:
        """Find the topics of partitions that are ready, by id."""
        found = (self._manager.metadata.topic_by_id(id_) for id_ in {tp.topic_id for tp in partitions})
        return {topic.id: topic for topic in found if topic is not None}

    def partitions_of(self, group: Group, committed: Iterable[PartitionId]) -> list[PartitionId]:
        """List the partitions of a group: of its members' topics, and those with a commit."""
        read = (topic for name in group.topics if (topic := self._manager.metadata.topic(name)) is not None)
        subscribed = {PartitionId(topic.id, at) for topic in read for at in range(len(topic.partitions))}
        everything = {*subscribed, *committed, *group.holdings}
        there = self.by_id(everything)
        return sorted(
            (tp for tp in everything if tp.topic_id in there),
            key=lambda tp: (there[tp.topic_id].name, tp.partition),
        )

    def names_of(self, listed: ListedGroup) -> list[str]:
        """List the names of a group's topics."""
        group = listed.group
        # Called by every access check, so it must not iterate over partitions.
        found = (
            self._manager.metadata.topic_by_id(id_)
            for id_ in {*listed.committed, *group.target_counts, *group.unsubscribed_topics}
        )
        return sorted({topic.name for topic in found if topic is not None} | group.topics)

    def named(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, NamedPartition]:
        """Map partitions to names, in their order; those of missing topics are left out."""
        return {
            tp: NamedPartition(topic=topic.name, partition=tp.partition)
            for tp in partitions
            if (topic := self._manager.metadata.topic_by_id(tp.topic_id)) is not None
        }

    def list_named(self, partitions: Iterable[PartitionId]) -> list[NamedPartition]:
        """List the names of partitions, in their order; those of missing topics are left out."""
        return list(self.named(partitions).values())

    def describe(self, answer: AssignmentResponse) -> MemberAssignment:
        """Describe the assignment of a member."""
        assigned, revoked = answer.assignment.assigned, answer.assignment.revoked
        return MemberAssignment.of(
            answer,
            self.list_named(assigned),
            self.list_named(revoked),
            {topic.name: topic.id for topic in self.by_id((*assigned, *revoked)).values()},
        )


def _has(topic: Topic, partition: PartitionBody) -> bool:
    return partition.is_of(topic.id, len(topic.partitions))
