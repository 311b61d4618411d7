"""Simulated clients that delete records like the API: a request to a leader is successful once it is committed."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import NotLeader
from sim.broker import SimBroker


@dataclass(frozen=True)
class Deleter:
    """Deletes records of one partition: up to an offset that may be inside a batch, or all records."""

    meta: ReplicaMeta
    rng: random.Random
    find: Callable[[ReplicaMeta], SimBroker | None]
    on_asked: Callable[[ReplicaMeta, int], None]
    on_gone: Callable[[ReplicaMeta, Partition, int], None]

    def delete(self) -> None:
        """Request a deletion, once."""
        broker = self.find(self.meta)
        if broker is not None:
            broker.happen(lambda: self._ask(broker))

    def _ask(self, broker: SimBroker) -> None:
        partition = broker.partition(self.meta)
        if partition is None or not partition.raft.has_committed_in_term:
            return
        first, end = partition.start_offset, partition.committed_offset
        offset = self.rng.choice((first, end, *(self.rng.randint(first, end) for _ in range(4))))
        self.on_asked(self.meta, offset)
        try:
            partition.trim(offset)
        except NotLeader:
            return  # it transfers its leadership
        broker.engine.schedule(partition.key)
        self._check_deleted(partition, offset)

    def _check_deleted(self, partition: Partition, offset: int) -> None:
        """Poll until the deletion is committed, or until its outcome cannot be known any more."""
        if partition.start_offset >= offset:
            self.on_gone(self.meta, partition, offset)
        elif partition.raft.leadership is not None:
            partition.watch(lambda: self._check_deleted(partition, offset))
