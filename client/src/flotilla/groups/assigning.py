"""Who is to have which partition of a group: three ways to decide, each a pure function.

- Range: topic by topic, members sorted by id get blocks of neighbours; the first ones get one more where it does not
  come out even. Topics with as many partitions are cut alike, so that what belongs together stays together.
- Round-robin: all partitions in order of topic and number are dealt to members sorted by id in turn; who does not
  subscribe to the topic is skipped.
- Sticky: everybody keeps what it has as far as that is fair, and only the rest is dealt. If all members subscribe to
  the same topics, the most and the least that a member gets differ by at most 1, and no other deal as fair keeps more.
  If they do not, then no move of one partition from one member to another makes it fairer.

Every partition that anybody subscribes to goes to exactly one member that subscribes to it. The same question always
has the same answer, in whatever order members and topics are given. Topics that are not there, and members that
subscribe to none that is, are passed over.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from flotilla.groups.state import Place, Strategy, Topology

_Subscribers = dict[str, list[str]]  # names of topics, sorted, with the ids of their members, sorted


def assign(
    strategy: Strategy,
    members: Mapping[str, Collection[str]],
    topology: Topology,
    current: Mapping[Place, str],
) -> dict[Place, str]:
    """Return who is to have each place that anybody subscribes to; `members` are ids with the names of topics.

    `current` is what the sticky strategy keeps as much of as it can. It may name places and members that are gone.
    """
    subscribers = _subscribers(members, topology)
    match strategy:
        case Strategy.RANGE:
            return _range(subscribers, topology)
        case Strategy.ROUND_ROBIN:
            return _round_robin(subscribers, topology)
        case Strategy.STICKY:
            return _sticky(subscribers, topology, current)


def _subscribers(members: Mapping[str, Collection[str]], topology: Topology) -> _Subscribers:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for member in sorted(members):
        for topic in set(members[member]):
            if topic in topology:
                found[topic].append(member)
    return {topic: found[topic] for topic in sorted(found)}


def _places(topic: str, topology: Topology) -> Iterator[Place]:
    id_, partitions = topology[topic]
    return (Place(id_, partition) for partition in range(partitions))


def _range(subscribers: _Subscribers, topology: Topology) -> dict[Place, str]:
    targets = {}
    for topic, members in subscribers.items():
        places = _places(topic, topology)
        each, more = divmod(topology[topic].partitions, len(members))
        for number, member in enumerate(members):
            for _ in range(each + (number < more)):
                targets[next(places)] = member
    return targets


def _round_robin(subscribers: _Subscribers, topology: Topology) -> dict[Place, str]:
    everybody = sorted({member for members in subscribers.values() for member in members})
    seats = {member: seat for seat, member in enumerate(everybody)}
    targets, turn = {}, 0
    for topic, members in subscribers.items():
        at = bisect_left([seats[member] for member in members], turn)
        for place in _places(topic, topology):
            targets[place] = members[at % len(members)]
            at += 1
        turn = seats[members[(at - 1) % len(members)]] + 1 if topology[topic].partitions else turn
    return targets


def _sticky(subscribers: _Subscribers, topology: Topology, current: Mapping[Place, str]) -> dict[Place, str]:
    lists = list(subscribers.values())
    if not lists:
        return {}
    if all(members == lists[0] for members in lists):
        return _sticky_among_equals(
            lists[0], [place for topic in subscribers for place in _places(topic, topology)], current
        )
    return _Scales(subscribers, topology, current).balanced()


def _sticky_among_equals(
    members: Sequence[str], places: Iterable[Place], current: Mapping[Place, str]
) -> dict[Place, str]:
    kept: dict[str, list[Place]] = {member: [] for member in members}
    free: list[Place] = []
    for place in places:
        kept.get(current.get(place, ""), free).append(place)
    each, more = divmod(len(free) + sum(map(len, kept.values())), len(members))
    # Who has the most may keep one more: that is what keeps the most in all. sorted() leaves equals in order of id.
    fullest = sorted(members, key=lambda member: -len(kept[member]))
    share = {member: each + (rank < more) for rank, member in enumerate(fullest)}
    for member, has in kept.items():
        free += has[share[member] :]
        del has[share[member] :]
    targets = {place: member for member, has in kept.items() for place in has}
    lacking = sorted((level, member) for member, has in kept.items() for level in range(len(has), share[member]))
    targets.update((place, member) for place, (_, member) in zip(free, lacking, strict=True))
    return targets


class _Scales:
    """A deal in the making, among members that subscribe to different topics.

    A member holds its places of a topic as a list: first what it keeps, then what it gets. It gives from the end.
    """

    def __init__(self, subscribers: _Subscribers, topology: Topology, current: Mapping[Place, str]) -> None:
        self._subscribers = subscribers
        self._load = {member: 0 for members in subscribers.values() for member in members}
        self._held: dict[str, dict[str, list[Place]]] = {}
        free = {}
        for topic, members in subscribers.items():
            held: dict[str, list[Place]] = {member: [] for member in members}
            free[topic] = list[Place]()
            for place in _places(topic, topology):
                held.get(current.get(place, ""), free[topic]).append(place)
            for member, has in held.items():
                self._load[member] += len(has)
            self._held[topic] = held
        # Topics with few subscribers leave the least choice, so they are dealt first.
        for topic in sorted(free, key=lambda topic: len(subscribers[topic])):
            self._deal(topic, free[topic])

    def balanced(self) -> dict[Place, str]:
        """Move places until no move makes it fairer; return who has what."""
        # Each move makes the sum of the squares of what members hold smaller, so this comes to an end.
        moved = 1
        while moved:
            moved = sum(self._level(topic) for topic in self._subscribers)
        return {place: member for held in self._held.values() for member, has in held.items() for place in has}

    def _deal(self, topic: str, free: Iterable[Place]) -> None:
        lowest = [(self._load[member], member) for member in self._subscribers[topic]]
        heapify(lowest)
        for place in free:
            load, member = lowest[0]
            self._held[topic][member].append(place)
            heapreplace(lowest, (load + 1, member))
        self._load.update((member, load) for load, member in lowest)

    def _level(self, topic: str) -> int:
        """Move places of one topic from those that hold the most to those that hold the least; tell how many moved.

        Who gave is never among the lowest afterwards, and who got never among the highest, as long as the two are
        2 or more apart. So neither needs to be put into the other heap.
        """
        held, load = self._held[topic], self._load
        lowest = [(load[member], member) for member in self._subscribers[topic]]
        highest = [(-load[member], member) for member, has in held.items() if has]
        heapify(lowest)
        heapify(highest)
        moved = 0
        while highest and -highest[0][0] - lowest[0][0] >= 2:  # noqa: PLR2004 - one more here, one less there
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
