"""Which broker to ask for a partition: the one that was told to lead it, or the next member in turn.

Pure. What is here is only a guess: the broker that is asked knows better, and says so.
"""

from flotilla_manager.model import Partition, Topic

_PARTITIONS_MAX = 100_000  # guesses are dropped all at once beyond this: they are only guesses


class Leaders:
    """Remembers who leads."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {}

    def guess(self, topic: Topic, partition: Partition) -> str:
        """Name the broker to ask first."""
        known = self._known.get((topic.id, partition.index))
        return known if known in partition.members else partition.members[0]

    def learn(self, topic: Topic, index: int, broker: str) -> None:
        """Take note of who leads."""
        if len(self._known) >= _PARTITIONS_MAX:
            self._known.clear()
        self._known[topic.id, index] = broker

    def pass_over(self, topic: Topic, partition: Partition, broker: str) -> None:
        """Ask the next member from now on: this one does not answer, or does not know."""
        if self.guess(topic, partition) != broker:
            return  # something better was learned meanwhile
        at = partition.members.index(broker) if broker in partition.members else -1
        self.learn(topic, partition.index, partition.members[(at + 1) % len(partition.members)])
