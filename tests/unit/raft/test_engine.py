"""All replicas of a broker: unflushed messages, scheduling, and restarts."""

from math import inf

from flotilla_broker.partition.appends import Appended
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.raft.messages import Append, PreVoteRequest, Reply, VoteRequest
from support.raftnet import Net, Node


def led(members: int = 3) -> tuple[Net, list[Node]]:
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    return net, net.nodes


def another(net: Net, partition: int = 1) -> ReplicaMeta:
    return ReplicaMeta("t", net.meta.topic_id, partition, 1, net.meta.members)


def test_unflushed_messages_are_sent_in_order_after_their_flush() -> None:
    """Replies and votes wait for the flush of the newest frame that was queued when the message was made."""
    net, (one, two, _) = led()
    two.slow = True
    flushes = []
    for value in (b"a", b"b", b"c"):
        one.append(value)
        net.deliver(*net.take(one, two))
        flushes.append(two.unflushed[-1])
    assert two.unflushed == flushes
    assert net.take(two) == []
    two.flush_all()
    assert [p.message for p in net.take(two)] == flushes
    assert [m.index for m in flushes if isinstance(m, Reply)] == [2, 3, 4]


def test_message_is_sent_at_once_when_everything_is_durable() -> None:
    net, (one, two, _) = led()
    two.slow = True
    net.inject(one, two, Append(1, 1, 1, 1, []))
    assert len(net.take(two, kind=Reply)) == 1


def test_message_without_flush_overtakes_unflushed_messages() -> None:
    net, (one, two, _) = led()
    two.slow = True
    one.append(b"x")
    net.deliver(*net.take(one, two))
    net.now += 10
    two.turn()
    assert net.count_sent(two, kind=PreVoteRequest) >= 1
    assert len(two.unflushed) == 1


def test_replicas_of_one_broker_are_independent() -> None:
    net, (one, *others) = led()
    meta = another(net)
    for node in net.nodes:
        node.engine.open(meta, net.now)
        node.turn()
    net.wait(10)
    leaders = [node for node in net.nodes if node.engine.partitions[meta.key.to_bytes()].raft.has_committed_in_term]
    assert len(leaders) == 1
    assert one.raft.is_leader
    sent = one.append(b"x")
    net.wait(1)
    assert sent.offset == 0
    for node in (one, *others):
        assert node.values == [b"x"]
        assert node.engine.partitions[meta.key.to_bytes()].committed_offset == 0


def test_replica_can_be_opened_only_once() -> None:
    net, (one, *_) = led()
    assert one.engine.open(net.meta, net.now) is one.partition
    assert len(one.log.groups) == 1


def test_restart_opens_all_replicas() -> None:
    net, (one, *_) = led()
    meta = another(net)
    one.engine.open(meta, net.now)
    one.flush_all()
    one.crash()
    one.start()
    assert set(one.engine.partitions) == {net.key, meta.key.to_bytes()}
    assert len(one.log.groups) == 2


def test_dropped_replica_is_gone_after_a_restart() -> None:
    net, (one, two, three) = led()
    meta = another(net)
    one.engine.open(meta, net.now)
    one.flush_all()
    one.engine.drop(meta.key, "moved away")
    one.flush_all()
    net.wait(5)
    one.crash()
    one.start()
    assert set(one.engine.partitions) == {net.key}
    net.converge()
    assert two.raft.leader == three.raft.leader


def test_replica_that_is_opened_late_knows_the_connected_peers() -> None:
    net, (one, two, three) = led()
    meta = another(net)
    for node in (one, two):
        node.engine.open(meta, net.now)
        node.turn()
    net.disconnect(one, three)
    net.disconnect(two, three)
    net.wait(10)
    replicas = [node.engine.partitions[meta.key.to_bytes()] for node in (one, two)]
    assert sum(replica.raft.has_committed_in_term for replica in replicas) == 1


def test_engine_wakes_at_the_deadline_of_each_replica() -> None:
    net, nodes = led()
    for at in range(50):
        if at % 10 == 0:
            nodes[0].append(b"%d" % at)
        for node in nodes:
            deadline = node.engine.deadline
            assert (inf if deadline is None else deadline) <= node.raft.deadline
        net.wait(0.1)


def test_timers_do_not_accumulate() -> None:
    net, nodes = led()
    for at in range(200):
        nodes[0].append(b"%d" % at)
        net.settle()
    net.wait(30)
    assert max(len(node.engine._timers) for node in nodes) < 10


def test_group_whose_number_changed_is_notified_of_its_flushes() -> None:
    """After a snapshot the group has another number in the log; a flush names that one."""
    net, (one, _, three) = led()
    net.isolate(three)
    three.engine._set_number(net.key, 1)
    number = three.log.create_group(net.meta.to_bytes())
    three.engine._set_number(net.key, number)
    assert three.engine._by_number == {number: net.key}
    three.engine._set_number(net.key, 1)
    net.connect_all()
    sent = one.append(b"x")
    net.wait(1)
    assert isinstance(sent.outcome, Appended)
    assert three.partition.applied_index == 2


def test_topic_is_found_by_name_and_by_id() -> None:
    """Requests for one topic never reach another one that has its name now."""
    net, (one, *_) = led()
    old = one.engine.names["t", 0]
    by_id = f"id:{net.meta.topic_id.hex()}"
    assert one.engine.names[by_id, 0] is old
    newer = ReplicaMeta("t", net.meta.topic_id, 0, 2, net.meta.members)
    one.engine.open(newer, net.now)
    assert one.engine.names["t", 0] is one.engine.names[by_id, 0] is one.engine.partitions[newer.key.to_bytes()]
    one.engine.drop(newer.key, "removed")
    assert one.engine.names["t", 0] is one.engine.names[by_id, 0] is old
    one.engine.drop(net.meta.key, "removed")
    again = ReplicaMeta("t", b"again" + bytes(11), 0, 1, net.meta.members)
    one.engine.open(again, net.now)
    assert one.engine.names["t", 0].meta == one.engine.names[f"id:{again.topic_id.hex()}", 0].meta == again
    assert (by_id, 0) not in one.engine.names


def test_replica_that_may_not_take_part_yet_does_nothing() -> None:
    """Guarantee 1: it neither votes nor replies, whatever arrives, until it is admitted."""
    net, (one, two, three) = led()
    one.append(b"x")
    net.wait(1)
    two.crash()
    two.is_admitted = False
    before = net.count_sent(two)
    two.start()
    net.connect_all()
    one.append(b"y")
    net.inject(three, two, VoteRequest(99, 99, 99))
    net.inject(three, two, PreVoteRequest(99, 99, 99, 1))
    two.engine.campaign(net.now, net.key)
    net.wait(10)
    assert net.count_sent(two) == before
    assert two.raft.term < 99
    assert three.values == [b"x", b"y"], "the other two continue"
    net.disconnect(two, three)
    two.is_admitted = True
    two.engine.admit_waiting(net.now)
    two.turn()
    net.wait(1)
    assert two.values == [b"x", b"y"]


def test_group_of_one_is_not_led_before_it_is_admitted() -> None:
    net = Net(1)
    (one,) = net.nodes
    one.crash()
    one.is_admitted = False
    one.start()
    net.wait(10)
    assert not one.raft.is_leader
    one.is_admitted = True
    one.engine.admit_waiting(net.now)
    one.turn()
    assert one.raft.has_committed_in_term


def test_replica_that_waits_can_be_dropped() -> None:
    net, (one, *_) = led()
    one.crash()
    one.is_admitted = False
    one.start()
    one.engine.drop(net.meta.key, "moved away")
    one.engine.admit_waiting(net.now)
    assert one.engine.waiting == {}
