"""Finds the replica for a request."""

from collections.abc import Callable
from typing import Any

from flotilla.access import Scope as Permission
from flotilla.protocol.errors import Refusal
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import NotLeader
from flotilla_broker.server import Broker
from flotilla_server.authorization import missing_scope
from flotilla_server.callers import Caller

BY_ID = "id:"


class Lookup:
    """Finds replicas by topic and partition, in the newest partition epoch.

    A topic is given by name, or by `id:` and its id, which never refers to a later topic with the same name.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def replica(self, topic: str, index: int) -> Partition:
        """Return the replica on this broker, in any role."""
        if self._broker.is_stopping:
            raise Refusal("closed", "this broker is shutting down; use another replica")
        partition = self._broker.engine.names.get((topic, index))
        if partition is not None:
            return partition
        for meta, reason in self._broker.engine.broken.values():
            if meta.partition == index and topic in meta.names:
                raise Refusal("broken", f"replica on this broker is out of service: {reason}")
        raise _unknown(topic, index)

    def require(self, caller: Caller, what: Permission, topic: str, index: int) -> None:
        """Check a scope on a topic, before any check whether the topic exists; raises Refusal.

        Scopes apply to names, so an id is resolved first. Ids appear in public metrics, so the error never contains the
        name of a topic that was given by id.
        """
        if not caller.is_unrestricted and not caller.allows(what, self._name_of(topic, index)):
            raise missing_scope(what, topic)

    def _name_of(self, topic: str, index: int) -> str:
        if not topic.startswith(BY_ID):
            return topic
        partition = self._broker.engine.names.get((topic, index))
        if partition is not None:
            return partition.meta.topic
        for meta, _ in self._broker.engine.broken.values():
            if meta.partition == index and topic in meta.names:
                return meta.topic
        raise _unknown(topic, index)

    def leader(self, topic: str, index: int) -> Partition:
        """Return the replica if it is the leader; otherwise raise Refusal with the leader."""
        partition = self.replica(topic, index)
        if not partition.raft.is_leader:
            raise self.not_leader(partition)
        return partition

    def leader_with_commit(self, topic: str, index: int) -> Partition:
        """Return the replica if it is the leader and has committed in its term."""
        partition = self.leader(topic, index)
        if not partition.raft.has_committed_in_term:
            raise Refusal("not_settled", "the new leader has not committed an entry in its term yet; retry")
        return partition

    def lead(self, partition: Partition, act: Callable[[], object]) -> None:
        """Run an action that only the leader can do; raises Refusal."""
        try:
            act()
        except NotLeader as error:
            if not partition.raft.is_leader:
                raise self.not_leader(partition) from error
            raise Refusal("not_leader", str(error), leader=self.address(partition.raft.member.me)) from error

    def not_leader(self, partition: Partition) -> Refusal:
        """Return an error with the known leader."""
        leader = partition.raft.leader
        if leader is None or leader == self._broker.identity.id:
            return Refusal(
                "no_leader", "the partition has no leader; retry after the election", replicas=self._replicas(partition)
            )
        return Refusal(
            "not_leader",
            "this broker does not lead the partition; use the leader in `details`",
            leader=self.address(leader),
        )

    def _replicas(self, partition: Partition) -> list[dict[str, Any]]:
        return [self.address(member) for member in partition.meta.members]

    def address(self, broker: str) -> dict[str, Any]:
        """Return id and URL of a broker."""
        known = self._broker.identity.brokers.get(broker)
        return {"id": broker, "url": None if known is None else known.url}


def _unknown(topic: str, index: int) -> Refusal:
    return Refusal(
        "unknown_partition",
        f"topic {topic[:200]!r}, partition {index}: no replica on this broker; refresh the metadata",
    )
