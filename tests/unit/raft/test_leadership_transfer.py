"""Leadership transfer: only to a member with all entries, only by the leader, and with a deadline."""

import pytest

from flotilla_broker.partition.appends import Failed
from flotilla_broker.raft import NotLeader, Role
from flotilla_broker.raft.messages import PreVoteRequest, TimeoutNow
from support.raftnet import RAFT, Net, Node


def led(members: int = 3) -> tuple[Net, list[Node]]:
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    return net, net.nodes


def transfer_leadership(net: Net, node: Node, target: Node | None = None) -> str:
    chosen = node.raft.transfer_leadership(net.now, target.name if target is not None else None)
    node.engine.schedule(net.key)
    node.turn()
    return chosen


def test_target_is_elected_at_once_without_a_pre_vote() -> None:
    """The other members still hear the old leader, and would grant no pre-vote."""
    net, (one, two, three) = led()
    asked = net.count_sent(kind=PreVoteRequest)
    assert transfer_leadership(net, one, two) == two.name
    net.settle()
    assert two.raft.has_committed_in_term
    assert (one.raft.role, one.raft.leader, three.raft.leader) == (Role.FOLLOWER, two.name, two.name)
    assert net.count_sent(kind=PreVoteRequest) == asked
    sent = two.append(b"x")
    net.settle()
    assert sent.offset == 0


def test_target_gets_all_entries_before_the_transfer() -> None:
    net, (one, two, _) = led()
    one.append(b"x")
    held = net.take(to=two)
    transfer_leadership(net, one, two)
    net.wait(0.1, without=(two,))
    assert net.count_sent(one, two, TimeoutNow) == 0
    net.deliver(*held)
    net.deliver(*net.take(two, one))
    assert net.count_sent(one, two, TimeoutNow) == 1
    net.settle()
    assert two.raft.has_committed_in_term
    assert two.values == [b"x"]


def test_leader_sends_timeout_now_once() -> None:
    net, (one, two, _) = led()
    transfer_leadership(net, one, two)
    lost = net.take(to=two)
    one.engine.schedule(net.key)
    one.turn()
    assert len([message_on_wire for message_on_wire in lost if isinstance(message_on_wire.message, TimeoutNow)]) == 1
    assert net.count_sent(one, two, TimeoutNow) == 1


def test_leader_accepts_no_entries_during_a_transfer() -> None:
    """An entry after the target has caught up would be missing there."""
    net, (one, two, _) = led()
    transfer_leadership(net, one, two)
    net.take(to=two)
    assert one.raft.is_leader
    assert not one.raft.accepts_entries
    sent = one.append(b"x")
    assert isinstance(sent.outcome, Failed)
    assert sent.outcome.code == "not_leader"
    with pytest.raises(NotLeader, match="transferred to"):
        one.raft.propose(b"\1", 0, 0)
    assert one.shape == [(1, 1)]


def test_leadership_transfer_is_aborted_at_its_deadline() -> None:
    net, (one, two, _) = led()
    transfer_leadership(net, one, two)
    net.take(to=two)
    net.wait(RAFT.election_s_min - 0.1, without=(two,))
    assert not one.raft.accepts_entries
    net.wait(0.2, without=(two,))
    net.take(to=two)
    assert one.raft.accepts_entries
    sent = one.append(b"x")
    net.wait(1)
    assert sent.offset == 0
    assert one.raft.term == 1


def test_timeout_now_of_another_member_or_term_is_ignored() -> None:
    """The message of pysyncobj is never forwarded; ours is obeyed only from the current leader in its term."""
    net, (one, two, three) = led()
    net.inject(three, two, TimeoutNow(1))
    net.inject(one, two, TimeoutNow(0))
    net.inject(one, two, TimeoutNow(2))
    net.inject(two, one, TimeoutNow(1))
    assert (two.raft.role, two.raft.term, one.raft.is_leader) == (Role.FOLLOWER, 1, True)
    net.take()
    net.elect(three)
    net.take()
    net.inject(one, two, TimeoutNow(2))
    net.inject(one, two, TimeoutNow(1))
    assert two.raft.role is Role.FOLLOWER
    net.inject(three, two, TimeoutNow(2))
    assert (two.raft.role, two.raft.term) == (Role.CANDIDATE, 3)


def test_late_timeout_now_costs_only_an_election() -> None:
    net, (one, two, three) = led()
    transfer_leadership(net, one, two)
    (order,) = net.take(to=two, kind=TimeoutNow)
    net.wait(3)
    sent = one.append(b"x")
    net.deliver(*net.take(one, two))
    net.deliver(order)
    net.settle()
    net.converge()
    assert sent.offset == 0
    assert one.values == two.values == three.values == [b"x"]


def test_default_target_is_the_member_with_the_most_entries() -> None:
    net, (one, two, three) = led()
    one.append(b"x")
    net.take(to=two)
    net.settle(without=(two,))
    assert one.raft.transfer_leadership(net.now) == three.name
    net.isolate(three)
    assert one.raft.transfer_leadership(net.now) == two.name


def test_leadership_transfer_needs_a_connected_member() -> None:
    net, (one, two, three) = led()
    net.isolate(two)
    with pytest.raises(NotLeader, match="no connection to"):
        one.raft.transfer_leadership(net.now, two.name)
    with pytest.raises(NotLeader, match="no connection to"):
        one.raft.transfer_leadership(net.now, one.name)
    net.isolate(three)
    with pytest.raises(NotLeader, match="any other member"):
        one.raft.transfer_leadership(net.now)
    with pytest.raises(NotLeader, match="cannot transfer leadership"):
        two.raft.transfer_leadership(net.now)
    assert one.raft.accepts_entries


def test_failed_transfer_leaves_the_group_with_a_leader() -> None:
    net, (one, two, three) = led()
    transfer_leadership(net, one, two)
    net.deliver(*net.take(one, two))
    assert two.raft.role is Role.CANDIDATE
    net.isolate(two)
    net.wait(10)
    assert one.raft.has_committed_in_term or three.raft.has_committed_in_term
    net.converge()
