"""A group compared with a model, for random steps over an unreliable network."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flotilla.groups import membership
from flotilla.groups.state import Group, GroupTopic, Strategy
from support.groupsim import Client, GroupSimulation, Leave, Request, targets_of

EXAMPLES_MIN = 300
IDS = ["a", "b", "c"]
TOPICS = ["t", "u"]
SUBSCRIPTIONS = st.sampled_from([frozenset(TOPICS), frozenset(TOPICS), frozenset("t"), frozenset("u")])
STRATEGIES = st.sampled_from([Strategy.STICKY, Strategy.STICKY, Strategy.RANGE, Strategy.ROUND_ROBIN])


class GroupMachine(RuleBasedStateMachine):
    """Guarantees: see the assertions of GroupSimulation, and flotilla.groups.membership."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = GroupSimulation(Strategy.STICKY)
        self.made = 0

    @initialize(strategy=STRATEGIES, clients=st.lists(st.tuples(st.sampled_from(IDS), SUBSCRIPTIONS), max_size=3))
    def a_group_begins(self, strategy: Strategy, clients: list[tuple[str, frozenset[str]]]) -> None:
        self.simulation = GroupSimulation(strategy)
        self.make("t", 3)
        for id_, topics in clients:
            self.simulation.clients.append(Client(id_, topics))
            self.simulation.take_turns()

    def make(self, topic: str, partitions: int) -> None:
        self.made += 1
        self.simulation.topology[topic] = GroupTopic(f"{topic}-{self.made}", partitions)

    # -- clients --------------------------------------------------------------------------------------------

    @rule(id_=st.sampled_from(IDS), topics=SUBSCRIPTIONS, data=st.data())
    def a_process_starts(self, id_: str, topics: frozenset[str], data: st.DataObject) -> None:
        """It may replace a process with the same id, which continues without knowing it."""
        client = Client(id_, topics)
        self.simulation.clients.append(client)
        self.arrives(self.simulation.send(client), data)

    @precondition(lambda self: self.simulation.clients)
    @rule(data=st.data(), finishes=st.booleans())
    def a_client_joins_or_syncs(self, data: st.DataObject, finishes: bool) -> None:
        client = self.one(data)
        if finishes:
            client.finish()
        self.arrives(self.simulation.send(client), data)

    @rule()
    def all_clients_take_a_turn(self) -> None:
        self.simulation.take_turns()

    @precondition(lambda self: self.simulation.clients)
    @rule(data=st.data())
    def a_client_commits(self, data: st.DataObject) -> None:
        self.arrives(self.simulation.send_commit(self.one(data)), data)

    @precondition(lambda self: self.simulation.clients)
    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        before = self.simulation.group
        request = self.simulation.send_leave(self.one(data))
        self.arrives(request, data)
        self.check_moves(before)

    def one(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.simulation.clients), label="client")

    # -- the network ----------------------------------------------------------------------------------------

    def arrives(self, request: Request, data: st.DataObject) -> None:
        """Let a request arrive, most of the time at once; it may also be delayed, repeated or lost."""
        outcome = data.draw(
            st.sampled_from(["arrives", "arrives", "arrives again later", "is late", "is lost"]), label="it"
        )
        if outcome in {"arrives", "is lost"}:
            self.simulation.under_way.remove(request)
        if outcome.startswith("arrives"):
            self.simulation.deliver(request, is_answered=data.draw(st.integers(0, 3), label="answered") > 0)

    @precondition(lambda self: self.simulation.under_way)
    @rule(data=st.data(), stays=st.booleans())
    def something_late_arrives(self, data: st.DataObject, stays: bool) -> None:
        request = data.draw(st.sampled_from(self.simulation.under_way))
        if not stays:
            self.simulation.under_way.remove(request)
        before = self.simulation.group
        self.simulation.deliver(request, is_answered=data.draw(st.booleans(), label="answered"))
        if isinstance(request, Leave):
            self.check_moves(before)

    # -- around the group -----------------------------------------------------------------------------------

    @precondition(lambda self: self.simulation.group.members)
    @rule(data=st.data())
    def a_member_expires(self, data: st.DataObject) -> None:
        before = self.simulation.group
        self.simulation.remove({data.draw(st.sampled_from(sorted(before.members)), label="expired")})
        self.check_moves(before)

    @rule(
        topic=st.sampled_from(TOPICS), what=st.sampled_from(["exists", "exists", "grows", "is deleted", "is recreated"])
    )
    def a_topic_changes(self, topic: str, what: str) -> None:
        there = self.simulation.topology.get(topic)
        if there is None or what == "is recreated":
            self.make(topic, 3)
        elif what == "grows":
            self.simulation.topology[topic] = GroupTopic(there.id, there.partitions + 1)
        elif what == "is deleted":
            del self.simulation.topology[topic]

    @rule()
    def the_sweep_runs(self) -> None:
        self.simulation.refit()

    # -- invariants -----------------------------------------------------------------------------------------

    def check_moves(self, before: Group) -> None:
        """A leaving member moves only its own partitions: no others get another target."""
        after = self.simulation.group
        if (
            not is_balanced(before)
            or membership.apply_topology(before, self.simulation.topology) is not before
            or not after.members
        ):
            return
        was, is_ = targets_of(before), targets_of(after)
        gone = before.members.keys() - after.members.keys()
        assert sum(was[tp] != is_[tp] for tp in was) <= sum(target in gone for target in was.values())

    @invariant()
    def only_current_members_can_commit(self) -> None:
        self.simulation.check()

    def teardown(self) -> None:
        """Without losses, the group becomes stable within a few rounds."""
        self.simulation.heal()


def is_balanced(group: Group) -> bool:
    """Return whether the sticky strategy has assigned all partitions to members with equal subscriptions."""
    shares = Counter(dict.fromkeys(group.members, 0))
    shares.update(targets_of(group).values())
    alike = len({member.topics for member in group.members.values()}) == 1
    return group.strategy == Strategy.STICKY and alike and max(shares.values()) - min(shares.values()) <= 1


GroupMachine.TestCase.settings = settings(
    settings(), max_examples=max(EXAMPLES_MIN, settings().max_examples), stateful_step_count=50
)
TestGroup = GroupMachine.TestCase
