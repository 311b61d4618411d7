"""Finds the replica that a request is about."""

from collections.abc import Callable
from typing import Any

from flotilla.access import Caller
from flotilla.access import Scope as Permission
from flotilla.serving.errors import Refusal
from flotilla.serving.gate import lacks
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import NotLeader
from flotilla_broker.server import Broker

BY_ID = "id:"


class Lookup:
    """Replicas by topic and partition: of several epochs, the newest.

    A topic is meant by its name, or by `id:` and its id: then never another one that has its name now.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def replica(self, topic: str, index: int) -> Partition:
        """Return the replica that is here, whatever its role."""
        if self._broker.is_stopping:
            raise Refusal("closed", "this broker stops; ask another replica")
        partition = self._broker.engine.names.get((topic, index))
        if partition is not None:
            return partition
        for meta, reason in self._broker.engine.broken.values():
            if meta.partition == index and topic in meta.names:
                raise Refusal("broken", f"the replica on this broker is out of service: {reason}")
        raise _unknown(topic, index)

    def require(self, caller: Caller, what: Permission, topic: str, index: int) -> None:
        """Refuse a caller who lacks a scope on a topic, before anybody looks whether it is here.

        Scopes are on names: an id is first resolved. Ids are in figures that are open to all, so whoever shows one is
        not told the name.
        """
        if not caller.may_all and not caller.allows(what, self._name_of(topic, index)):
            raise lacks(what, topic)

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
        """Return the replica if it leads; tell who does otherwise."""
        partition = self.replica(topic, index)
        if not partition.raft.is_leader:
            raise self.not_leader(partition)
        return partition

    def settled_leader(self, topic: str, index: int) -> Partition:
        """Return the replica if it leads and knows what is committed."""
        partition = self.leader(topic, index)
        if not partition.raft.is_settled:
            raise Refusal("not_settled", "this leader was elected just now, and is finding out what is committed")
        return partition

    def lead(self, partition: Partition, act: Callable[[], object]) -> None:
        """Do what only a leader can; tell who leads otherwise, or why this leader cannot."""
        try:
            act()
        except NotLeader as error:
            if not partition.raft.is_leader:
                raise self.not_leader(partition) from error
            raise Refusal("not_leader", str(error), leader=self.address(partition.raft.member.me)) from error

    def not_leader(self, partition: Partition) -> Refusal:
        """Say who leads, as far as is known."""
        leader = partition.raft.leader
        if leader is None or leader == self._broker.identity.id:
            return Refusal("no_leader", "the partition has no leader at the moment", replicas=self._replicas(partition))
        return Refusal(
            "not_leader", "this broker does not lead the partition; ask the one that does", leader=self.address(leader)
        )

    def _replicas(self, partition: Partition) -> list[dict[str, Any]]:
        return [self.address(member) for member in partition.meta.members]

    def address(self, broker: str) -> dict[str, Any]:
        """Tell where a broker is reached."""
        known = self._broker.identity.brokers.get(broker)
        return {"id": broker, "url": None if known is None else known.url}


def _unknown(topic: str, index: int) -> Refusal:
    return Refusal("unknown_partition", f"there is no replica of {topic[:200]!r}, partition {index}, on this broker")
