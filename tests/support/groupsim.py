"""A consumer group, its clients, and a network between them that delays, repeats, reorders and loses messages.

Clients follow the last response that they received. The group is the real implementation. A model next to it knows no
generations: it counts lives and terms. A life begins with each join that arrives. A term of a partition begins when it
gets an owner. Requests carry the life and the terms that the client knows, hidden from the group, so that the model can
decide whether the group had to accept or to reject them.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import pytest

from flotilla.groups import membership
from flotilla.groups.membership import StaleGeneration, UnknownMember
from flotilla.groups.state import Assignment, Group, GroupTopic, PartitionId, Strategy, Topology

SENT_MAX = 30  # old requests that are repeated
ROUNDS_MAX = 4  # join; learn what to revoke; revoke; get what others revoked


class Hold(NamedTuple):
    """A client works on a partition: in which term, and since when, as far as it knows."""

    term: int
    episode: int


@dataclass(eq=False)
class Client:
    """A consumer process. Another one with the same id can replace it without its knowledge."""

    id: str
    topics: frozenset[str]
    life: int | None = None
    generation: int = 0
    holds: dict[PartitionId, Hold] = field(default_factory=dict)
    revoked: frozenset[PartitionId] = frozenset()
    waits_for: object = None  # the request whose response it reads; it ignores others
    known_of: object = None  # what the model keeps of it

    def finish(self) -> None:
        """Release the revoked partitions."""
        self.holds = {tp: hold for tp, hold in self.holds.items() if tp not in self.revoked}

    def stop(self) -> None:
        """Drop everything: it is no member, and has to join."""
        self.life, self.holds, self.revoked, self.waits_for = None, {}, frozenset(), None

    def receive(self, answer: "Response", episodes: "count[int]") -> None:
        """Work on assigned partitions, finish revoked ones, and stop all others."""
        assignment = answer.assignment
        kept = {tp: hold for tp, hold in self.holds.items() if tp in (*assignment.assigned, *assignment.revoked)}
        new = {tp: Hold(answer.terms[tp], next(episodes)) for tp in assignment.assigned if tp not in kept}
        self.holds, self.revoked, self.waits_for = kept | new, frozenset(assignment.revoked), None
        self.life, self.generation = answer.life, assignment.generation


class Response(NamedTuple):
    """Response to a join or sync, and, hidden, its life and terms."""

    assignment: Assignment
    life: int
    terms: Mapping[PartitionId, int]


@dataclass(frozen=True, eq=False)
class Request:
    """A request of a client, with its hidden life."""

    client: Client
    life: int | None
    generation: int


@dataclass(frozen=True, eq=False)
class Join(Request):
    """Join the group."""


@dataclass(frozen=True, eq=False)
class Sync(Request):
    """Report the owned partitions."""

    owned: frozenset[PartitionId]


@dataclass(frozen=True, eq=False)
class Leave(Request):
    """Leave the group."""


@dataclass(frozen=True, eq=False)
class Commit(Request):
    """Commit offsets of all held partitions."""

    holds: Mapping[PartitionId, Hold]


class GroupSimulation:
    """The group, its topics, all clients, and the model."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.group = Group(name="g")
        self.topology: dict[str, GroupTopic] = {}
        self.clients: list[Client] = []
        self.under_way: list[Request] = []
        self._old: deque[Request] = deque(maxlen=SENT_MAX)
        self._lives: dict[str, int] = {}
        self._terms: dict[PartitionId, int] = {}
        self._owners: dict[PartitionId, str] = {}
        self._numbers = count(1)

    # -- requests of clients ------------------------------------------------------------------------------------

    def send(self, client: Client) -> Request:
        """Send a sync, or a join if it is not a member; the response to the previous request is ignored."""
        request: Request = Join(client, None, 0)
        if client.life is not None:
            request = Sync(client, client.life, client.generation, frozenset(client.holds))
        client.waits_for = request
        return self._send(request)

    def send_leave(self, client: Client) -> Request:
        """Send a leave, and end."""
        self.clients.remove(client)
        return self._send(Leave(client, client.life, client.generation))

    def send_commit(self, client: Client) -> Request:
        """Send a commit of all held partitions."""
        return self._send(Commit(client, client.life, client.generation, dict(client.holds)))

    def _send(self, request: Request) -> Request:
        self.under_way.append(request)
        return request

    # -- arriving requests --------------------------------------------------------------------------------------

    def deliver(self, request: Request, *, is_answered: bool) -> None:
        """Deliver a request; return the response to the client, if it is answered and still awaited."""
        client, expected = request.client, self._expected(request)
        if expected is not None:
            with pytest.raises(expected):
                self._handle(request)
            # An error for a request of its current life means that the client is no longer a member.
            if is_answered and (client.waits_for is request or client.life == request.life):
                client.stop()
            return
        answer = self._handle(request)
        if is_answered and answer is not None and client.waits_for is request:
            client.receive(answer, self._numbers)

    def _expected(self, request: Request) -> type[Exception] | None:
        life = self._lives.get(request.client.id)
        if isinstance(request, Join) or (life is not None and life == request.life):
            return None
        return UnknownMember if life is None else StaleGeneration

    def _handle(self, request: Request) -> Response | None:
        id_ = request.client.id
        match request:
            case Join(client=client):
                after = membership.join(self.group, id_, client.topics, 10_000, self.strategy, self.topology)
                self._lives[id_] = next(self._numbers)
                self._change(after, by=id_)
                return self._answer(id_)
            case Sync(owned=owned):
                self._change(membership.sync(self.group, id_, request.generation, owned), by=id_, owned=owned)
                return self._answer(id_)
            case Leave():
                self._change(membership.leave(self.group, id_, request.generation, self.topology), removed={id_})
                del self._lives[id_]
            case Commit():
                self._commit(request)
        return None

    def _answer(self, member_id: str) -> Response:
        assignment = membership.assignment_of(self.group, member_id)
        return Response(assignment, self._lives[member_id], {tp: self._terms[tp] for tp in assignment.assigned})

    def _commit(self, request: Commit) -> None:
        """A commit is accepted only in its own term, and always while its client continues to work."""
        refused = refused_of(self.group, request.client.id, request.generation, request.holds)
        for tp, hold in request.holds.items():
            if tp not in refused:
                assert self._owners[tp] == request.client.id
                assert self._terms[tp] == hold.term
            elif self.is_current(request.client):
                assert request.client.holds.get(tp) != hold or not self._exists(tp)

    # -- changes of the group ------------------------------------------------------------------------------------

    def remove(self, member_ids: Collection[str]) -> None:
        """Expire members."""
        self._change(membership.remove(self.group, member_ids, self.topology), removed=member_ids)
        self._lives = {id_: life for id_, life in self._lives.items() if id_ not in member_ids}

    def refit(self) -> None:
        """Apply changes of the topics."""
        self._change(membership.apply_topology(self.group, self.topology))
        assert membership.apply_topology(self.group, self.topology) is self.group
        assert all(self._exists(tp) for tp in self._owners)

    def _change(
        self,
        after: Group,
        *,
        by: str | None = None,
        owned: Collection[PartitionId] | None = None,
        removed: Collection[str] = (),
    ) -> None:
        """Set a new state, and check every partition whose owner changed."""
        risen = after.generation - self.group.generation
        assert risen > 0 or (risen == 0 and targets_of(after) == targets_of(self.group))
        assert after.members.keys() == (self.group.members.keys() | ({by} if by else set())) - set(removed)
        self.group, before = after, self._owners
        self._owners = owners_of(after)
        for tp in before.keys() | self._owners.keys():
            old, new = before.get(tp), self._owners.get(tp)
            if old is not None and new != old:
                released = owned is not None and old == by and tp not in owned
                assert released or old in removed or not self._exists(tp)
                assert new is None
            if new is not None and new != old:
                assert new == by
                self._terms[tp] = next(self._numbers)

    def _exists(self, tp: PartitionId) -> bool:
        return any(tp.topic_id == id_ and tp.partition < size for id_, size in self.topology.values())

    # -- invariants ----------------------------------------------------------------------------------------------

    def is_current(self, client: Client) -> bool:
        """Return whether this process is the current member with its id."""
        return client.life is not None and self._lives.get(client.id) == client.life

    def check(self) -> None:
        """Every live client can commit to all partitions that it works on, so no two work on the same one.

        This holds for every late request that any client could have sent: a group is an immutable value, so each is
        tried.
        """
        assert self._lives.keys() == self.group.members.keys()
        self._check_current_clients(self.group)
        for request in self._old:
            self._try(request)
        for client in self.clients:
            self._remember(client)

    def _remember(self, client: Client) -> None:
        """Keep the requests that a client could send now, if they are new."""
        if client.known_of != (now := (client.life, client.generation, dict(client.holds))):
            client.known_of = now
            self._old.append(Sync(client, client.life, client.generation, frozenset(client.holds)))
            self._old.append(Commit(client, client.life, client.generation, dict(client.holds)))

    def _try(self, request: Request) -> None:
        id_, generation = request.client.id, request.generation
        if (expected := self._expected(request)) is not None:
            with pytest.raises(expected):
                refused_of(self.group, id_, generation, ())
            with pytest.raises(expected):
                membership.sync(self.group, id_, generation, ())
        elif isinstance(request, Commit):
            self._commit(request)
        elif isinstance(request, Sync):
            self._check_current_clients(membership.sync(self.group, id_, generation, request.owned))

    def _check_current_clients(self, group: Group) -> None:
        for client in self.clients:
            if self.is_current(client):
                existing = [tp for tp in client.holds if self._exists(tp)]
                assert refused_of(group, client.id, client.generation, existing) == []
                self._check_assignment_is_known(group, client)

    def _check_assignment_is_known(self, group: Group, client: Client) -> None:
        """A client that need not sync knows its assignment, so no partition stays unowned."""
        assignment, held = membership.assignment_of(group, client.id), len(client.holds)
        if not membership.should_sync(group, client.id, generation=client.generation, held=held):
            assert assignment == Assignment(
                generation=client.generation,
                assigned=tuple(sorted(client.holds)),
                revoked=(),
                pending=assignment.pending,
            )

    def heal(self) -> int:
        """Deliver everything from now on; return the number of rounds until the group is stable."""
        self.clients = list({client.id: client for client in self.clients}.values())  # the last client of each id
        ids = {client.id for client in self.clients}
        self.remove([id_ for id_ in self.group.members if id_ not in ids])
        self.refit()
        for number in range(ROUNDS_MAX + 1):
            if self._is_stable():
                return number
            self.take_turns()
        raise AssertionError(f"not stable after {ROUNDS_MAX} rounds: {self.group}")

    def take_turns(self) -> None:
        """Let every client send a heartbeat and apply the response, without loss."""
        for client in self.clients:
            self._take_turn(client)

    def _take_turn(self, client: Client) -> None:
        if client.life is not None:
            try:
                membership.check(self.group, client.id, client.generation)
            except (UnknownMember, StaleGeneration):
                client.stop()
        known = {"generation": client.generation, "held": len(client.holds)}
        if client.life is None or membership.should_sync(self.group, client.id, **known):
            client.finish()
            request = self.send(client)
            self.under_way.remove(request)
            self.deliver(request, is_answered=True)

    def _is_stable(self) -> bool:
        """Every client is a member and knows its assignment, and all subscribed partitions are owned."""
        if not membership.is_stable(self.group) or not all(self.is_current(client) for client in self.clients):
            return False
        known = {tp: client.id for client in self.clients for tp in client.holds}
        wanted = partitions_of({topic for client in self.clients for topic in client.topics}, self.topology)
        return known == self._owners and known.keys() == wanted


def refused_of(group: Group, member_id: str, generation: int, places: Collection[PartitionId]) -> list[PartitionId]:
    """Return the partitions that a member cannot commit to."""
    member = group.members.get(member_id)
    return membership.find_not_owned(member, generation, group.generation, group.holdings, places)


def owners_of(group: Group) -> dict[PartitionId, str]:
    """Return the owner of each partition by the assignments of members; fail if there are two."""
    owners: dict[PartitionId, str] = {}
    for id_ in group.members:
        assignment = membership.assignment_of(group, id_)
        for tp in (*assignment.assigned, *assignment.revoked):
            assert tp not in owners
            owners[tp] = id_
    return owners


def targets_of(group: Group) -> dict[PartitionId, str]:
    """Return the target assignment."""
    return {tp: holding.target for tp, holding in group.holdings.items() if holding.target is not None}


def partitions_of(topics: Collection[str], topology: Topology) -> set[PartitionId]:
    """Return all existing partitions of these topics."""
    existing = [topology[topic] for topic in topics if topic in topology]
    return {PartitionId(topic.id, partition) for topic in existing for partition in range(topic.partitions)}
