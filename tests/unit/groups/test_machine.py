"""A group against a model: every order of steps that Hypothesis can think of, over a network as bad as it can be."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flotilla.groups import membership
from flotilla.groups.state import Group, Strategy, Subscribed
from support.groupworld import Client, Leave, Request, World, targets_of

EXAMPLES_MIN = 300
IDS = ["a", "b", "c"]
TOPICS = ["t", "u"]
SUBSCRIPTIONS = st.sampled_from([frozenset(TOPICS), frozenset(TOPICS), frozenset("t"), frozenset("u")])
STRATEGIES = st.sampled_from([Strategy.STICKY, Strategy.STICKY, Strategy.RANGE, Strategy.ROUND_ROBIN])


class GroupMachine(RuleBasedStateMachine):
    """Guarantees: see the assertions of World, and flotilla.groups.membership."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(Strategy.STICKY)
        self.made = 0

    @initialize(strategy=STRATEGIES, clients=st.lists(st.tuples(st.sampled_from(IDS), SUBSCRIPTIONS), max_size=3))
    def a_group_begins(self, strategy: Strategy, clients: list[tuple[str, frozenset[str]]]) -> None:
        self.world = World(strategy)
        self.make("t", 3)
        for id_, topics in clients:
            self.world.clients.append(Client(id_, topics))
            self.world.take_turns()

    def make(self, topic: str, partitions: int) -> None:
        self.made += 1
        self.world.topology[topic] = Subscribed(f"{topic}-{self.made}", partitions)

    # -- clients --------------------------------------------------------------------------------------------

    @rule(id_=st.sampled_from(IDS), topics=SUBSCRIPTIONS, data=st.data())
    def a_process_starts(self, id_: str, topics: frozenset[str], data: st.DataObject) -> None:
        """It may be another one of an id that is there: the one before does not know, and goes on."""
        client = Client(id_, topics)
        self.world.clients.append(client)
        self.arrives(self.world.send(client), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data(), finishes=st.booleans())
    def a_client_joins_or_syncs(self, data: st.DataObject, finishes: bool) -> None:
        client = self.one(data)
        if finishes:
            client.finish()
        self.arrives(self.world.send(client), data)

    @rule()
    def everybody_does_as_it_is_told_for_a_while(self) -> None:
        self.world.take_turns()

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data())
    def a_client_commits(self, data: st.DataObject) -> None:
        self.arrives(self.world.send_commit(self.one(data)), data)

    @precondition(lambda self: self.world.clients)
    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        before = self.world.group
        request = self.world.send_leave(self.one(data))
        self.arrives(request, data)
        self.little_moved(before)

    def one(self, data: st.DataObject) -> Client:
        return data.draw(st.sampled_from(self.world.clients), label="client")

    # -- the network ----------------------------------------------------------------------------------------

    def arrives(self, request: Request, data: st.DataObject) -> None:
        """Let a request arrive at once, most of the time; it may stay under way too, and come again."""
        fate = data.draw(
            st.sampled_from(["arrives", "arrives", "arrives again later", "is late", "is lost"]), label="it"
        )
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
        before = self.world.group
        self.world.deliver(request, is_answered=data.draw(st.booleans(), label="answered"))
        if isinstance(request, Leave):
            self.little_moved(before)

    # -- around the group -----------------------------------------------------------------------------------

    @precondition(lambda self: self.world.group.members)
    @rule(data=st.data())
    def a_member_is_silent(self, data: st.DataObject) -> None:
        before = self.world.group
        self.world.remove({data.draw(st.sampled_from(sorted(before.members)), label="silent")})
        self.little_moved(before)

    @rule(topic=st.sampled_from(TOPICS), what=st.sampled_from(["is there", "is there", "grows", "goes", "is another"]))
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

    # -- what holds -----------------------------------------------------------------------------------------

    def little_moved(self, before: Group) -> None:
        """Who goes takes along only what was its own: as many partitions as it had get another target, and no more."""
        after = self.world.group
        if not is_fair(before) or membership.refit(before, self.world.topology) is not before or not after.members:
            return
        was, is_ = targets_of(before), targets_of(after)
        gone = before.members.keys() - after.members.keys()
        assert sum(was[place] != is_[place] for place in was) <= sum(target in gone for target in was.values())

    @invariant()
    def whoever_lives_on_may_commit_and_nobody_else(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Once nothing is lost and everybody does as it is told, all is well after a few rounds."""
        self.world.heal()


def is_fair(group: Group) -> bool:
    """Tell whether the sticky strategy has dealt everything to members that are all alike."""
    shares = Counter(dict.fromkeys(group.members, 0))
    shares.update(targets_of(group).values())
    alike = len({member.topics for member in group.members.values()}) == 1
    return group.strategy == Strategy.STICKY and alike and max(shares.values()) - min(shares.values()) <= 1


GroupMachine.TestCase.settings = settings(
    settings(), max_examples=max(EXAMPLES_MIN, settings().max_examples), stateful_step_count=50
)
TestGroup = GroupMachine.TestCase
