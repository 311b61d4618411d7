"""In-memory consumer groups, with a clock that the test controls."""

import secrets

import pytest

from flotilla.groups.offsets import Commit
from flotilla.groups.state import PartitionId, Strategy
from flotilla.protocol.errors import Refusal
from flotilla.testing.coordinator import Coordinator
from flotilla.testing.state import Broker, ClusterState, Settings


class Bench:
    """A coordinator with a topic of two partitions, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state = ClusterState([Broker("a" * 32, "broker-1", "127.0.0.1:1")], secrets.token_bytes)
        self.topic = self.state.create("t", 2, 1, Settings())
        self.groups = Coordinator(self.state, lambda: self.now)

    def join(self, member: str, name: str = "g") -> int:
        return self.groups.join(name, member, ["t"], 1000, Strategy.STICKY).assignment.generation

    def tp(self, partition: int = 0) -> PartitionId:
        return PartitionId(self.topic.id, partition)

    def commit(self, offset: int, member: tuple[str, int] | None = None) -> list[PartitionId]:
        return self.groups.commit("g", [Commit(tp=self.tp(), offset=offset)], member)


def test_member_without_heartbeats_expires() -> None:
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
    assert len(bench.groups.sync("g", "two", two, []).assignment.assigned) == 2


def test_recreated_group_starts_above_the_deleted_generation() -> None:
    """Requests for the deleted group are never accepted by the new one."""
    bench = Bench()
    old = bench.join("one")
    bench.commit(5, ("one", old))
    bench.groups.delete("g", force=True)
    assert bench.groups.names == []
    assert bench.join("one") > old
    assert bench.groups.commits_of("g") == {}
    with pytest.raises(Refusal, match="join again"):
        bench.commit(6, ("one", old))


def test_deleted_topic_removes_its_commits_and_assignments() -> None:
    bench = Bench()
    bench.commit(5)
    generation = bench.join("one")
    bench.state.delete("t")
    bench.groups.sweep()
    assert bench.groups.commits_of("g") == {}
    assert bench.groups.require("g").holdings == {}
    assert bench.groups.sync("g", "one", generation, []).assignment.assigned == ()


def test_new_partitions_are_assigned() -> None:
    bench = Bench()
    generation = bench.join("one")
    bench.state.grow(bench.topic, 5)
    bench.groups.sweep()
    assert bench.groups.heartbeat("g", "one", generation, 2).should_sync
    assignment = bench.groups.sync("g", "one", generation, [bench.tp(0), bench.tp(1)]).assignment
    assert assignment.assigned == tuple(bench.tp(at) for at in range(5))


def test_commit_is_atomic() -> None:
    bench = Bench()
    one = bench.join("one")
    bench.join("two")
    both = [Commit(tp=bench.tp(at), offset=3) for at in (0, 1)]
    bench.groups.sync("g", "one", one, [bench.tp(0), bench.tp(1)])  # the response revokes one of them
    bench.groups.sync("g", "one", 2, [bench.tp(0)])
    two = bench.groups.sync("g", "two", 2, []).assignment
    assert two.assigned == (bench.tp(1),)
    assert bench.groups.commit("g", both, ("one", 2)) == [bench.tp(1)]
    assert bench.groups.commits_of("g") == {}
    assert bench.groups.commit("g", both[:1], ("one", 2)) == []
    assert {tp.partition: commit.offset for tp, commit in bench.groups.commits_of("g").items()} == {0: 3}
