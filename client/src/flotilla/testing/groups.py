"""`/v1/groups` of the fake: translates JSON to calls of the coordinator, and results to JSON."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from flotilla.groups.offsets import Commit, OffsetBounds, ResetKind, ResetTo, reset_offset
from flotilla.groups.responses import AssignmentResponse
from flotilla.groups.state import Group, PartitionId
from flotilla.limits import GROUPS_PAGE_DEFAULT, GROUPS_PAGE_MAX
from flotilla.protocol.asgi import number, parse_query
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.group_responses import (
    CommittedOffset,
    CommittedOffsets,
    GroupPartitionResponse,
    GroupResponse,
    GroupsPage,
    ListedGroupResponse,
    MemberAssignment,
    MemberHeartbeat,
    MemberResponse,
    NamedPartition,
    ResetResponse,
    not_owner,
)
from flotilla.protocol.groups import (
    CommitBody,
    GroupName,
    HeartbeatBody,
    JoinBody,
    MemberBody,
    PartitionBody,
    ResetBody,
    SyncBody,
)
from flotilla.testing.coordinator import Coordinator
from flotilla.testing.http import Request
from flotilla.testing.routing import PathParams, Result, Routes, read_as
from flotilla.testing.state import ClusterState, Topic

_FORCE = {**dict.fromkeys(("true", "1", "yes", "on"), True), **dict.fromkeys(("false", "0", "no", "off"), False)}


class GroupsApi:
    """Handlers of requests about consumer groups."""

    def __init__(self, state: ClusterState, coordinator: Coordinator, now_ms: Callable[[], int]) -> None:
        self._state = state
        self._coordinator = coordinator
        self._now_ms = now_ms

    @property
    def routes(self) -> Routes:
        """The routes."""
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

    def join(self, request: Request, path_params: PathParams) -> Result:
        """Join a group."""
        body = read_as(JoinBody, request)
        self._require_topics(body.topics)
        name = _name(path_params)
        return self._describe_assignment(
            self._coordinator.join(name, body.member_id, body.topics, body.timeout_ms, body.strategy)
        )

    def sync(self, request: Request, path_params: PathParams) -> Result:
        """Report owned partitions; return the assignment."""
        body = read_as(SyncBody, request)
        topics = self._state.topics
        owned = [
            PartitionId(topic.id, one.partition)
            for one in body.owned
            if (topic := topics.get(one.topic)) is not None and one.is_of(topic.id, len(topic.partitions))
        ]
        return self._describe_assignment(
            self._coordinator.sync(_name(path_params), body.member_id, body.generation, owned)
        )

    def heartbeat(self, request: Request, path_params: PathParams) -> Result:
        """Renew the session of a member."""
        body = read_as(HeartbeatBody, request)
        response = self._coordinator.heartbeat(_name(path_params), body.member_id, body.generation, body.held)
        return MemberHeartbeat.of(response).to_dict()

    def leave(self, request: Request, path_params: PathParams) -> Result:
        """Leave a group."""
        body = read_as(MemberBody, request)
        self._coordinator.leave(_name(path_params), body.member_id, body.generation)
        return {"status": "ok"}

    # -- commits ------------------------------------------------------------------------------------------

    def commit(self, request: Request, path_params: PathParams) -> Result:
        """Commit offsets: all of them, or none."""
        body = read_as(CommitBody, request)
        member = body.member
        partitions, now_ms = self._require_partitions(body.offsets), self._now_ms()
        commits = [
            Commit(tp=tp, offset=one.offset, note=one.note, committed_ms=now_ms)
            for tp, one in zip(partitions, body.offsets, strict=True)
        ]
        refused = self._coordinator.commit(_name(path_params), commits, member)
        if refused and member is not None:
            raise not_owner(*member, self._list_named(refused))
        return {"status": "ok"}

    def offsets(self, request: Request, path_params: PathParams) -> Result:
        """Return the committed offsets of a group, in one topic or in all."""
        name, topic = _name(path_params), parse_query(request.query).get("topic")
        wanted = None if topic is None else self._require_topics([topic])[topic].id
        self._coordinator.require(name)
        commits = self._coordinator.commits_of(name)
        named = self._named(tp for tp in commits if wanted in {None, tp.topic_id})
        found = [CommittedOffset.of(one, commits[tp]) for tp, one in named.items()]
        return CommittedOffsets(offsets=found).to_dict()

    def reset(self, request: Request, path_params: PathParams) -> Result:
        """Reset committed offsets."""
        body, name = read_as(ResetBody, request), _name(path_params)
        to = body.to.reset_to
        if body.topics is None and body.partitions is None:
            self._coordinator.require(name)
        committed = self._coordinator.commits_of(name)
        old = {at: committed[at].offset if at in committed else None for at in self._partitions_to_reset(name, body)}
        new = {at: reset_offset(to, old[at], self._bounds(at), self._at_time(to, at)) for at in old}
        if not body.dry_run:
            now_ms = self._now_ms()
            commits = [Commit(tp=at, offset=offset, committed_ms=now_ms) for at, offset in new.items()]
            self._coordinator.reset(name, commits, force=body.force)
        return ResetResponse.of(self._named(old), old, new, dry_run=body.dry_run).to_dict()

    def _partitions_to_reset(self, name: str, body: ResetBody) -> list[PartitionId]:
        if body.partitions is not None:
            return sorted(set(self._require_partitions(body.partitions)))
        if body.topics is None:
            return self._partitions_of(self._coordinator.require(name))
        found = self._require_topics(body.topics)
        return sorted({PartitionId(topic.id, at) for topic in found.values() for at in range(len(topic.partitions))})

    # -- administration -----------------------------------------------------------------------------------

    def list_groups(self, request: Request, _: PathParams) -> Result:
        """List groups, sorted by name."""
        query = parse_query(request.query)
        limit = number(query, "limit", GROUPS_PAGE_DEFAULT)
        if not 1 <= limit <= GROUPS_PAGE_MAX:
            raise Refusal("bad_request", f"limit is {limit}; it must be from 1 to {GROUPS_PAGE_MAX}")
        names = [name for name in self._coordinator.names if name > query.get("after", "")]
        shown = names[:limit]
        return GroupsPage(
            groups=[self._list(self._coordinator.require(name)) for name in shown],
            next=shown[-1] if len(shown) == limit else None,
        ).to_dict()

    def _list(self, group: Group) -> ListedGroupResponse:
        ids = {tp.topic_id for tp in (*group.holdings, *self._coordinator.commits_of(group.name))}
        committed = {topic.name for id_ in ids if (topic := self._state.by_id(id_)) is not None}
        return ListedGroupResponse.of(group, sorted(committed | group.topics))

    def describe(self, _: Request, path_params: PathParams) -> Result:
        """Describe a group."""
        group = self._coordinator.require(_name(path_params))
        commits = self._coordinator.commits_of(group.name)
        return GroupResponse.of(
            group,
            (
                MemberResponse.of(member, self._list_named(sorted(group.owned_by(member.id))))
                for member in group.members.values()
            ),
            (
                GroupPartitionResponse.of(one, group.owner_of(tp), commits.get(tp), self._bounds(tp))
                for tp, one in self._named(self._partitions_of(group)).items()
            ),
        ).to_dict()

    def delete(self, request: Request, path_params: PathParams) -> Result:
        """Delete a group and its committed offsets."""
        force = parse_query(request.query).get("force", "false").lower()
        if force not in _FORCE:
            raise Refusal("bad_request", f"force is {force[:40]!r}; it must be true or false")
        self._coordinator.delete(_name(path_params), force=_FORCE[force])
        return {"status": "ok"}

    # -- names and ids ------------------------------------------------------------------------------------

    def _require_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        found = {}
        for name in names:
            if name not in self._state.topics:
                raise not_found("topic", f"topic '{name}' does not exist")
            found[name] = self._state.topics[name]
        return found

    def _require_partitions(self, named: Sequence[PartitionBody]) -> list[PartitionId]:
        found = []
        for one in named:
            topic = self._state.topics.get(one.topic)
            if topic is None or not one.is_of(topic.id, len(topic.partitions)):
                which = "" if one.topic_id is None else f" with id {one.topic_id}"
                text = f"topic '{one.topic}'{which} does not exist or has no partition {one.partition}"
                raise Refusal("unknown_partition", text, topic=one.topic, partition=one.partition)
            found.append(PartitionId(topic.id, one.partition))
        return found

    def _partitions_of(self, group: Group) -> list[PartitionId]:
        """List the partitions of a group: of its members' topics, and those with a committed offset."""
        read = (topic for name in group.topics if (topic := self._state.topics.get(name)) is not None)
        subscribed = {PartitionId(topic.id, at) for topic in read for at in range(len(topic.partitions))}
        everything = {*subscribed, *self._coordinator.commits_of(group.name), *group.holdings}
        names = {topic.id: name for name, topic in self._state.topics.items()}
        existing = (tp for tp in everything if tp.topic_id in names)
        return sorted(existing, key=lambda tp: (names[tp.topic_id], tp.partition))

    def _bounds(self, tp: PartitionId) -> OffsetBounds:
        topic = self._state.by_id(tp.topic_id)
        if topic is None:
            raise Refusal("unknown_partition", "a topic was deleted during the request")
        partition = topic.partitions[tp.partition]
        return OffsetBounds(partition.first_offset, partition.next_offset)

    def _at_time(self, to: ResetTo, tp: PartitionId) -> int | None:
        topic = self._state.by_id(tp.topic_id)
        if topic is None or to.kind is not ResetKind.TIMESTAMP:
            return None
        return topic.partitions[tp.partition].offset_at_time(to.value)

    def _named(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, NamedPartition]:
        """Map partitions to names, in their order; those of missing topics are left out."""
        return {
            tp: NamedPartition(topic=topic.name, partition=tp.partition)
            for tp in partitions
            if (topic := self._state.by_id(tp.topic_id)) is not None
        }

    def _list_named(self, partitions: Iterable[PartitionId]) -> list[NamedPartition]:
        return list(self._named(partitions).values())

    def _describe_assignment(self, response: AssignmentResponse) -> dict[str, Any]:
        assigned, revoked = response.assignment.assigned, response.assignment.revoked
        ids = {tp.topic_id for tp in (*assigned, *revoked)}
        return MemberAssignment.of(
            response,
            self._list_named(assigned),
            self._list_named(revoked),
            {topic.name: id_ for id_ in ids if (topic := self._state.by_id(id_)) is not None},
        ).to_dict()


def _name(path_params: PathParams) -> str:
    """Read the name of a group. Raises Refusal."""
    try:
        return msgspec.convert(path_params["name"], GroupName)
    except msgspec.ValidationError as error:
        raise Refusal("bad_request", f"path.name: {error}") from error
