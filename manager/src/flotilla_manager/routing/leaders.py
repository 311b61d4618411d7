"""Cache of partition leaders. Pure. An entry is a hint: a broker that does not lead rejects the request."""

from flotilla_manager.model import Partition, Topic

_PARTITIONS_MAX = 100_000  # the cache is cleared beyond this


class Leaders:
    """Last known leaders of partitions."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {}

    def guess(self, topic: Topic, partition: Partition) -> str:
        """Return the broker to try first."""
        known = self._known.get((topic.id, partition.index))
        return known if known in partition.members else partition.members[0]

    def learn(self, topic: Topic, index: int, broker: str) -> None:
        """Record the leader of a partition."""
        if len(self._known) >= _PARTITIONS_MAX:
            self._known.clear()
        self._known[topic.id, index] = broker

    def skip(self, topic: Topic, partition: Partition, broker: str) -> None:
        """Try the next member from now on: this one does not respond or does not lead."""
        if self.guess(topic, partition) != broker:
            return  # another leader was learned meanwhile
        at = partition.members.index(broker) if broker in partition.members else -1
        self.learn(topic, partition.index, partition.members[(at + 1) % len(partition.members)])
