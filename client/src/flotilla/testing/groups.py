"""Calls about consumer groups, `/v1/groups`: from JSON to what the coordinator understands, and back."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from flotilla.groups.offsets import Bounds, Commit, ResetKind, ResetTo, lag, reset_offset
from flotilla.groups.state import Group, Place
from flotilla.groups.telling import Answer, state_of
from flotilla.serving.asgi import number, parse_query
from flotilla.serving.errors import Refusal
from flotilla.testing.calls import Filled, Table, Told, read_as
from flotilla.testing.coordinator import Coordinator, not_owner
from flotilla.testing.group_shapes import (
    CommitBody,
    HeartbeatBody,
    JoinBody,
    MemberBody,
    Name,
    PlaceBody,
    ResetBody,
    SyncBody,
    read_target,
)
from flotilla.testing.http import Request
from flotilla.testing.world import Topic, World

_LIMIT = 100
_LIMIT_MAX = 1000
_FORCE = {**dict.fromkeys(("true", "1", "yes", "on"), True), **dict.fromkeys(("false", "0", "no", "off"), False)}


class Groups:
    """Answers about groups."""

    def __init__(self, world: World, coordinator: Coordinator, now_ms: Callable[[], int]) -> None:
        self._world = world
        self._coordinator = coordinator
        self._now_ms = now_ms

    @property
    def table(self) -> Table:
        """The calls."""
        group = "/v1/groups/{name}"
        return {
            ("GET", "/v1/groups"): self.list_groups,
            ("GET", group): self.describe,
            ("DELETE", group): self.delete,
            ("POST", f"{group}/join"): self.join,
            ("POST", f"{group}/sync"): self.sync,
            ("POST", f"{group}/heartbeat"): self.heartbeat,
            ("POST", f"{group}/leave"): self.leave,
            ("POST", f"{group}/commit"): self.commit,
            ("GET", f"{group}/offsets"): self.offsets,
            ("POST", f"{group}/reset"): self.reset,
        }

    # -- members ------------------------------------------------------------------------------------------

    def join(self, request: Request, filled: Filled) -> Told:
        """Take part in a group."""
        body = read_as(JoinBody, request)
        self._require_topics(body.topics)
        name = _name(filled)
        return self._tell(self._coordinator.join(name, body.member_id, body.topics, body.timeout_ms, body.strategy))

    def sync(self, request: Request, filled: Filled) -> Told:
        """Say what one has, and hear what one should have."""
        body = read_as(SyncBody, request)
        topics = self._world.topics
        owned = [
            Place(topic.id, one.partition)
            for one in body.owned
            if (topic := topics.get(one.topic)) is not None and one.is_of(topic)
        ]
        return self._tell(self._coordinator.sync(_name(filled), body.member_id, body.generation, owned))

    def heartbeat(self, request: Request, filled: Filled) -> Told:
        """Show that one lives."""
        body = read_as(HeartbeatBody, request)
        beaten = self._coordinator.heartbeat(_name(filled), body.member_id, body.generation, body.held)
        return {
            "generation": beaten.generation,
            "state": beaten.state,
            "heartbeat_ms": beaten.heartbeat_ms,
            "sync": beaten.should_sync,
        }

    def leave(self, request: Request, filled: Filled) -> Told:
        """Give everything up."""
        body = read_as(MemberBody, request)
        self._coordinator.leave(_name(filled), body.member_id, body.generation)
        return {"status": "ok"}

    # -- commits ------------------------------------------------------------------------------------------

    def commit(self, request: Request, filled: Filled) -> Told:
        """Say how far one has come: all of it is noted, or nothing."""
        body = read_as(CommitBody, request)
        if (body.member_id is None) != (body.generation is None):
            text = "member_id and generation belong together: send both, or none for a group without members"
            raise Refusal("bad_request", text)
        member = None if body.member_id is None or body.generation is None else (body.member_id, body.generation)
        places, now_ms = self._require_places(body.offsets), self._now_ms()
        commits = [
            Commit(place=place, offset=one.offset, note=one.note, committed_ms=now_ms)
            for place, one in zip(places, body.offsets, strict=True)
        ]
        refused = self._coordinator.commit(_name(filled), commits, member)
        if refused:
            raise not_owner(refused, self._all_named(refused))
        return {"status": "ok"}

    def offsets(self, request: Request, filled: Filled) -> Told:
        """How far a group has come, in one topic or in all."""
        name, topic = _name(filled), parse_query(request.query).get("topic")
        wanted = None if topic is None else self._require_topics([topic])[topic].id
        self._coordinator.require(name)
        return {
            "offsets": [
                {**named, "offset": one.offset, "note": one.note, "committed_ms": one.committed_ms}
                for one in self._coordinator.commits_of(name).values()
                if wanted in {None, one.place.topic_id} and (named := self._named(one.place)) is not None
            ]
        }

    def reset(self, request: Request, filled: Filled) -> Told:
        """Have a group go on elsewhere."""
        body, name = read_as(ResetBody, request), _name(filled)
        to = read_target(body)
        if body.topics is None and body.partitions is None:
            self._coordinator.require(name)
        committed = self._coordinator.commits_of(name)
        old = {at: committed[at].offset if at in committed else None for at in self._places_to_reset(name, body)}
        new = {at: reset_offset(to, old[at], self._bounds(at), self._at_time(to, at)) for at in old}
        if not body.dry_run:
            now_ms = self._now_ms()
            commits = [Commit(place=at, offset=offset, committed_ms=now_ms) for at, offset in new.items()]
            self._coordinator.reset(name, commits, force=body.force)
        told = [{**(self._named(at) or {}), "old_offset": old[at], "new_offset": new[at]} for at in old]
        return {"dry_run": body.dry_run, "partitions": told}

    def _places_to_reset(self, name: str, body: ResetBody) -> list[Place]:
        if body.partitions is not None:
            return sorted(set(self._require_places(body.partitions)))
        if body.topics is None:
            return self._concerned(self._coordinator.require(name))
        found = self._require_topics(body.topics)
        return sorted({Place(topic.id, at) for topic in found.values() for at in range(len(topic.partitions))})

    # -- what there is ------------------------------------------------------------------------------------

    def list_groups(self, request: Request, _: Filled) -> Told:
        """Groups in the order of their names."""
        query = parse_query(request.query)
        limit = number(query, "limit", _LIMIT)
        if not 1 <= limit <= _LIMIT_MAX:
            raise Refusal("bad_request", f"limit is {limit}; it must be from 1 to {_LIMIT_MAX}")
        names = [name for name in self._coordinator.names if name > query.get("after", "")]
        shown = names[:limit]
        return {
            "groups": [self._list(self._coordinator.require(name)) for name in shown],
            "next": shown[-1] if len(shown) == limit else None,
        }

    def _list(self, group: Group) -> dict[str, Any]:
        ids = {place.topic_id for place in (*group.holdings, *self._coordinator.commits_of(group.name))}
        committed = {topic.name for id_ in ids if (topic := self._world.by_id(id_)) is not None}
        return {
            "name": group.name,
            "state": state_of(group),
            "strategy": group.strategy,
            "generation": group.generation,
            "members": len(group.members),
            "topics": sorted(committed | group.topics),
        }

    def describe(self, _: Request, filled: Filled) -> Told:
        """Everything about a group."""
        group = self._coordinator.require(_name(filled))
        commits = self._coordinator.commits_of(group.name)
        return {
            "name": group.name,
            "state": state_of(group),
            "strategy": group.strategy,
            "generation": group.generation,
            "members": [
                {
                    "member_id": member.id,
                    "topics": list(member.topics),
                    "timeout_ms": member.timeout_ms,
                    "generation": member.synced,
                    "assigned": self._all_named(sorted(group.owned_by(member.id))),
                }
                for _, member in sorted(group.members.items())
            ],
            "partitions": [self._describe(group, at, commits.get(at)) for at in self._concerned(group)],
        }

    def _describe(self, group: Group, place: Place, commit: Commit | None) -> dict[str, Any]:
        holding, bounds = group.holdings.get(place), self._bounds(place)
        return {
            **(self._named(place) or {}),
            "owner": None if holding is None else holding.owner,
            "committed": None if commit is None else commit.offset,
            "note": None if commit is None else commit.note,
            "first_offset": bounds.first,
            "next_offset": bounds.next,
            "lag": lag(None if commit is None else commit.offset, bounds),
        }

    def delete(self, request: Request, filled: Filled) -> Told:
        """Remove a group and its commits."""
        force = parse_query(request.query).get("force", "false").lower()
        if force not in _FORCE:
            raise Refusal("bad_request", f"force is {force[:40]!r}; it must be true or false")
        self._coordinator.delete(_name(filled), force=_FORCE[force])
        return {"status": "ok"}

    # -- from names to ids, and back ----------------------------------------------------------------------

    def _require_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        found = {}
        for name in names:
            if name not in self._world.topics:
                raise Refusal("not_found", f"there is no topic '{name}'")
            found[name] = self._world.topics[name]
        return found

    def _require_places(self, named: Sequence[PlaceBody]) -> list[Place]:
        places = []
        for one in named:
            topic = self._world.topics.get(one.topic)
            if topic is None or not one.is_of(topic):
                which = "" if one.topic_id is None else f" with the id {one.topic_id}"
                text = f"there is no partition {one.partition} of a topic '{one.topic}'{which}"
                raise Refusal("unknown_partition", text, topic=one.topic, partition=one.partition)
            places.append(Place(topic.id, one.partition))
        return places

    def _concerned(self, group: Group) -> list[Place]:
        """List the partitions that a group has to do with: of its members' topics, and those with a commit."""
        read = (topic for name in group.topics if (topic := self._world.topics.get(name)) is not None)
        subscribed = {Place(topic.id, at) for topic in read for at in range(len(topic.partitions))}
        everything = {*subscribed, *self._coordinator.commits_of(group.name), *group.holdings}
        there = {topic.id: name for name, topic in self._world.topics.items()}
        known = (place for place in everything if place.topic_id in there)
        return sorted(known, key=lambda place: (there[place.topic_id], place.partition))

    def _bounds(self, place: Place) -> Bounds:
        topic = self._world.by_id(place.topic_id)
        if topic is None:
            raise Refusal("unknown_partition", "a topic was removed just now")
        partition = topic.partitions[place.partition]
        return Bounds(partition.first_offset, partition.next_offset)

    def _at_time(self, to: ResetTo, place: Place) -> int | None:
        topic = self._world.by_id(place.topic_id)
        if topic is None or to.kind is not ResetKind.TIMESTAMP:
            return None
        return topic.partitions[place.partition].offset_at_time(to.value)

    def _named(self, place: Place) -> dict[str, Any] | None:
        topic = self._world.by_id(place.topic_id)
        return None if topic is None else {"topic": topic.name, "partition": place.partition}

    def _all_named(self, places: Iterable[Place]) -> list[dict[str, Any]]:
        return [named for place in places if (named := self._named(place)) is not None]

    def _tell(self, answer: Answer) -> dict[str, Any]:
        told = answer.told
        ids = {place.topic_id for place in (*told.assigned, *told.revoked)}
        return {
            "member_id": answer.member.id,
            "generation": told.generation,
            "timeout_ms": answer.member.timeout_ms,
            "heartbeat_ms": answer.heartbeat_ms,
            "assigned": self._all_named(told.assigned),
            "revoked": self._all_named(told.revoked),
            "pending": told.pending,
            "state": answer.state,
            "topic_ids": {topic.name: id_ for id_ in ids if (topic := self._world.by_id(id_)) is not None},
        }


def _name(filled: Filled) -> str:
    """Read the name of a group. Raises Refusal."""
    try:
        return msgspec.convert(filled["name"], Name)
    except msgspec.ValidationError as error:
        raise Refusal("bad_request", f"path.name: {error}") from error
