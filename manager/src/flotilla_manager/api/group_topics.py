"""Topics of consumer groups: names of requests to ids and back, with access checks.

A caller needs the scope consume on every topic that it names, and on every topic of a group that it reads. A caller
with admin on all topics sees every group. Access is checked before existence.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import Request

from flotilla.access import Scope
from flotilla.groups.offsets import ListedGroup
from flotilla.groups.responses import AssignmentResponse
from flotilla.groups.state import Group, PartitionId
from flotilla.protocol.errors import Refusal, not_found
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

    async def know(self, topic_ids: Iterable[str]) -> None:
        """Refresh the cache if it lacks one of these topics."""
        snapshot = self._manager.metadata.snapshot
        if snapshot is None or any(id_ not in snapshot.topics_by_id for id_ in topic_ids):
            await self._manager.metadata.refresh()

    def see(self, request: Request, topic_ids: Iterable[str] = (), group: Group | None = None) -> None:
        """Require access to a group with these topics. Raises Refusal.

        The error does not name the topic: the caller may not know that it exists.
        """
        if not self.may_see(request, self.names_of(ListedGroup(group or Group(name=""), tuple(topic_ids)))):
            text = "the token lacks the scope consume on a topic of this group"
            raise Refusal("forbidden", text, scope=str(Scope.CONSUME))

    @staticmethod
    def may_see_all(request: Request) -> bool:
        """Return whether the caller may see every group."""
        return caller_of(request.scope).allows_all(Scope.ADMIN)

    def may_see(self, request: Request, names: Iterable[str]) -> bool:
        """Return whether the caller may see a group with these topics."""
        caller = caller_of(request.scope)
        return self.may_see_all(request) or all(caller.allows(Scope.CONSUME, name) for name in names)

    async def require(self, request: Request, names: Iterable[str]) -> dict[str, Topic]:
        """Find topics that must exist. Raises Refusal, MetadataError."""
        wanted = list(names)
        found = await self.find(request, wanted)
        for name in wanted:
            if name not in found:
                raise not_found("topic", f"topic '{name}' does not exist")
        return found

    async def require_places(self, request: Request, named: Sequence[PartitionBody]) -> list[PartitionId]:
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
        return self.places(found, named)

    @staticmethod
    def places(found: dict[str, Topic], named: Sequence[PartitionBody]) -> list[PartitionId]:
        """Map names to ids; missing topics are left out."""
        return [
            PartitionId(found[one.topic].id, one.partition)
            for one in named
            if one.topic in found and _has(found[one.topic], one)
        ]

    def by_id(self, places: Iterable[PartitionId]) -> dict[str, Topic]:
        """Find the topics of partitions that are ready, by id."""
        found = (self._manager.metadata.topic_by_id(id_) for id_ in {place.topic_id for place in places})
        return {topic.id: topic for topic in found if topic is not None}

    def concerned(self, group: Group, committed: Iterable[PartitionId]) -> list[PartitionId]:
        """List the partitions of a group: of its members' topics, and those with a commit."""
        read = (topic for name in group.topics if (topic := self._manager.metadata.topic(name)) is not None)
        subscribed = {PartitionId(topic.id, at) for topic in read for at in range(len(topic.partitions))}
        everything = {*subscribed, *committed, *group.holdings}
        there = self.by_id(everything)
        return sorted(
            (place for place in everything if place.topic_id in there),
            key=lambda place: (there[place.topic_id].name, place.partition),
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

    def named(self, place: PartitionId) -> dict[str, Any] | None:
        """Describe a partition; None if its topic does not exist."""
        topic = self._manager.metadata.topic_by_id(place.topic_id)
        return None if topic is None else {"topic": topic.name, "partition": place.partition}

    def all_named(self, places: Iterable[PartitionId]) -> list[dict[str, Any]]:
        """Describe partitions; those of missing topics are left out."""
        return [named for place in places if (named := self.named(place)) is not None]

    def describe(self, answer: AssignmentResponse) -> dict[str, Any]:
        """Encode the assignment of a member."""
        return {
            "member_id": answer.member.id,
            "generation": answer.assignment.generation,
            "timeout_ms": answer.member.timeout_ms,
            "heartbeat_ms": answer.heartbeat_ms,
            "assigned": self.all_named(answer.assignment.assigned),
            "revoked": self.all_named(answer.assignment.revoked),
            "pending": answer.assignment.pending,
            "state": answer.state,
            "topic_ids": {
                topic.name: topic.id
                for topic in self.by_id((*answer.assignment.assigned, *answer.assignment.revoked)).values()
            },
        }


def _has(topic: Topic, partition: PartitionBody) -> bool:
    return partition.is_of(topic.id, len(topic.partitions))
