"""Topics of consumer groups, from the names that requests use to ids and back, for those who may use them.

Whoever names a topic, or looks at a group that has to do with it, needs the scope to consume it; whoever may administer
everything sees every group. That is asked before anybody looks whether the topic is there.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import Request

from flotilla.access import Scope
from flotilla.groups.offsets import Listed
from flotilla.groups.state import Group, Place
from flotilla.groups.telling import Answer
from flotilla.serving.errors import Refusal
from flotilla.serving.gate import caller_of, require
from flotilla_manager.api.group_shapes import PlaceBody
from flotilla_manager.manager import Manager
from flotilla_manager.model import Topic


class GroupTopics:
    """Topics, from the names that requests use to ids and back."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def find(self, request: Request, names: Iterable[str]) -> dict[str, Topic]:
        """Find the topics that somebody names; those that are not there are left out. Raises Refusal, MetadataError."""
        view = self._manager.view
        wanted = sorted(set(names))
        for name in wanted:
            require(request.scope, Scope.CONSUME, name)
        if any(view.topic(name) is None for name in wanted):
            await view.refresh()
        return {name: topic for name in wanted if (topic := view.topic(name)) is not None}

    async def know(self, topic_ids: Iterable[str]) -> None:
        """Look for topics that are not known here yet, because another manager has heard of them first."""
        snapshot = self._manager.view.snapshot
        if snapshot is None or any(id_ not in snapshot.topics_by_id for id_ in topic_ids):
            await self._manager.view.refresh()

    def see(self, request: Request, topic_ids: Iterable[str] = (), group: Group | None = None) -> None:
        """Let somebody see a group that has to do with these topics. Raises Refusal.

        Which topics they lack is not said: they have not named them, and may not even know that there are such.
        """
        if not self.may_see(request, self.names_of(Listed(group or Group(name=""), tuple(topic_ids)))):
            text = "the scope consume on a topic of this group is missing"
            raise Refusal("forbidden", text, scope=str(Scope.CONSUME))

    @staticmethod
    def may_see_all(request: Request) -> bool:
        """Tell whether somebody may see every group."""
        return caller_of(request.scope).allows_all(Scope.ADMIN)

    def may_see(self, request: Request, names: Iterable[str]) -> bool:
        """Tell whether somebody may see a group that has to do with these topics."""
        caller = caller_of(request.scope)
        return self.may_see_all(request) or all(caller.allows(Scope.CONSUME, name) for name in names)

    async def require(self, request: Request, names: Iterable[str]) -> dict[str, Topic]:
        """Find topics that have to be there. Raises Refusal, MetadataError."""
        wanted = list(names)
        found = await self.find(request, wanted)
        for name in wanted:
            if name not in found:
                raise Refusal("not_found", f"there is no topic '{name}'")
        return found

    async def require_places(self, request: Request, named: Sequence[PlaceBody]) -> list[Place]:
        """Find partitions that have to be there. Raises Refusal, MetadataError."""
        names = {one.topic for one in named}
        found = await self.find(request, names)
        if any(one.topic in found and not one.is_of(found[one.topic]) for one in named):
            await self._manager.view.refresh()  # it may have grown, or been made again, just now
            found = await self.find(request, names)
        for one in named:
            if one.topic not in found or not one.is_of(found[one.topic]):
                which = "" if one.topic_id is None else f" with the id {one.topic_id}"
                text = f"there is no partition {one.partition} of a topic '{one.topic}'{which}"
                raise Refusal("unknown_partition", text, topic=one.topic, partition=one.partition)
        return self.places(found, named)

    @staticmethod
    def places(found: dict[str, Topic], named: Sequence[PlaceBody]) -> list[Place]:
        """Turn names into ids, where the topic is there."""
        return [
            Place(found[one.topic].id, one.partition)
            for one in named
            if one.topic in found and one.is_of(found[one.topic])
        ]

    def by_id(self, places: Iterable[Place]) -> dict[str, Topic]:
        """Find the topics of partitions, as far as they can be used."""
        found = (self._manager.view.topic_by_id(id_) for id_ in {place.topic_id for place in places})
        return {topic.id: topic for topic in found if topic is not None}

    def concerned(self, group: Group, committed: Iterable[Place]) -> list[Place]:
        """List the partitions that a group has to do with: of its members' topics, and those with a commit."""
        read = (topic for name in group.topics if (topic := self._manager.view.topic(name)) is not None)
        subscribed = {Place(topic.id, at) for topic in read for at in range(len(topic.partitions))}
        everything = {*subscribed, *committed, *group.holdings}
        there = self.by_id(everything)
        return sorted(
            (place for place in everything if place.topic_id in there),
            key=lambda place: (there[place.topic_id].name, place.partition),
        )

    def names_of(self, listed: Listed) -> list[str]:
        """Name the topics that a group has to do with."""
        group = listed.group
        # Who acts in a group is checked against this each time, so it must not look at every partition of it.
        found = (self._manager.view.topic_by_id(id_) for id_ in {*listed.committed, *group.dealt, *group.unwanted})
        return sorted({topic.name for topic in found if topic is not None} | group.topics)

    def named(self, place: Place) -> dict[str, Any] | None:
        """Name a partition; None if its topic is gone."""
        topic = self._manager.view.topic_by_id(place.topic_id)
        return None if topic is None else {"topic": topic.name, "partition": place.partition}

    def all_named(self, places: Iterable[Place]) -> list[dict[str, Any]]:
        """Name partitions, but for those whose topic is gone."""
        return [named for place in places if (named := self.named(place)) is not None]

    def describe(self, answer: Answer) -> dict[str, Any]:
        """Tell a member what it has, and what it has to let go of."""
        return {
            "member_id": answer.member.id,
            "generation": answer.told.generation,
            "timeout_ms": answer.member.timeout_ms,
            "heartbeat_ms": answer.heartbeat_ms,
            "assigned": self.all_named(answer.told.assigned),
            "revoked": self.all_named(answer.told.revoked),
            "pending": answer.told.pending,
            "state": answer.state,
            "topic_ids": {
                topic.name: topic.id for topic in self.by_id((*answer.told.assigned, *answer.told.revoked)).values()
            },
        }
