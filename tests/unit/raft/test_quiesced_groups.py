"""Idle groups quiesce: without heartbeats, followers rely on the connection to the leader."""

from flotilla_broker.log import EntryDamaged
from flotilla_broker.raft.messages import Append, Heartbeat, PreVote, PreVoteRequest, Quiesce, Reply
from support.raftnet import RAFT, Net, Node


def quiesced(members: int = 3) -> tuple[Net, list[Node]]:
    """Return brokers of which the first leads a quiesced group."""
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(2)
    assert net.nodes[0].raft.leadership is not None
    assert net.nodes[0].raft.leadership.is_quiesced
    return net, net.nodes


def test_quiesced_group_sends_nothing_and_keeps_its_leader() -> None:
    net, nodes = quiesced()
    mark = len(net.sent)
    net.wait(RAFT.quiesce_timeout_s * 0.9)
    assert len(net.sent) == mark
    assert [node.raft.leader for node in nodes] == [nodes[0].name] * 3


def test_follower_of_a_quiesced_leader_asks_again_after_a_while() -> None:
    net, nodes = quiesced()
    mark = net.count_sent(kind=PreVoteRequest)
    net.wait(RAFT.quiesce_timeout_s * 5)
    assert net.count_sent(kind=PreVoteRequest) > mark
    assert nodes[0].raft.is_leader
    assert {node.raft.term for node in nodes} == {1}


def test_quiesced_group_accepts_entries_at_once() -> None:
    net, nodes = quiesced()
    net.wait(15)
    sent = nodes[0].append(b"x")
    net.settle()
    assert sent.offset == 0
    net.wait(RAFT.commit_notice_s + 0.001)
    assert [node.partition.applied_index for node in nodes] == [2, 2, 2]


def test_leader_quiesces_only_when_all_followers_have_all_entries_and_the_commit_index() -> None:
    net, (one, two, three) = quiesced()
    assert one.raft.leadership is not None
    net.isolate(three)
    net.wait(10)
    assert not one.raft.leadership.is_quiesced
    net.connect_all()
    net.wait(2)
    assert one.raft.leadership.is_quiesced
    one.append(b"x")
    net.wait(3, without=(two,))
    assert not one.raft.leadership.is_quiesced
    net.wait(2)
    assert one.raft.leadership.is_quiesced


def test_followers_of_a_quiesced_leader_elect_when_the_connection_is_lost() -> None:
    net, (one, two, three) = quiesced()
    net.isolate(one)
    net.wait(2 * RAFT.election_s_max)
    assert two.raft.is_leader or three.raft.is_leader
    assert not one.raft.is_leader, "the leader woke up and reached no majority"


def test_candidate_gets_no_pre_votes_while_followers_are_connected_to_a_quiesced_leader() -> None:
    net, (one, two, three) = quiesced()
    net.wait(10)
    net.campaign(three)
    net.settle()
    answers = [p.message for p in net.sent if p.to == three.name and isinstance(p.message, PreVote)][-2:]
    assert [isinstance(answer, PreVote) and answer.granted for answer in answers] == [False, False]
    assert (one.raft.is_leader, two.raft.term) == (True, 1)


def test_follower_with_another_log_does_not_quiesce() -> None:
    """It would treat its own entries as committed, and miss those that it lacks."""
    net, (one, two, _) = quiesced()
    before = two.raft.commit_index
    for index, term in ((2, 1), (1, 9), (0, 0)):
        net.inject(one, two, Quiesce(1, index, term))
    assert two.raft.commit_index == before
    net.isolate(two)
    one.append(b"x")
    net.settle()
    net.connect_all()
    net.take(one, two)
    net.inject(one, two, Quiesce(1, 2, 1))
    assert not two.raft.member.is_quiesced
    net.wait(2)
    assert two.values == [b"x"]


def test_quiesce_of_an_earlier_term_is_rejected() -> None:
    net, (one, two, three) = quiesced()
    net.elect(two)
    net.wait(2)
    net.inject(one, three, Quiesce(1, *three.shape[-1]))
    (answer,) = [p.message for p in net.take(three, one)]
    assert isinstance(answer, Reply)
    assert (answer.accepted, answer.term) == (False, 2)
    assert three.raft.leader == two.name
    assert three.raft.term == 2


def test_quiesce_commits_only_durable_entries() -> None:
    """A follower acts on a commit only up to its durable index."""
    net, (one, two, _) = quiesced()
    two.slow = True
    one.append(b"x")
    net.deliver(*net.take(one, two, Append))
    net.inject(one, two, Quiesce(1, 2, 1))
    assert two.partition.applied_index == 1
    two.flush_all()
    assert two.partition.applied_index == 2


def test_leader_with_a_lagging_disk_does_not_quiesce() -> None:
    """All followers have the entry on disk, but it is not committed before it is on the leader's disk."""
    net, (one, two, three) = quiesced()
    one.slow = True
    one.append(b"x")
    mark = net.count_sent(kind=Quiesce)
    net.wait(2)
    assert net.count_sent(kind=Quiesce) == mark
    assert [node.partition.applied_index for node in (one, two, three)] == [1, 1, 1]
    one.flush_all()
    net.wait(2)
    assert net.count_sent(kind=Quiesce) > mark
    assert [node.partition.applied_index for node in (one, two, three)] == [2, 2, 2]


def test_heartbeat_ends_quiescence() -> None:
    net, (one, two, _) = quiesced()
    assert two.raft.member.is_quiesced
    net.inject(one, two, Heartbeat(1))
    assert not two.raft.member.is_quiesced
    assert two.raft.deadline <= net.now + RAFT.election_s_max
    net.wait(5)
    assert two.raft.member.is_quiesced


def test_quiesced_leader_transfers_leadership() -> None:
    net, (one, two, _) = quiesced()
    one.raft.transfer_leadership(net.now, two.name)
    one.engine.schedule(net.key)
    one.turn()
    net.settle()
    assert two.raft.has_committed_in_term


def test_quiesced_group_of_one_accepts_entries() -> None:
    net, (one,) = quiesced(1)
    net.wait(100)
    assert one.append(b"x").offset == 0


def test_leader_that_loses_its_replica_ends_quiescence() -> None:
    """Its broker is still connected, so followers would rely on it: a last heartbeat restarts their timeouts."""
    net, nodes = quiesced()
    leader, *others = nodes
    leader.engine.drop(net.meta.key, "it was removed")
    net.wait(RAFT.election_s_max + 1)
    assert any(node.raft.is_leader for node in others)


def test_leader_with_unreadable_entries_leaves_service_and_is_replaced() -> None:
    """Damage that a read detects is reported to the group, which then acknowledges nothing more."""
    net, nodes = quiesced()
    leader, *others = nodes
    leader.engine.take_out_of_service(leader.partition.log.number, EntryDamaged(1, 1, "segment 1"))
    assert "damaged" in leader.engine.broken[net.key][1]
    net.wait(RAFT.election_s_max + 1)
    assert any(node.raft.is_leader for node in others)


def test_halted_engine_sends_nothing() -> None:
    """A broker that must stop does not vote or acknowledge until it has."""
    net, nodes = quiesced()
    one, two, three = nodes
    two.engine.halt()
    mark = len(net.sent)
    one.append(b"x")
    net.settle(without=(three,))
    assert not [message_on_wire for message_on_wire in net.sent[mark:] if message_on_wire.sender == two.name]
