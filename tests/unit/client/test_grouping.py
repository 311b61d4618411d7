"""Members of a group against the real group, over a network as bad as Hypothesis can think of.

The world, its model of lives and terms, and what has to hold, are those of the group's own tests: only that here the
processes are made of the client's member.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flotilla.client.grouping import Call, Member, Told
from flotilla.client.positions import Share
from flotilla.groups import membership
from flotilla.groups.membership import GroupError
from flotilla.groups.state import Place, Strategy, Subscribed
from support.groupworld import Answer, Client, Commit, Hold, Request, World, refused_of

EXAMPLES_MIN = 300
IDS = ["a", "b", "c"]
TOPICS = ["t", "u"]
ONE, TWO = Share("t", "t-1", 0), Share("t", "t-1", 1)


def told(generation: int, assigned: tuple[Share, ...] = (), revoked: tuple[Share, ...] = ()) -> Told:
    return Told(generation=generation, assigned=assigned, revoked=revoked)


def test_a_member_joins_beats_and_syncs_when_it_is_told_to() -> None:
    """What it says next follows from the last answer."""
    member = Member()
    assert member.next_call is Call.JOIN
    member = member.with_joined(told(1, (ONE, TWO)))
    assert (member.next_call, set(member.held)) == (Call.BEAT, {ONE, TWO})
    assert member.with_beaten(should_sync=False).next_call is Call.BEAT
    assert member.with_beaten(should_sync=True).next_call is Call.SYNC


def test_what_is_revoked_is_held_until_it_is_finished_with() -> None:
    """Nobody gets a partition before its owner has let go of it."""
    member = Member().with_joined(told(1, (ONE, TWO))).with_told(told(2, (ONE,), (TWO,)))
    assert (set(member.held), set(member.revoked), member.next_call) == ({ONE, TWO}, {TWO}, Call.BEAT)
    member = member.with_let_go({TWO: member.held[TWO]})
    assert (set(member.held), set(member.revoked), member.next_call) == ({ONE}, set(), Call.SYNC)


def test_what_is_in_neither_list_is_stopped_at_once() -> None:
    """It may be somebody else's already."""
    member = Member().with_joined(told(1, (ONE, TWO))).with_told(told(3, (ONE,)))
    assert set(member.held) == {ONE}


def test_a_refusal_of_an_old_hold_does_not_touch_the_new_one() -> None:
    """A commit that was under way while a partition went and came back says nothing about now."""
    member = Member().with_joined(told(1, (ONE,)))
    old = dict(member.held)
    member = member.with_told(told(2)).with_told(told(3, (ONE,)))
    assert member.with_let_go(old) is member


def test_a_refusal_of_an_old_life_does_not_end_the_new_one() -> None:
    """A member that has joined again is not put out by what it was told before."""
    member = Member().with_joined(told(1, (ONE,)))
    ended = member.with_life_ended(member.life)
    assert (ended.next_call, ended.held) == (Call.JOIN, {})
    again = ended.with_joined(told(5, (ONE,)))
    assert again.with_life_ended(member.life) is again


def test_a_member_that_was_replaced_does_not_fight_for_its_id() -> None:
    """Two processes with one id would take turns for ever; one whose own join came late is not replaced."""
    member = Member().with_joined(told(1))
    assert member.is_replaced("stale_generation", is_id_given=True)
    assert not member.is_replaced("stale_generation", is_id_given=False)
    assert not member.is_replaced("unknown_member", is_id_given=True)
    doubtful = Member().with_unanswered_join().with_joined(told(2))
    assert not doubtful.is_replaced("stale_generation", is_id_given=True)


@dataclass(eq=False)
class Process(Client):
    """A process of the world that is moved by the client's member. `holds` and the like are what the world looks at."""

    member: Member = field(default_factory=Member)

    def finish(self) -> None:
        """Let go of what is revoked."""
        self.be(self.member.with_let_go({share: self.member.held[share] for share in self.member.revoked}))

    def stop(self) -> None:
        """Hear that it is no member."""
        super().stop()
        self.be(self.member.with_life_ended(self.member.life))

    def hear(self, answer: Answer, episodes: "count[int]") -> None:  # noqa: ARG002 - members count by themselves
        """Hear what it has."""
        assigned, revoked = (tuple(map(share_of, ones)) for ones in (answer.told.assigned, answer.told.revoked))
        found = told(answer.told.generation, assigned, revoked)
        is_join = self.member.next_call is Call.JOIN
        self.life, self.waits_for = answer.life, None
        self.be(self.member.with_joined(found) if is_join else self.member.with_told(found), answer.terms)

    def be(self, member: Member, terms: Mapping[Place, int] | None = None) -> None:
        """Take on a new state, and show it to the world."""
        self.member = member
        old = self.holds
        self.holds = {}
        for share, hold in member.held.items():
            place = Place(share.topic_id, share.partition)
            is_old = place in old and old[place].episode == hold
            self.holds[place] = old[place] if is_old else Hold((terms or {})[place], hold)
        self.generation = member.generation or self.generation
        self.revoked = frozenset(Place(share.topic_id, share.partition) for share in member.revoked)
        assert (self.life is None) == (member.generation == 0)


def share_of(place: Place) -> Share:
    return Share(place.topic_id.partition("-")[0], place.topic_id, place.partition)


class MemberWorld(World):
    """A world in which everybody does as the member says."""

    def _take_turn(self, client: Client) -> None:
        assert isinstance(client, Process)
        if client.member.next_call is Call.BEAT:
            self._beat(client)
        if client.member.next_call is not Call.BEAT:
            client.finish()
            request = self.send(client)
            self.under_way.remove(request)
            self.deliver(request, is_answered=True)

    def _beat(self, client: Process) -> None:
        try:
            membership.check(self.group, client.id, client.generation)
        except GroupError:
            client.stop()
        else:
            known = {"generation": client.generation, "held": len(client.member.held)}
            should = membership.should_sync(self.group, client.id, **known)
            client.be(client.member.with_beaten(should_sync=should))

    def deliver(self, request: Request, *, is_answered: bool) -> None:
        """Let a request arrive; a commit that is refused is heeded by those whom it concerns."""
        super().deliver(request, is_answered=is_answered)
        if is_answered and isinstance(request, Commit):
            self._heed(request)

    def _heed(self, request: Commit) -> None:
        client = request.client
        assert isinstance(client, Process)
        try:
            refused = refused_of(self.group, client.id, request.generation, request.holds)
        except GroupError:
            return
        client.be(client.member.with_let_go({share_of(place): request.holds[place].episode for place in refused}))


class MemberMachine(RuleBasedStateMachine):
    """Guarantees: see the assertions of World, and flotilla.client.grouping."""

    def __init__(self) -> None:
        super().__init__()
        self.world = MemberWorld(Strategy.STICKY)
        self.made = 0

    @initialize(ids=st.lists(st.sampled_from(IDS), max_size=3))
    def a_group_begins(self, ids: list[str]) -> None:
        self.make("t", 3)
        for id_ in ids:
            self.world.clients.append(Process(id_, frozenset(TOPICS)))
            self.world.take_turns()

    def make(self, topic: str, partitions: int) -> None:
        self.made += 1
        self.world.topology[topic] = Subscribed(f"{topic}-{self.made}", partitions)

    @rule(id_=st.sampled_from(IDS), topics=st.sampled_from([TOPICS, ["t"]]), data=st.data())
    def a_process_starts(self, id_: str, topics: list[str], data: st.DataObject) -> None:
        process = Process(id_, frozenset(topics))
        self.world.clients.append(process)
        self.arrives(self.world.send(process), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data(), finishes=st.booleans())
    def a_process_joins_or_syncs(self, data: st.DataObject, finishes: bool) -> None:
        client = self.one(data)
        if finishes:
            client.finish()
        self.arrives(self.world.send(client), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data())
    def a_process_commits(self, data: st.DataObject) -> None:
        self.arrives(self.world.send_commit(self.one(data)), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data())
    def a_process_leaves(self, data: st.DataObject) -> None:
        self.arrives(self.world.send_leave(self.one(data)), data)

    @rule()
    def everybody_does_as_it_is_told_for_a_while(self) -> None:
        self.world.take_turns()

    def one(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.world.clients), label="process")

    def arrives(self, request: Request, data: st.DataObject) -> None:
        fates = ["arrives", "arrives", "arrives again later", "is late", "is lost"]
        fate = data.draw(st.sampled_from(fates), label="it")
        if fate in {"arrives", "is lost"}:
            self.world.under_way.remove(request)
        if fate.startswith("arrives"):
            self.world.deliver(request, is_answered=data.draw(st.integers(0, 3), label="answered") > 0)

    @precondition(lambda self: self.world.under_way)
    @rule(data=st.data(), stays=st.booleans())
    def something_late_arrives(self, data: st.DataObject, stays: bool) -> None:
        request = data.draw(st.sampled_from(self.world.under_way))
        if not stays:
            self.world.under_way.remove(request)
        self.world.deliver(request, is_answered=data.draw(st.booleans(), label="answered"))

    @precondition(lambda self: self.world.group.members)
    @rule(data=st.data())
    def a_member_is_silent(self, data: st.DataObject) -> None:
        self.world.remove({data.draw(st.sampled_from(sorted(self.world.group.members)), label="silent")})

    @rule(topic=st.sampled_from(TOPICS), what=st.sampled_from(["is there", "grows", "goes", "is another"]))
    def a_topic_changes(self, topic: str, what: str) -> None:
        there = self.world.topology.get(topic)
        if there is None or what == "is another":
            self.make(topic, 3)
        elif what == "grows":
            self.world.topology[topic] = Subscribed(there.id, there.partitions + 1)
        elif what == "goes":
            del self.world.topology[topic]

    @rule()
    def the_sweep_comes(self) -> None:
        self.world.refit()

    @invariant()
    def whoever_lives_on_may_commit_and_nobody_else(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Once nothing is lost, everybody has its share after a few rounds."""
        self.world.heal()


MemberMachine.TestCase.settings = settings(
    settings(), max_examples=max(EXAMPLES_MIN, settings().max_examples), stateful_step_count=40
)
TestMember = MemberMachine.TestCase
