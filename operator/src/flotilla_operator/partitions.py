"""How a partition is, from what brokers say of its replicas. Pure."""

from dataclasses import dataclass

from flotilla_operator.world import Partition, Replica, Topic, World

LAG_MAX = 1000  # entries that a replica may be behind, in full flow, and still count as one that follows


@dataclass(frozen=True)
class PartitionView:
    """A partition as it is now. Brokers are ids."""

    topic: Topic
    index: int
    members: tuple[str, ...]
    leader: str | None
    missing: tuple[str, ...]  # replicas that are not heard of, or are far behind
    lag: int
    messages: int
    bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether it has a leader, and every replica follows."""
        return self.leader is not None and not self.missing


def view(world: World, topic: Topic, partition: Partition) -> PartitionView:
    """Look at a partition."""
    heard = {
        member: world.replicas[key]
        for member in partition.members
        if (key := (topic.id, partition.index, member)) in world.replicas
        and world.replicas[key].epoch == partition.epoch
    }
    leaders = [member for member, replica in heard.items() if replica.leads and replica.settled]
    following = [member for member, replica in heard.items() if _follows(replica)]
    # One that has just died is heard of for a few seconds more, beside its successor: the latest word counts.
    leader = min(leaders, key=lambda member: world.reports[member].seconds_ago, default=None)
    leading = heard.get(leader) if leader is not None else None
    seen = leading or max(heard.values(), key=lambda one: one.next_offset, default=None)
    return PartitionView(
        topic=topic,
        index=partition.index,
        members=partition.members,
        leader=leader,
        missing=tuple(member for member in partition.members if member not in following),
        lag=max((replica.lag for replica in heard.values()), default=0),
        messages=seen.next_offset - seen.first_offset if seen is not None else 0,
        bytes=seen.size_bytes if seen is not None else 0,
    )


def _follows(replica: Replica) -> bool:
    return replica.leads or (replica.leader is not None and replica.lag <= LAG_MAX)
