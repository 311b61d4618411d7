"""In-memory managers with one consumer group, decided by the real rules, and an engine for clients."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from flotilla.client.cluster import TopicInfo
from flotilla.client.config import ClientConfig
from flotilla.client.errors import MemberGone, Refused, ServerUnreachable
from flotilla.groups import membership
from flotilla.groups.membership import GroupError, UnknownMember
from flotilla.groups.state import Group, GroupTopic, PartitionId, Strategy
from support.fakepartition import FakeRouter, topic_of


@dataclass
class FakeManagers:
    """Responds like managers. `unreachable` has calls without a response; `received` has the received calls."""

    topic: TopicInfo
    group: Group = field(default_factory=lambda: Group(name="g"))
    commits: dict[PartitionId, int] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    received: list[str] = field(default_factory=list)
    heartbeat_ms: int = 20

    async def call(self, method: str, target: str, body: Any = None, *, timeout_s: float) -> Any:  # noqa: ANN401 - any JSON
        """Respond to a call about the group."""
        what = target.rpartition("/")[2]
        assert (method, target) == ("GET" if what == "offsets" else "POST", f"/v1/groups/g/{what}")
        await asyncio.sleep(0)
        if what in self.unreachable:
            await asyncio.sleep(min(0.02, timeout_s))
            raise ServerUnreachable("connection refused")
        self.received.append(what)
        try:
            return getattr(self, f"_{what}")(**(body or {}))
        except GroupError as error:
            code = "unknown_member" if isinstance(error, UnknownMember) else "stale_generation"
            raise MemberGone(str(error), code, {}) from error

    def remove(self, member_id: str) -> None:
        """Expire a member."""
        self.group = membership.remove(self.group, {member_id}, self._topology)

    @property
    def _topology(self) -> dict[str, GroupTopic]:
        return {"t": GroupTopic(self.topic.id, len(self.topic.partitions))}

    def _join(self, member_id: str, topics: Collection[str], timeout_ms: int, strategy: str) -> Any:  # noqa: ANN401
        self.group = membership.join(self.group, member_id, topics, timeout_ms, Strategy(strategy), self._topology)
        return self._assignment_response(member_id)

    def _sync(self, member_id: str, generation: int, owned: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - any JSON
        partitions = [PartitionId(one["topic_id"], one["partition"]) for one in owned]
        self.group = membership.sync(self.group, member_id, generation, partitions)
        return self._assignment_response(member_id)

    def _heartbeat(self, member_id: str, generation: int, held: int) -> Any:  # noqa: ANN401 - any JSON
        membership.check(self.group, member_id, generation)
        sync = membership.should_sync(self.group, member_id, generation=generation, held=held)
        return {"generation": self.group.generation, "heartbeat_ms": self.heartbeat_ms, "sync": sync}

    def _leave(self, member_id: str, generation: int) -> Any:  # noqa: ANN401 - any JSON
        self.group = membership.leave(self.group, member_id, generation, self._topology)

    def _commit(self, offsets: list[dict[str, Any]], member_id: str, generation: int) -> Any:  # noqa: ANN401 - any JSON
        rows = {PartitionId(one["topic_id"], one["partition"]): one["offset"] for one in offsets}
        group, member = self.group, self.group.members.get(member_id)
        refused = membership.find_not_owned(member, generation, group.generation, group.holdings, rows)
        if refused:
            raise Refused("not the owner", "not_owner", {"partitions": [_named(tp) for tp in refused]})
        self.commits.update(rows)

    def _offsets(self) -> Any:  # noqa: ANN401 - any JSON
        return {"offsets": [{**_named(tp), "offset": offset} for tp, offset in self.commits.items()]}

    def _assignment_response(self, member_id: str) -> Any:  # noqa: ANN401 - any JSON
        assignment = membership.assignment_of(self.group, member_id)
        return {
            "generation": assignment.generation,
            "heartbeat_ms": self.heartbeat_ms,
            "assigned": [_named(tp) for tp in assignment.assigned],
            "revoked": [_named(tp) for tp in assignment.revoked],
            "topic_ids": {"t": self.topic.id},
        }


def _named(tp: PartitionId) -> dict[str, Any]:
    return {"topic": "t", "partition": tp.partition}


class FakeEngine:
    """The engine methods that a consumer needs."""

    def __init__(self, router: FakeRouter) -> None:
        self.router = router
        self.config = ClientConfig(urls=("http://127.0.0.1:1",), request_s=1.0)
        self.clock = asyncio.get_running_loop().time
        self.managers = FakeManagers(topic_of(router))
        self.cluster = self

    async def find(self, name: str) -> TopicInfo:
        """Return the topic."""
        assert name == "t"
        return self.managers.topic

    refresh = find
