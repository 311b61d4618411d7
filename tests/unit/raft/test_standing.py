"""A replica that is asked to stand gets elected at once, and disturbs nobody if there is a leader."""

from flotilla_broker.raft import Role
from flotilla_broker.raft.messages import PreVoteRequest, VoteRequest
from support.raftnet import RAFT, Net, Node


def stand(net: Net, node: Node) -> None:
    node.engine.stand(net.now, net.meta.key.to_bytes())
    node.turn()


def test_a_new_group_has_a_leader_without_waiting() -> None:
    """Not a moment passes: it asks, it is supported, it is elected, it settles."""
    net = Net()
    one = net.nodes[0]
    began = net.now
    stand(net, one)
    net.settle()
    assert one.raft.is_settled
    assert net.now == began
    assert [node.raft.term for node in net.nodes] == [1, 1, 1]


def test_it_asks_first_as_always() -> None:
    net = Net()
    stand(net, net.nodes[0])
    assert {type(parcel.message) for parcel in net.wire} == {PreVoteRequest}
    assert net.nodes[0].raft.term == 0


def test_a_group_with_a_leader_is_not_disturbed() -> None:
    net = Net()
    one, two, _ = net.nodes
    net.elect(one)
    net.wait(RAFT.heartbeat_s)
    for node in (one, two):
        before = net.count_sent(node, kind=PreVoteRequest)
        stand(net, node)
        assert net.count_sent(node, kind=PreVoteRequest) == before
    net.settle()
    assert one.raft.is_leader
    assert {node.raft.term for node in net.nodes} == {1}


def test_one_that_lacks_entries_is_not_elected() -> None:
    """Guarantee 1: whoever is asked to stand, what was acknowledged stays."""
    net = Net()
    one, _, three = net.nodes
    net.elect(one)
    net.isolate(three)
    one.append(b"acknowledged")
    net.settle()
    one.crash()
    net.take()
    net.connect_all()
    net.now += RAFT.election_s_max
    stand(net, three)
    net.settle()
    assert net.count_sent(three, kind=VoteRequest) == 0
    assert three.raft.role is Role.FOLLOWER


def test_to_be_asked_again_and_again_does_not_keep_it_from_being_elected() -> None:
    """The answers to the first question count, though it was asked to stand again before they came."""
    net = Net()
    one = net.nodes[0]
    for _ in range(5):
        stand(net, one)
    assert net.count_sent(one, kind=PreVoteRequest) == 2
    net.settle()
    assert one.raft.is_settled


def test_everybody_who_is_asked_at_once_gives_one_leader() -> None:
    net = Net()
    for node in net.nodes:
        stand(net, node)
    net.settle()
    assert sum(node.raft.is_settled for node in net.nodes) == 1
    assert {node.raft.term for node in net.nodes} == {1}
