"""Partition assignors of consumer groups: three strategies, each a pure function.

- Range: for each topic, members sorted by id get contiguous ranges of partitions; the first ones get one more if the
  numbers do not divide evenly. Topics with the same number of partitions are divided alike, so that co-partitioned
  topics stay co-located.
- Round-robin: all partitions in order of topic and number go to members sorted by id in turn. Members that do not
  subscribe to the topic are skipped.
- Sticky: members keep their partitions as far as the assignment stays balanced; only the rest is distributed. If all
  members subscribe to the same topics, their numbers of partitions differ by at most 1, and no other assignment that
  is as balanced keeps more. Otherwise, no move of one partition to another member makes the assignment more balanced.

Every subscribed partition gets exactly one owner, which subscribes to its topic. The result does not depend on the
order of members and topics. Topics that do not exist, and members without existing topics, are ignored.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from flotilla.groups.state import PartitionId, Strategy, Topology

_Subscribers = dict[str, list[str]]  # sorted names of topics, with the sorted ids of their subscribers


def assign(
    strategy: Strategy,
    members: Mapping[str, Collection[str]],
    topology: Topology,
    current: Mapping[PartitionId, str],
    tentative: Collection[PartitionId] = frozenset(),
) -> dict[PartitionId, str]:
    """Return the target owner of each subscribed partition; `members` are ids with the names of their topics.

    `current` is the assignment that the sticky strategy preserves as far as possible. It may have partitions and
    members that no longer exist. A member that has to give up partitions gives up the `tentative` ones first.
    """
    subscribers = _subscribers(members, topology)
    match strategy:
        case Strategy.RANGE:
            return _range(subscribers, topology)
        case Strategy.ROUND_ROBIN:
            return _round_robin(subscribers, topology)
        case Strategy.STICKY:
            return _sticky(subscribers, topology, current, tentative)


def _subscribers(members: Mapping[str, Collection[str]], topology: Topology) -> _Subscribers:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for member in sorted(members):
        for topic in set(members[member]):
            if topic in topology:
                found[topic].append(member)
    return {topic: found[topic] for topic in sorted(found)}


def _partitions(topic: str, topology: Topology) -> Iterator[PartitionId]:
    id_, partitions = topology[topic]
    return (PartitionId(id_, partition) for partition in range(partitions))


def _range(subscribers: _Subscribers, topology: Topology) -> dict[PartitionId, str]:
    targets = {}
    for topic, members in subscribers.items():
        partitions = _partitions(topic, topology)
        each, more = divmod(topology[topic].partitions, len(members))
        for number, member in enumerate(members):
            for _ in range(each + (number < more)):
                targets[next(partitions)] = member
    return targets


def _round_robin(subscribers: _Subscribers, topology: Topology) -> dict[PartitionId, str]:
    everyone = sorted({member for members in subscribers.values() for member in members})
    ranks = {member: rank for rank, member in enumerate(everyone)}
    targets, next_rank = {}, 0
    for topic, members in subscribers.items():
        at = bisect_left([ranks[member] for member in members], next_rank)
        for tp in _partitions(topic, topology):
            targets[tp] = members[at % len(members)]
            at += 1
        if topology[topic].partitions:
            next_rank = ranks[members[(at - 1) % len(members)]] + 1
    return targets


def _sticky(
    subscribers: _Subscribers,
    topology: Topology,
    current: Mapping[PartitionId, str],
    tentative: Collection[PartitionId],
) -> dict[PartitionId, str]:
    lists = list(subscribers.values())
    if not lists:
        return {}
    if all(members == lists[0] for members in lists):
        partitions = [tp for topic in subscribers for tp in _partitions(topic, topology)]
        return _sticky_same_topics(lists[0], partitions, current, tentative)
    return _Balancer(subscribers, topology, current, tentative).balance()


def _sticky_same_topics(
    members: Sequence[str],
    partitions: Iterable[PartitionId],
    current: Mapping[PartitionId, str],
    tentative: Collection[PartitionId],
) -> dict[PartitionId, str]:
    kept: dict[str, list[PartitionId]] = {member: [] for member in members}
    free: list[PartitionId] = []
    for tp in sorted(partitions, key=tentative.__contains__):
        kept.get(current.get(tp, ""), free).append(tp)
    firm = {member: sum(tp not in tentative for tp in has) for member, has in kept.items()}
    each, more = divmod(len(free) + sum(map(len, kept.values())), len(members))
    # Members that can fill the larger shares get them: that keeps the most. Ties stay in order of id.
    fullest = sorted(members, key=lambda member: (len(kept[member]) <= each, -firm[member]))
    share = {member: each + (rank < more) for rank, member in enumerate(fullest)}
    for member, has in kept.items():
        free += has[share[member] :]
        del has[share[member] :]
    targets = {tp: member for member, has in kept.items() for tp in has}
    lacking = sorted((level, member) for member, has in kept.items() for level in range(len(has), share[member]))
    targets.update((tp, member) for tp, (_, member) in zip(free, lacking, strict=True))
    return targets


class _Balancer:
    """A sticky assignment in progress, for members with different subscriptions.

    The list of a member's partitions of a topic has the kept ones first, then the tentative and the new ones; it gives
    up the last ones.
    """

    def __init__(
        self,
        subscribers: _Subscribers,
        topology: Topology,
        current: Mapping[PartitionId, str],
        tentative: Collection[PartitionId],
    ) -> None:
        self._subscribers = subscribers
        self._load = {member: 0 for members in subscribers.values() for member in members}
        self._held: dict[str, dict[str, list[PartitionId]]] = {}
        free = {}
        for topic, members in subscribers.items():
            held: dict[str, list[PartitionId]] = {member: [] for member in members}
            free[topic] = list[PartitionId]()
            for tp in sorted(_partitions(topic, topology), key=tentative.__contains__):
                held.get(current.get(tp, ""), free[topic]).append(tp)
            for member, has in held.items():
                self._load[member] += len(has)
            self._held[topic] = held
        # Topics with few subscribers leave the least choice, so they come first.
        for topic in sorted(free, key=lambda topic: len(subscribers[topic])):
            self._distribute(topic, free[topic])

    def balance(self) -> dict[PartitionId, str]:
        """Move partitions until no move makes the assignment more balanced; return the owners."""
        # Each move decreases the sum of the squares of the loads, so the loop ends.
        moved = 1
        while moved:
            moved = sum(self._level(topic) for topic in self._subscribers)
        return {tp: member for held in self._held.values() for member, has in held.items() for tp in has}

    def _distribute(self, topic: str, free: Iterable[PartitionId]) -> None:
        lowest = [(self._load[member], member) for member in self._subscribers[topic]]
        heapify(lowest)
        for tp in free:
            load, member = lowest[0]
            self._held[topic][member].append(tp)
            heapreplace(lowest, (load + 1, member))
        self._load.update((member, load) for load, member in lowest)

    def _level(self, topic: str) -> int:
        """Move partitions of one topic from the most to the least loaded members; return the number of moves.

        While the loads of giver and taker differ by 2 or more, the giver does not become the least loaded member, nor
        the taker the most loaded one. So neither needs to be put into the other heap.
        """
        held, load = self._held[topic], self._load
        lowest = [(load[member], member) for member in self._subscribers[topic]]
        highest = [(-load[member], member) for member, has in held.items() if has]
        heapify(lowest)
        heapify(highest)
        moved = 0
        while highest and -highest[0][0] - lowest[0][0] >= 2:  # noqa: PLR2004 - a move changes both loads by 1
            giver, taker = highest[0][1], lowest[0][1]
            held[taker].append(held[giver].pop())
            load[giver] -= 1
            load[taker] += 1
            heapreplace(lowest, (load[taker], taker))
            if held[giver]:
                heapreplace(highest, (-load[giver], giver))
            else:
                heappop(highest)
            moved += 1
        return moved
