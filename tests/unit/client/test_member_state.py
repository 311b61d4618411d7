"""Group members against the real group, over a network that Hypothesis makes lose, repeat and delay requests.

The simulation, its model of sessions and terms, and its invariants are those of the tests of `flotilla.groups`; here
the simulated processes run the client's member state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flotilla.client.member_state import Assignment, GroupRequest, MemberState
from flotilla.client.positions import TopicIdPartition
from flotilla.groups import membership
from flotilla.groups.membership import GroupError
from flotilla.groups.state import GroupTopic, PartitionId, Strategy
from support.groupsim import Client, Commit, GroupSimulation, Hold, Request, Response, refused_of

EXAMPLES_MIN = 300
IDS = ["a", "b", "c"]
TOPICS = ["t", "u"]
ONE, TWO = TopicIdPartition("t", "t-1", 0), TopicIdPartition("t", "t-1", 1)


def assignment(
    generation: int, assigned: tuple[TopicIdPartition, ...] = (), revoked: tuple[TopicIdPartition, ...] = ()
) -> Assignment:
    return Assignment(generation=generation, assigned=assigned, revoked=revoked)


def test_member_joins_then_sends_heartbeats_and_syncs_on_request() -> None:
    """The next request follows from the last response."""
    member = MemberState()
    assert member.next_request is GroupRequest.JOIN
    member = member.with_joined(assignment(1, (ONE, TWO)))
    assert (member.next_request, set(member.owned)) == (GroupRequest.HEARTBEAT, {ONE, TWO})
    assert member.with_heartbeat(should_sync=False).next_request is GroupRequest.HEARTBEAT
    assert member.with_heartbeat(should_sync=True).next_request is GroupRequest.SYNC


def test_member_owns_revoked_partition_until_it_releases_it() -> None:
    """No other member gets a partition before its owner has released it."""
    member = MemberState().with_joined(assignment(1, (ONE, TWO))).with_assignment(assignment(2, (ONE,), (TWO,)))
    assert (set(member.owned), set(member.revoked), member.next_request) == ({ONE, TWO}, {TWO}, GroupRequest.HEARTBEAT)
    member = member.with_released({TWO: member.owned[TWO]})
    assert (set(member.owned), set(member.revoked), member.next_request) == ({ONE}, set(), GroupRequest.SYNC)


def test_member_drops_partition_that_is_neither_assigned_nor_revoked() -> None:
    """Another member may own it already."""
    member = MemberState().with_joined(assignment(1, (ONE, TWO))).with_assignment(assignment(3, (ONE,)))
    assert set(member.owned) == {ONE}


def test_rejected_commit_of_an_old_claim_keeps_the_new_claim() -> None:
    """A commit that was in flight while a partition was lost and assigned again does not affect the new claim."""
    member = MemberState().with_joined(assignment(1, (ONE,)))
    old = dict(member.owned)
    member = member.with_assignment(assignment(2)).with_assignment(assignment(3, (ONE,)))
    assert member.with_released(old) is member


def test_error_of_an_old_session_does_not_end_the_new_session() -> None:
    """A late error response does not affect a member that has rejoined."""
    member = MemberState().with_joined(assignment(1, (ONE,)))
    ended = member.with_session_ended(member.session)
    assert (ended.next_request, ended.owned) == (GroupRequest.JOIN, {})
    again = ended.with_joined(assignment(5, (ONE,)))
    assert again.with_session_ended(member.session) is again


def test_member_is_replaced_only_if_its_chosen_id_joined_elsewhere() -> None:
    """Two processes with one id would replace each other forever; a late join of its own is no replacement."""
    member = MemberState().with_joined(assignment(1))
    assert member.is_replaced("stale_generation", is_id_given=True)
    assert not member.is_replaced("stale_generation", is_id_given=False)
    assert not member.is_replaced("unknown_member", is_id_given=True)
    in_doubt = MemberState().with_unanswered_join().with_joined(assignment(2))
    assert not in_doubt.is_replaced("stale_generation", is_id_given=True)


@dataclass(eq=False)
class Process(Client):
    """A simulated process that runs the client's member state. The simulation checks `holds` and other fields."""

    member: MemberState = field(default_factory=MemberState)

    def finish(self) -> None:
        """Release revoked partitions."""
        self.be(self.member.with_released({share: self.member.owned[share] for share in self.member.revoked}))

    def stop(self) -> None:
        """Handle the end of the session."""
        super().stop()
        self.be(self.member.with_session_ended(self.member.session))

    def receive(self, answer: Response, episodes: "count[int]") -> None:  # noqa: ARG002 - the member state numbers its claims
        """Apply a response to a join or a sync."""
        assigned, revoked = (
            tuple(map(id_partition_of, ones)) for ones in (answer.assignment.assigned, answer.assignment.revoked)
        )
        found = assignment(answer.assignment.generation, assigned, revoked)
        is_join = self.member.next_request is GroupRequest.JOIN
        self.life, self.waits_for = answer.life, None
        self.be(self.member.with_joined(found) if is_join else self.member.with_assignment(found), answer.terms)

    def be(self, member: MemberState, terms: Mapping[PartitionId, int] | None = None) -> None:
        """Adopt a new state, and copy it to the fields that the simulation checks."""
        self.member = member
        old = self.holds
        self.holds = {}
        for share, claim in member.owned.items():
            place = PartitionId(share.topic_id, share.partition)
            is_same = place in old and old[place].episode == claim
            self.holds[place] = old[place] if is_same else Hold((terms or {})[place], claim)
        self.generation = member.generation or self.generation
        self.revoked = frozenset(PartitionId(share.topic_id, share.partition) for share in member.revoked)
        assert (self.life is None) == (member.generation == 0)


def id_partition_of(place: PartitionId) -> TopicIdPartition:
    return TopicIdPartition(place.topic_id.partition("-")[0], place.topic_id, place.partition)


class MemberWorld(GroupSimulation):
    """A simulation in which all processes send the requests of their member state."""

    def _take_turn(self, client: Client) -> None:
        assert isinstance(client, Process)
        if client.member.next_request is GroupRequest.HEARTBEAT:
            self._send_heartbeat(client)
        if client.member.next_request is not GroupRequest.HEARTBEAT:
            client.finish()
            request = self.send(client)
            self.under_way.remove(request)
            self.deliver(request, is_answered=True)

    def _send_heartbeat(self, client: Process) -> None:
        try:
            membership.check(self.group, client.id, client.generation)
        except GroupError:
            client.stop()
        else:
            known = {"generation": client.generation, "held": len(client.member.owned)}
            should = membership.should_sync(self.group, client.id, **known)
            client.be(client.member.with_heartbeat(should_sync=should))

    def deliver(self, request: Request, *, is_answered: bool) -> None:
        """Deliver a request; apply a rejected commit to the member state."""
        super().deliver(request, is_answered=is_answered)
        if is_answered and isinstance(request, Commit):
            self._apply_rejection(request)

    def _apply_rejection(self, request: Commit) -> None:
        client = request.client
        assert isinstance(client, Process)
        try:
            refused = refused_of(self.group, client.id, request.generation, request.holds)
        except GroupError:
            return
        client.be(
            client.member.with_released({id_partition_of(place): request.holds[place].episode for place in refused})
        )


class MemberMachine(RuleBasedStateMachine):
    """Guarantees: see the assertions of GroupSimulation, and flotilla.client.member_state."""

    def __init__(self) -> None:
        super().__init__()
        self.world = MemberWorld(Strategy.STICKY)
        self.made = 0

    @initialize(ids=st.lists(st.sampled_from(IDS), max_size=3))
    def group_starts(self, ids: list[str]) -> None:
        self.make("t", 3)
        for id_ in ids:
            self.world.clients.append(Process(id_, frozenset(TOPICS)))
            self.world.take_turns()

    def make(self, topic: str, partitions: int) -> None:
        self.made += 1
        self.world.topology[topic] = GroupTopic(f"{topic}-{self.made}", partitions)

    @rule(id_=st.sampled_from(IDS), topics=st.sampled_from([TOPICS, ["t"]]), data=st.data())
    def process_starts(self, id_: str, topics: list[str], data: st.DataObject) -> None:
        process = Process(id_, frozenset(topics))
        self.world.clients.append(process)
        self.arrives(self.world.send(process), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data(), finishes=st.booleans())
    def process_joins_or_syncs(self, data: st.DataObject, finishes: bool) -> None:
        client = self.one(data)
        if finishes:
            client.finish()
        self.arrives(self.world.send(client), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data())
    def process_commits(self, data: st.DataObject) -> None:
        self.arrives(self.world.send_commit(self.one(data)), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data())
    def process_leaves(self, data: st.DataObject) -> None:
        self.arrives(self.world.send_leave(self.one(data)), data)

    @rule()
    def all_processes_take_turns(self) -> None:
        self.world.take_turns()

    def one(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.world.clients), label="process")

    def arrives(self, request: Request, data: st.DataObject) -> None:
        outcomes = ["arrives", "arrives", "arrives again later", "is late", "is lost"]
        outcome = data.draw(st.sampled_from(outcomes), label="it")
        if outcome in {"arrives", "is lost"}:
            self.world.under_way.remove(request)
        if outcome.startswith("arrives"):
            self.world.deliver(request, is_answered=data.draw(st.integers(0, 3), label="answered") > 0)

    @precondition(lambda self: self.world.under_way)
    @rule(data=st.data(), stays=st.booleans())
    def late_request_arrives(self, data: st.DataObject, stays: bool) -> None:
        request = data.draw(st.sampled_from(self.world.under_way))
        if not stays:
            self.world.under_way.remove(request)
        self.world.deliver(request, is_answered=data.draw(st.booleans(), label="answered"))

    @precondition(lambda self: self.world.group.members)
    @rule(data=st.data())
    def member_expires(self, data: st.DataObject) -> None:
        self.world.remove({data.draw(st.sampled_from(sorted(self.world.group.members)), label="expired")})

    @rule(topic=st.sampled_from(TOPICS), what=st.sampled_from(["is created", "grows", "is deleted", "is recreated"]))
    def topic_changes(self, topic: str, what: str) -> None:
        known = self.world.topology.get(topic)
        if known is None or what == "is recreated":
            self.make(topic, 3)
        elif what == "grows":
            self.world.topology[topic] = GroupTopic(known.id, known.partitions + 1)
        elif what == "is deleted":
            del self.world.topology[topic]

    @rule()
    def sweep_runs(self) -> None:
        self.world.refit()

    @invariant()
    def only_current_owners_may_commit(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """When no request is lost, every member has its partitions after a few rounds."""
        self.world.heal()


MemberMachine.TestCase.settings = settings(
    settings(), max_examples=max(EXAMPLES_MIN, settings().max_examples), stateful_step_count=40
)
TestMember = MemberMachine.TestCase
