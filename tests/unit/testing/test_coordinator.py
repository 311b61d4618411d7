"""Groups in memory, by a clock that a test moves."""

import secrets

import pytest

from flotilla.groups.offsets import Commit
from flotilla.groups.state import Place, Strategy
from flotilla.serving.errors import Refusal
from flotilla.testing.coordinator import Coordinator
from flotilla.testing.world import Broker, Settings, World


class Bench:
    """A coordinator with a topic of two partitions, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.world = World([Broker("a" * 32, "127.0.0.1:1")], secrets.token_bytes)
        self.topic = self.world.create("t", 2, 1, Settings())
        self.groups = Coordinator(self.world, lambda: self.now)

    def join(self, member: str, name: str = "g") -> int:
        return self.groups.join(name, member, ["t"], 1000, Strategy.STICKY).told.generation

    def place(self, partition: int = 0) -> Place:
        return Place(self.topic.id, partition)

    def commit(self, offset: int, member: tuple[str, int] | None = None) -> list[Place]:
        return self.groups.commit("g", [Commit(place=self.place(), offset=offset)], member)


def test_who_is_silent_for_too_long_is_taken_out_and_who_beats_stays() -> None:
    bench = Bench()
    one, two = bench.join("one"), bench.join("two")
    bench.now = 0.9
    bench.groups.heartbeat("g", "two", two, None)
    bench.groups.sweep()
    bench.now = 1.5
    bench.groups.sweep()
    assert list(bench.groups.require("g").members) == ["two"]
    with pytest.raises(Refusal, match="the group has no such member") as refused:
        bench.groups.heartbeat("g", "one", one, None)
    assert refused.value.code == "unknown_member"
    assert len(bench.groups.sync("g", "two", two, []).told.assigned) == 2


def test_a_group_that_is_deleted_leaves_its_generation_to_those_that_come() -> None:
    """What was said in the old one is never taken for something said in the new one."""
    bench = Bench()
    old = bench.join("one")
    bench.commit(5, ("one", old))
    bench.groups.delete("g", force=True)
    assert bench.groups.names == []
    assert bench.join("one") > old
    assert bench.groups.commits_of("g") == {}
    with pytest.raises(Refusal, match="join again"):
        bench.commit(6, ("one", old))


def test_a_topic_that_is_gone_takes_its_commits_and_partitions_along() -> None:
    bench = Bench()
    bench.commit(5)
    generation = bench.join("one")
    bench.world.delete("t")
    bench.groups.sweep()
    assert bench.groups.commits_of("g") == {}
    assert bench.groups.require("g").holdings == {}
    assert bench.groups.sync("g", "one", generation, []).told.assigned == ()


def test_partitions_that_come_are_dealt_out() -> None:
    bench = Bench()
    generation = bench.join("one")
    bench.world.grow(bench.topic, 5)
    bench.groups.sweep()
    assert bench.groups.heartbeat("g", "one", generation, 2).should_sync
    told = bench.groups.sync("g", "one", generation, [bench.place(0), bench.place(1)]).told
    assert told.assigned == tuple(bench.place(at) for at in range(5))


def test_a_commit_is_all_or_nothing() -> None:
    bench = Bench()
    one = bench.join("one")
    bench.join("two")
    both = [Commit(place=bench.place(at), offset=3) for at in (0, 1)]
    bench.groups.sync("g", "one", one, [bench.place(0), bench.place(1)])  # it hears that it is to let go of one
    bench.groups.sync("g", "one", 2, [bench.place(0)])
    two = bench.groups.sync("g", "two", 2, []).told
    assert two.assigned == (bench.place(1),)
    assert bench.groups.commit("g", both, ("one", 2)) == [bench.place(1)]
    assert bench.groups.commits_of("g") == {}
    assert bench.groups.commit("g", both[:1], ("one", 2)) == []
    assert {place.partition: commit.offset for place, commit in bench.groups.commits_of("g").items()} == {0: 3}
