"""A replica that a manager asks to campaign is elected at once, unless the group has a leader."""

from flotilla_broker.raft import Role
from flotilla_broker.raft.messages import PreVoteRequest, VoteRequest
from support.raftnet import RAFT, Net, Node


def campaign(net: Net, node: Node) -> None:
    node.engine.campaign(net.now, net.meta.key.to_bytes())
    node.turn()


def test_new_group_elects_a_leader_without_waiting() -> None:
    """Pre-vote, election and the first commit need no timeout."""
    net = Net()
    one = net.nodes[0]
    began = net.now
    campaign(net, one)
    net.settle()
    assert one.raft.has_committed_in_term
    assert net.now == began
    assert [node.raft.term for node in net.nodes] == [1, 1, 1]


def test_campaign_starts_with_a_pre_vote() -> None:
    net = Net()
    campaign(net, net.nodes[0])
    assert {type(message_on_wire.message) for message_on_wire in net.wire} == {PreVoteRequest}
    assert net.nodes[0].raft.term == 0


def test_campaign_does_not_disturb_a_leader() -> None:
    net = Net()
    one, two, _ = net.nodes
    net.elect(one)
    net.wait(RAFT.heartbeat_s)
    for node in (one, two):
        before = net.count_sent(node, kind=PreVoteRequest)
        campaign(net, node)
        assert net.count_sent(node, kind=PreVoteRequest) == before
    net.settle()
    assert one.raft.is_leader
    assert {node.raft.term for node in net.nodes} == {1}


def test_member_without_all_entries_is_not_elected() -> None:
    """Guarantee 1: acknowledged entries are kept, whichever member campaigns."""
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
    campaign(net, three)
    net.settle()
    assert net.count_sent(three, kind=VoteRequest) == 0
    assert three.raft.role is Role.FOLLOWER


def test_repeated_campaigns_do_not_prevent_the_election() -> None:
    """Replies to the first pre-vote count, although the member was asked to campaign again before they came."""
    net = Net()
    one = net.nodes[0]
    for _ in range(5):
        campaign(net, one)
    assert net.count_sent(one, kind=PreVoteRequest) == 2
    net.settle()
    assert one.raft.has_committed_in_term


def test_members_that_campaign_at_once_elect_one_leader() -> None:
    net = Net()
    for node in net.nodes:
        campaign(net, node)
    net.settle()
    assert sum(node.raft.has_committed_in_term for node in net.nodes) == 1
    assert {node.raft.term for node in net.nodes} == {1}
