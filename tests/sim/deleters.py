"""Simulated clients that delete records, as the API does it: they ask a leader, and believe what it has committed."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import NotLeader
from sim.broker import SimBroker


@dataclass(frozen=True)
class Deleter:
    """Deletes records of one partition: up to an offset that may lie in a batch, or all that are there."""

    meta: ReplicaMeta
    rng: random.Random
    find: Callable[[ReplicaMeta], SimBroker | None]
    on_asked: Callable[[ReplicaMeta, int], None]
    on_gone: Callable[[ReplicaMeta, Partition, int], None]

    def delete(self) -> None:
        """Ask for it, once."""
        broker = self.find(self.meta)
        if broker is not None:
            broker.happen(lambda: self._ask(broker))

    def _ask(self, broker: SimBroker) -> None:
        partition = broker.partition(self.meta)
        if partition is None or not partition.raft.is_settled:
            return
        first, end = partition.start_offset, partition.committed_offset
        offset = self.rng.choice((first, end, *(self.rng.randint(first, end) for _ in range(4))))
        self.on_asked(self.meta, offset)
        try:
            partition.trim(offset)
        except NotLeader:
            return  # it hands its leadership over
        broker.engine.touch(partition.key)
        self._look(partition, offset)

    def _look(self, partition: Partition, offset: int) -> None:
        """Wait until it is so, or until this one cannot know any more."""
        if partition.start_offset >= offset:
            self.on_gone(self.meta, partition, offset)
        elif partition.raft.leadership is not None:
            partition.watch(lambda: self._look(partition, offset))
