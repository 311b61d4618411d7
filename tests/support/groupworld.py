"""A consumer group, clients of it, and a network between them that delays, repeats, reorders and loses.

Clients do what they are told, and believe what they were told last. The group is the real one. Beside it stands a model
that knows nothing of generations: it counts lives and terms. A life begins with each join that arrives. A term of a
partition begins whenever it gets an owner. What a client sends carries the life and the terms that it knows of, unseen
by the group, so that the model can tell whether the group was right to accept or to refuse it.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import pytest

from flotilla.groups import membership
from flotilla.groups.membership import StaleGeneration, UnknownMember
from flotilla.groups.state import Group, Place, Strategy, Subscribed, Told, Topology

SENT_MAX = 30  # so many old requests are tried again and again
ROUNDS_MAX = 4  # join; hear what to let go of; let go; get what others have let go of


class Hold(NamedTuple):
    """That a client works on a partition: in which term of it, and since when, as far as the client knows."""

    term: int
    episode: int


@dataclass(eq=False)
class Client:
    """A process that consumes. Another one of the same id may have taken its place without its knowledge."""

    id: str
    topics: frozenset[str]
    life: int | None = None
    generation: int = 0
    holds: dict[Place, Hold] = field(default_factory=dict)
    revoked: frozenset[Place] = frozenset()
    waits_for: object = None  # the request whose answer it will read; that of any other it will not
    known_of: object = None  # what the world has kept of it

    def finish(self) -> None:
        """Let go of what it was told to let go of."""
        self.holds = {place: hold for place, hold in self.holds.items() if place not in self.revoked}

    def stop(self) -> None:
        """Drop everything: it is no member, and has to join."""
        self.life, self.holds, self.revoked, self.waits_for = None, {}, frozenset(), None

    def hear(self, answer: "Answer", episodes: "count[int]") -> None:
        """Work on what is assigned, finish what is revoked, stop everything else."""
        told = answer.told
        kept = {place: hold for place, hold in self.holds.items() if place in (*told.assigned, *told.revoked)}
        new = {place: Hold(answer.terms[place], next(episodes)) for place in told.assigned if place not in kept}
        self.holds, self.revoked, self.waits_for = kept | new, frozenset(told.revoked), None
        self.life, self.generation = answer.life, told.generation


class Answer(NamedTuple):
    """What the answer to a join or a sync says, and, unseen, the life and the terms that it is about."""

    told: Told
    life: int
    terms: Mapping[Place, int]


@dataclass(frozen=True, eq=False)
class Request:
    """What a client sends: who it is, and, unseen, in which life."""

    client: Client
    life: int | None
    generation: int


@dataclass(frozen=True, eq=False)
class Join(Request):
    """Let me in."""


@dataclass(frozen=True, eq=False)
class Sync(Request):
    """I own this and no more."""

    owned: frozenset[Place]


@dataclass(frozen=True, eq=False)
class Leave(Request):
    """I own nothing any more."""


@dataclass(frozen=True, eq=False)
class Commit(Request):
    """I am done with this part of all that I hold."""

    holds: Mapping[Place, Hold]


class World:
    """The group, its topics, everybody who talks to it, and the model."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.group = Group(name="g")
        self.topology: dict[str, Subscribed] = {}
        self.clients: list[Client] = []
        self.under_way: list[Request] = []
        self._old: deque[Request] = deque(maxlen=SENT_MAX)
        self._lives: dict[str, int] = {}
        self._terms: dict[Place, int] = {}
        self._owners: dict[Place, str] = {}
        self._numbers = count(1)

    # -- what clients send ----------------------------------------------------------------------------------

    def send(self, client: Client) -> Request:
        """Send a sync, or a join if it is no member; nobody will read the answer to the one before."""
        request: Request = Join(client, None, 0)
        if client.life is not None:
            request = Sync(client, client.life, client.generation, frozenset(client.holds))
        client.waits_for = request
        return self._send(request)

    def send_leave(self, client: Client) -> Request:
        """Send that it leaves, and end."""
        self.clients.remove(client)
        return self._send(Leave(client, client.life, client.generation))

    def send_commit(self, client: Client) -> Request:
        """Send a commit of all that it holds."""
        return self._send(Commit(client, client.life, client.generation, dict(client.holds)))

    def _send(self, request: Request) -> Request:
        self.under_way.append(request)
        return request

    # -- what arrives ---------------------------------------------------------------------------------------

    def deliver(self, request: Request, *, is_answered: bool) -> None:
        """Let a request arrive; tell the client what came of it, if it is answered and still waited for."""
        client, expected = request.client, self._expected(request)
        if expected is not None:
            with pytest.raises(expected):
                self._handle(request)
            # A refusal of anything in its present life tells a client that it is none.
            if is_answered and (client.waits_for is request or client.life == request.life):
                client.stop()
            return
        answer = self._handle(request)
        if is_answered and answer is not None and client.waits_for is request:
            client.hear(answer, self._numbers)

    def _expected(self, request: Request) -> type[Exception] | None:
        life = self._lives.get(request.client.id)
        if isinstance(request, Join) or (life is not None and life == request.life):
            return None
        return UnknownMember if life is None else StaleGeneration

    def _handle(self, request: Request) -> Answer | None:
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

    def _answer(self, member_id: str) -> Answer:
        told = membership.told(self.group, member_id)
        return Answer(told, self._lives[member_id], {place: self._terms[place] for place in told.assigned})

    def _commit(self, request: Commit) -> None:
        """A commit is accepted only in the term that it is from, and always while its client goes on working."""
        refused = refused_of(self.group, request.client.id, request.generation, request.holds)
        for place, hold in request.holds.items():
            if place not in refused:
                assert self._owners[place] == request.client.id
                assert self._terms[place] == hold.term
            elif self.lives_on(request.client):
                assert request.client.holds.get(place) != hold or not self._is_there(place)

    # -- what happens to the group --------------------------------------------------------------------------

    def remove(self, member_ids: Collection[str]) -> None:
        """Find that members are silent."""
        self._change(membership.remove(self.group, member_ids, self.topology), removed=member_ids)
        self._lives = {id_: life for id_, life in self._lives.items() if id_ not in member_ids}

    def refit(self) -> None:
        """Look at the topics again."""
        self._change(membership.refit(self.group, self.topology))
        assert membership.refit(self.group, self.topology) is self.group
        assert all(self._is_there(place) for place in self._owners)

    def _change(
        self,
        after: Group,
        *,
        by: str | None = None,
        owned: Collection[Place] | None = None,
        removed: Collection[str] = (),
    ) -> None:
        """Take on a new state, after a look at every partition that got another owner or lost the one it had."""
        risen = after.generation - self.group.generation
        assert risen > 0 or (risen == 0 and targets_of(after) == targets_of(self.group))
        assert after.members.keys() == (self.group.members.keys() | ({by} if by else set())) - set(removed)
        self.group, before = after, self._owners
        self._owners = owners_of(after)
        for place in before.keys() | self._owners.keys():
            old, new = before.get(place), self._owners.get(place)
            if old is not None and new != old:
                let_go = owned is not None and old == by and place not in owned
                assert let_go or old in removed or not self._is_there(place)
                assert new is None
            if new is not None and new != old:
                assert new == by
                self._terms[place] = next(self._numbers)

    def _is_there(self, place: Place) -> bool:
        return any(place.topic_id == id_ and place.partition < size for id_, size in self.topology.values())

    # -- what holds -----------------------------------------------------------------------------------------

    def lives_on(self, client: Client) -> bool:
        """Tell whether this process is the member of its id, as far as the group is concerned."""
        return client.life is not None and self._lives.get(client.id) == client.life

    def check(self) -> None:
        """Whoever lives on may commit to all that it works on, so that no two work on the same.

        That stays so whatever comes late now, of all that anybody could have sent: a group is a value, so it is tried.
        """
        assert self._lives.keys() == self.group.members.keys()
        self._check_that_all_go_on(self.group)
        for request in self._old:
            self._try(request)
        for client in self.clients:
            self._remember(client)

    def _remember(self, client: Client) -> None:
        """Keep what a client could send now, if that is something new."""
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
            self._check_that_all_go_on(membership.sync(self.group, id_, generation, request.owned))

    def _check_that_all_go_on(self, group: Group) -> None:
        for client in self.clients:
            if self.lives_on(client):
                there = [place for place in client.holds if self._is_there(place)]
                assert refused_of(group, client.id, client.generation, there) == []
                self._check_that_it_knows(group, client)

    def _check_that_it_knows(self, group: Group, client: Client) -> None:
        """Whoever is not told to sync knows what it has, so that nothing lies idle for ever."""
        told, held = membership.told(group, client.id), len(client.holds)
        if not membership.should_sync(group, client.id, generation=client.generation, held=held):
            assert told == Told(
                generation=client.generation, assigned=tuple(sorted(client.holds)), revoked=(), pending=told.pending
            )

    def heal(self) -> int:
        """Let everything arrive from now on, and everybody do as it is told; count the rounds until all is well."""
        self.clients = list({client.id: client for client in self.clients}.values())  # the last one of each id
        ids = {client.id for client in self.clients}
        self.remove([id_ for id_ in self.group.members if id_ not in ids])
        self.refit()
        for number in range(ROUNDS_MAX + 1):
            if self._is_well():
                return number
            self.take_turns()
        raise AssertionError(f"not well after {ROUNDS_MAX} rounds: {self.group}")

    def take_turns(self) -> None:
        """Let everybody send a heartbeat, and do what the answer says, with nothing lost."""
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

    def _is_well(self) -> bool:
        """Everybody is in, knows what it has, and all that anybody subscribes to is worked on."""
        if not membership.is_stable(self.group) or not all(self.lives_on(client) for client in self.clients):
            return False
        known = {place: client.id for client in self.clients for place in client.holds}
        wanted = places_of({topic for client in self.clients for topic in client.topics}, self.topology)
        return known == self._owners and known.keys() == wanted


def refused_of(group: Group, member_id: str, generation: int, places: Collection[Place]) -> list[Place]:
    """Ask a group which places a member may not commit to."""
    member = group.members.get(member_id)
    return membership.may_commit(member, generation, group.generation, group.holdings, places)


def owners_of(group: Group) -> dict[Place, str]:
    """Find who owns what, from what members are told; fail if anything is told twice."""
    owners: dict[Place, str] = {}
    for id_ in group.members:
        told = membership.told(group, id_)
        for place in (*told.assigned, *told.revoked):
            assert place not in owners
            owners[place] = id_
    return owners


def targets_of(group: Group) -> dict[Place, str]:
    """Find who is to have what."""
    return {place: holding.target for place, holding in group.holdings.items() if holding.target is not None}


def places_of(topics: Collection[str], topology: Topology) -> set[Place]:
    """Name all partitions of these topics that there are."""
    there = [topology[topic] for topic in topics if topic in topology]
    return {Place(topic.id, partition) for topic in there for partition in range(topic.partitions)}
