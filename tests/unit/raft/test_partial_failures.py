"""Failures half-way leave no state that would be acknowledged later."""

import pytest

from flotilla_broker.engine import ReplicaBroken
from flotilla_broker.partition.appends import Appended, Failed, Outcome
from flotilla_broker.partition.entries import NOOP
from flotilla_broker.partition.meta import ReplicaState
from flotilla_broker.raft import Entry
from flotilla_broker.raft.messages import Append, SnapshotBegin, SnapshotReply
from support.raftnet import Net

ANN = b"A" * 16


def boom(_: Outcome) -> None:
    raise RuntimeError("a callback that raises")


@pytest.mark.parametrize("why", ["refused", "full"])
def test_checked_but_unstored_entries_are_forgotten(why: str) -> None:
    """Otherwise a later entry at their index is mistaken for them, and an unstored retry is acknowledged."""
    net = Net()
    one, two, three = net.nodes
    net.elect(one)
    net.wait(1)
    if why == "full":
        two.fill_disk()
    one.append(b"x", producer=ANN)
    net.take(to=three)
    (message_on_wire,) = net.take(one, two)
    assert isinstance(message_on_wire.message, Append)
    good = message_on_wire.message.entries[0]
    net.take()
    bad = [Entry(3, 1, 99, 0, memoryview(NOOP))] if why == "refused" else []
    net.inject(one, two, Append(1, 1, 1, 1, [good, *bad]))
    assert len(two.shape) == 1
    net.take()
    one.crash()
    if why == "full":
        two.free_disk()
    net.elect(two)
    retry = two.append(b"x", producer=ANN)
    net.wait(1)
    assert isinstance(retry.outcome, Appended)
    assert not retry.outcome.retried
    assert two.values == three.values == [b"x"]


def test_callback_that_raises_while_an_entry_is_made_does_not_affect_others() -> None:
    """The other batches are proposed."""
    net = Net(1)
    (one,) = net.nodes
    net.wait(1)
    good = one.submit(b"1", producer=ANN)
    bad = one.submit(b"2", producer=ANN, sequence=7, then=boom)
    one.turn()
    net.wait(1)
    assert isinstance(good.outcome, Appended)
    assert isinstance(bad.outcome, Failed)
    assert one.values == [b"1"]


def test_callback_that_raises_on_a_commit_does_not_affect_others() -> None:
    """An exception in a callback stalls nothing, and no entry is applied twice."""
    net = Net()
    one, *_ = net.nodes
    net.elect(one)
    net.wait(1)
    first, second = one.submit(b"1", then=boom), one.submit(b"2")
    one.turn()
    net.settle()
    third = one.append(b"3")
    net.wait(1)
    assert [len(sent.outcomes) for sent in (first, second, third)] == [1, 1, 1]
    assert one.partition.applied_index == one.raft.commit_index == one.partition.log.last_index
    assert one.values == [b"1", b"2", b"3"]


def test_append_of_an_earlier_term_is_completed_after_a_snapshot() -> None:
    """A leader that was deposed and elected again proposes at an index that another append still waits for."""
    net = Net()
    one, two, three = net.nodes
    net.elect(one)
    net.wait(1)
    net.isolate(one)
    old = [one.append(b"%d" % at) for at in range(3)]
    net.now += 4
    net.campaign(two)
    for node in (three, two, three, two):
        net.deliver(*net.take(to=node))
    assert two.raft.is_leader
    net.take()
    net.isolate(three)
    net.connect(one, two)
    for _ in range(3):
        net.now += 0.31
        two.turn()
        net.deliver(*net.take(to=one))
        net.deliver(*net.take(sender=one, to=two))
        net.deliver(*net.take(to=one))
    net.take()
    two.crash()
    net.connect(one, three)
    net.now += 4
    net.elect(one)
    new = [one.append(b"new %d" % at) for at in range(3)]
    net.settle()
    net.wait(1)
    assert all(isinstance(sent.outcome, Appended) for sent in new)
    assert all(isinstance(sent.outcome, Failed) for sent in old)


def test_replica_out_of_service_is_not_recreated() -> None:
    """An empty replica would vote in terms in which this broker has voted."""
    net = Net()
    one, _, three = net.nodes
    net.elect(one)
    one.append(b"x")
    net.settle()
    net.wait(1)
    three.log.quarantine(three.partition.log.number, "damaged")
    three.flush_all()
    groups = len(three.log.groups)
    three.crash()
    with pytest.raises(ReplicaBroken, match="damaged"):
        three.start()
    assert len(three.log.groups) == groups
    assert not three.engine.partitions
    three.engine.drop(net.meta.key, "its data was damaged")
    assert not three.engine.broken
    assert not three.log.groups


def test_snapshot_that_finds_the_disk_full_is_retried_later() -> None:
    """Each attempt writes frames to a disk that is already full."""
    net = Net()
    one, _, three = net.nodes
    net.elect(one)
    net.wait(1)
    net.isolate(three)
    for at in range(24):
        one.append(b"%03d" % at + bytes(200))
        net.settle()
    from_index = one.partition.log.last_index
    one.log.trim(one.partition.log.number, from_index - 3)
    three.fill_disk()
    before = three.log.last_lsn
    net.connect_all()
    net.wait(10)
    assert 1 < net.count_sent(one, three, SnapshotBegin) < 12
    assert three.log.last_lsn - before < 100
    three.free_disk()
    net.wait(10)
    assert three.values == one.values


@pytest.mark.parametrize(
    "state",
    [b"garbage", ReplicaState(5, 0, 0, b"garbage").to_bytes(), ReplicaState(5, 0, 0, b"", version=2).to_bytes()],
)
def test_snapshot_with_an_invalid_state_is_not_installed(state: bytes) -> None:
    net = Net()
    one, _, three = net.nodes
    net.elect(one)
    net.wait(1)
    one.append(b"x")
    net.settle()
    net.wait(1)
    shape = three.shape
    net.take()
    net.inject(one, three, SnapshotBegin(1, 1, 10, 1, 5, 10, 1, state))
    three.flush_all()
    assert three.shape == shape
    replies = [
        message_on_wire.message
        for message_on_wire in net.take(three, one)
        if isinstance(message_on_wire.message, SnapshotReply)
    ]
    assert [reply.aborted for reply in replies] == [True]
    three.crash()
    three.start()
    assert three.values == [b"x"]


def test_followers_without_disk_space_do_not_depose_the_leader() -> None:
    """They still reply."""
    net = Net()
    one, two, three = net.nodes
    net.elect(one)
    net.wait(1)
    two.fill_disk()
    three.fill_disk()
    sent = one.append(b"x")
    net.wait(30)
    assert (one.raft.is_leader, one.raft.term, sent.outcomes) == (True, 1, [])
    two.free_disk()
    net.wait(5)
    assert isinstance(sent.outcome, Appended)
