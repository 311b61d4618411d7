"""Groups in which nothing happens fall quiet: no heartbeats, and trust in the connection instead."""

from flotilla_broker.log import EntryDamaged
from flotilla_broker.raft.messages import Append, Heartbeat, PreVote, PreVoteRequest, Quiet, Reply
from support.raftnet import RAFT, Net, Node


def quiet(members: int = 3) -> tuple[Net, list[Node]]:
    """Brokers of which the first leads, and has nothing to say any more."""
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(2)
    assert net.nodes[0].raft.leadership is not None
    assert net.nodes[0].raft.leadership.is_quiet
    return net, net.nodes


def test_a_quiet_group_sends_nothing_and_keeps_its_leader() -> None:
    net, nodes = quiet()
    mark = len(net.sent)
    net.wait(RAFT.quiet_s * 0.9)
    assert len(net.sent) == mark
    assert [node.raft.leader for node in nodes] == [nodes[0].name] * 3


def test_a_follower_does_not_trust_for_ever_and_is_reassured() -> None:
    net, nodes = quiet()
    mark = net.count_sent(kind=PreVoteRequest)
    net.wait(RAFT.quiet_s * 5)
    assert net.count_sent(kind=PreVoteRequest) > mark
    assert nodes[0].raft.is_leader
    assert {node.raft.term for node in nodes} == {1}


def test_a_quiet_group_takes_entries_at_once() -> None:
    net, nodes = quiet()
    net.wait(15)
    sent = nodes[0].append(b"x")
    net.settle()
    assert sent.offset == 0
    net.wait(RAFT.commit_notice_s + 0.001)
    assert [node.partition.applied_index for node in nodes] == [2, 2, 2]


def test_a_leader_falls_quiet_only_when_everybody_has_everything_and_knows() -> None:
    net, (one, two, three) = quiet()
    assert one.raft.leadership is not None
    net.isolate(three)
    net.wait(10)
    assert not one.raft.leadership.is_quiet
    net.connect_all()
    net.wait(2)
    assert one.raft.leadership.is_quiet
    one.append(b"x")
    net.wait(3, without=(two,))
    assert not one.raft.leadership.is_quiet
    net.wait(2)
    assert one.raft.leadership.is_quiet


def test_followers_of_a_quiet_leader_act_when_the_connection_breaks() -> None:
    net, (one, two, three) = quiet()
    net.isolate(one)
    net.wait(2 * RAFT.election_s_max)
    assert two.raft.is_leader or three.raft.is_leader
    assert not one.raft.is_leader, "it woke, and heard no majority"


def test_nobody_supports_a_candidate_while_the_connection_to_a_quiet_leader_stands() -> None:
    net, (one, two, three) = quiet()
    net.wait(10)
    net.campaign(three)
    net.settle()
    answers = [p.message for p in net.sent if p.to == three.name and isinstance(p.message, PreVote)][-2:]
    assert [isinstance(answer, PreVote) and answer.granted for answer in answers] == [False, False]
    assert (one.raft.is_leader, two.raft.term) == (True, 1)


def test_a_follower_whose_log_is_another_does_not_trust() -> None:
    """It would believe that what it holds is committed, and miss what it lacks."""
    net, (one, two, _) = quiet()
    before = two.raft.commit_index
    for index, term in ((2, 1), (1, 9), (0, 0)):
        net.tell(one, two, Quiet(1, index, term))
    assert two.raft.commit_index == before
    net.isolate(two)
    one.append(b"x")
    net.settle()
    net.connect_all()
    net.take(one, two)
    net.tell(one, two, Quiet(1, 2, 1))
    assert not two.raft.member.is_quiet
    net.wait(2)
    assert two.values == [b"x"]


def test_a_quiet_of_an_earlier_term_is_refused() -> None:
    net, (one, two, three) = quiet()
    net.elect(two)
    net.wait(2)
    net.tell(one, three, Quiet(1, *three.shape[-1]))
    (answer,) = [p.message for p in net.take(three, one)]
    assert isinstance(answer, Reply)
    assert (answer.accepted, answer.term) == (False, 2)
    assert three.raft.leader == two.name
    assert three.raft.term == 2


def test_a_quiet_commits_only_what_is_on_disk_here() -> None:
    """D."""
    net, (one, two, _) = quiet()
    two.slow = True
    one.append(b"x")
    net.deliver(*net.take(one, two, Append))
    net.tell(one, two, Quiet(1, 2, 1))
    assert two.partition.applied_index == 1
    two.flush_all()
    assert two.partition.applied_index == 2


def test_a_leader_whose_own_disk_lags_does_not_fall_quiet() -> None:
    """D: everybody else has the entry, and it is not committed."""
    net, (one, two, three) = quiet()
    one.slow = True
    one.append(b"x")
    mark = net.count_sent(kind=Quiet)
    net.wait(2)
    assert net.count_sent(kind=Quiet) == mark
    assert [node.partition.applied_index for node in (one, two, three)] == [1, 1, 1]
    one.flush_all()
    net.wait(2)
    assert net.count_sent(kind=Quiet) > mark
    assert [node.partition.applied_index for node in (one, two, three)] == [2, 2, 2]


def test_a_heartbeat_ends_the_quiet() -> None:
    net, (one, two, _) = quiet()
    assert two.raft.member.is_quiet
    net.tell(one, two, Heartbeat(1))
    assert not two.raft.member.is_quiet
    assert two.raft.deadline <= net.now + RAFT.election_s_max
    net.wait(5)
    assert two.raft.member.is_quiet


def test_a_quiet_leader_hands_over() -> None:
    net, (one, two, _) = quiet()
    one.raft.hand_over(net.now, two.name)
    one.engine.touch(net.key)
    one.turn()
    net.settle()
    assert two.raft.is_settled


def test_a_quiet_group_of_one_goes_on() -> None:
    net, (one,) = quiet(1)
    net.wait(100)
    assert one.append(b"x").offset == 0


def test_a_leader_that_loses_its_replica_does_not_leave_the_others_waiting() -> None:
    """Its broker is still connected, so they would trust in it: a last heartbeat lets them expect more."""
    net, nodes = quiet()
    leader, *others = nodes
    leader.engine.drop(net.meta.key, "it was removed")
    net.wait(RAFT.election_s_max + 1)
    assert any(node.raft.is_leader for node in others)


def test_a_leader_whose_entries_cannot_be_read_leaves_service_and_is_replaced() -> None:
    """Damage that a reader finds is told to the group, which then promises nothing any more."""
    net, nodes = quiet()
    leader, *others = nodes
    leader.engine.stop_group(leader.partition.log.number, EntryDamaged(1, 1, "segment 1"))
    assert "damaged" in leader.engine.broken[net.key][1]
    net.wait(RAFT.election_s_max + 1)
    assert any(node.raft.is_leader for node in others)


def test_an_engine_that_was_halted_says_nothing_any_more() -> None:
    """A broker that has to end must not vote or acknowledge until it does."""
    net, nodes = quiet()
    one, two, three = nodes
    two.engine.halt()
    mark = len(net.sent)
    one.append(b"x")
    net.settle(without=(three,))
    assert not [parcel for parcel in net.sent[mark:] if parcel.sender == two.name]
