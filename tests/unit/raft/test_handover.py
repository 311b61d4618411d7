"""Leadership that is handed over: only to one that has everything, only by the leader, and only for a while."""

import pytest

from flotilla_broker.partition.outcomes import Failed
from flotilla_broker.raft import NotLeader, Role
from flotilla_broker.raft.messages import PreVoteRequest, TimeoutNow
from support.raftnet import RAFT, Net, Node


def led(members: int = 3) -> tuple[Net, list[Node]]:
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    return net, net.nodes


def hand_over(net: Net, node: Node, target: Node | None = None) -> str:
    chosen = node.raft.hand_over(net.now, target.name if target is not None else None)
    node.engine.touch(net.key)
    node.turn()
    return chosen


def test_the_target_leads_at_once_and_without_a_pre_vote() -> None:
    """Everybody still hears the old leader, and would not support anybody."""
    net, (one, two, three) = led()
    asked = net.count_sent(kind=PreVoteRequest)
    assert hand_over(net, one, two) == two.name
    net.settle()
    assert two.raft.is_settled
    assert (one.raft.role, one.raft.leader, three.raft.leader) == (Role.FOLLOWER, two.name, two.name)
    assert net.count_sent(kind=PreVoteRequest) == asked
    sent = two.append(b"x")
    net.settle()
    assert sent.offset == 0


def test_the_target_has_everything_first() -> None:
    net, (one, two, _) = led()
    one.append(b"x")
    held = net.take(to=two)
    hand_over(net, one, two)
    net.wait(0.1, without=(two,))
    assert net.count_sent(one, two, TimeoutNow) == 0
    net.deliver(*held)
    net.deliver(*net.take(two, one))
    assert net.count_sent(one, two, TimeoutNow) == 1
    net.settle()
    assert two.raft.is_settled
    assert two.values == [b"x"]


def test_the_order_is_given_once() -> None:
    net, (one, two, _) = led()
    hand_over(net, one, two)
    lost = net.take(to=two)
    one.engine.touch(net.key)
    one.turn()
    assert len([parcel for parcel in lost if isinstance(parcel.message, TimeoutNow)]) == 1
    assert net.count_sent(one, two, TimeoutNow) == 1


def test_nothing_is_taken_meanwhile() -> None:
    """What came in after the target caught up would be missing there."""
    net, (one, two, _) = led()
    hand_over(net, one, two)
    net.take(to=two)
    assert one.raft.is_leader
    assert not one.raft.takes_entries
    sent = one.append(b"x")
    assert isinstance(sent.outcome, Failed)
    assert sent.outcome.code == "not_leader"
    with pytest.raises(NotLeader, match="handed over to"):
        one.raft.propose(b"\1", 0, 0)
    assert one.shape == [(1, 1)]


def test_a_handover_is_given_up_at_its_deadline() -> None:
    net, (one, two, _) = led()
    hand_over(net, one, two)
    net.take(to=two)
    net.wait(RAFT.election_s_min - 0.1, without=(two,))
    assert not one.raft.takes_entries
    net.wait(0.2, without=(two,))
    net.take(to=two)
    assert one.raft.takes_entries
    sent = one.append(b"x")
    net.wait(1)
    assert sent.offset == 0
    assert one.raft.term == 1


def test_an_order_of_somebody_else_or_of_another_term_is_ignored() -> None:
    """The stock core's own message is never passed on; ours is obeyed only if it is the leader's, and of now."""
    net, (one, two, three) = led()
    net.tell(three, two, TimeoutNow(1))
    net.tell(one, two, TimeoutNow(0))
    net.tell(one, two, TimeoutNow(2))
    net.tell(two, one, TimeoutNow(1))
    assert (two.raft.role, two.raft.term, one.raft.is_leader) == (Role.FOLLOWER, 1, True)
    net.take()
    net.elect(three)
    net.take()
    net.tell(one, two, TimeoutNow(2))
    net.tell(one, two, TimeoutNow(1))
    assert two.raft.role is Role.FOLLOWER
    net.tell(three, two, TimeoutNow(2))
    assert (two.raft.role, two.raft.term) == (Role.CANDIDATE, 3)


def test_a_late_order_costs_an_election_and_nothing_else() -> None:
    net, (one, two, three) = led()
    hand_over(net, one, two)
    (order,) = net.take(to=two, kind=TimeoutNow)
    net.wait(3)
    sent = one.append(b"x")
    net.deliver(*net.take(one, two))
    net.deliver(order)
    net.settle()
    net.converge()
    assert sent.offset == 0
    assert one.values == two.values == three.values == [b"x"]


def test_by_default_it_goes_to_the_one_that_has_most() -> None:
    net, (one, two, three) = led()
    one.append(b"x")
    net.take(to=two)
    net.settle(without=(two,))
    assert one.raft.hand_over(net.now) == three.name
    net.isolate(three)
    assert one.raft.hand_over(net.now) == two.name


def test_there_is_nobody_to_hand_over_to_without_a_connection() -> None:
    net, (one, two, three) = led()
    net.isolate(two)
    with pytest.raises(NotLeader, match="no connection to"):
        one.raft.hand_over(net.now, two.name)
    with pytest.raises(NotLeader, match="no connection to"):
        one.raft.hand_over(net.now, one.name)
    net.isolate(three)
    with pytest.raises(NotLeader, match="any other member"):
        one.raft.hand_over(net.now)
    with pytest.raises(NotLeader, match="cannot hand over"):
        two.raft.hand_over(net.now)
    assert one.raft.takes_entries


def test_a_target_that_cannot_win_leaves_the_group_with_a_leader() -> None:
    net, (one, two, three) = led()
    hand_over(net, one, two)
    net.deliver(*net.take(one, two))
    assert two.raft.role is Role.CANDIDATE
    net.isolate(two)
    net.wait(10)
    assert one.raft.is_settled or three.raft.is_settled
    net.converge()
