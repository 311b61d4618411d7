"""The experiments that come with the project: which producers and consumers use which topics. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Queue:
    """A topic with one partition, with the numbers of its producers and consumers."""

    topic: str
    producers: tuple[int, ...]
    consumers: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """An experiment: some producers, some consumers, and the topics between them."""

    name: str
    queues: tuple[Queue, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics."""
        return tuple(queue.topic for queue in self.queues)

    @property
    def producers(self) -> dict[int, tuple[str, ...]]:
        """The topics of each producer."""
        ids = sorted({one for queue in self.queues for one in queue.producers})
        return {one: tuple(queue.topic for queue in self.queues if one in queue.producers) for one in ids}

    @property
    def consumers(self) -> dict[int, tuple[str, ...]]:
        """The topics of each consumer."""
        ids = sorted({one for queue in self.queues for one in queue.consumers})
        return {one: tuple(queue.topic for queue in self.queues if one in queue.consumers) for one in ids}

    def readers(self, topic: str) -> int:
        """Count the consumers of a topic."""
        return sum(len(queue.consumers) for queue in self.queues if queue.topic == topic)

    def __str__(self) -> str:
        """Format one line per topic, such as `T1: producers P1 P2, consumers C1 C2`."""
        return "\n".join(
            f"{queue.topic}: {_names('producer', queue.producers)}, {_names('consumer', queue.consumers)}"
            for queue in self.queues
        )


def _names(role: str, ids: tuple[int, ...]) -> str:
    names = " ".join(f"{role[0].upper()}{one}" for one in ids)
    return f"{role if len(ids) == 1 else f'{role}s'} {names}"


PLANS: Mapping[str, Plan] = {
    "2P2C": Plan("2P2C", (Queue("T1", (1, 2), (1, 2)), Queue("T2", (1, 2), (1, 2)))),
    "5P3C": Plan(
        "5P3C", (Queue("T1", (1, 2, 3), (1, 2, 3)), Queue("T2", (1, 4, 5), (1,)), Queue("T3", (1, 2), (1, 2, 3)))
    ),
}
