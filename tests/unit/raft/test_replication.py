"""Replication: messages of the leader, entries that followers store, and commits."""

import pytest

from flotilla.records import assign, encode
from flotilla_broker.log import LogError
from flotilla_broker.partition.appends import Appended, Failed
from flotilla_broker.partition.entries import NOOP, RECORDS, Trim
from flotilla_broker.raft import Entry, NotLeader
from flotilla_broker.raft.guards import are_consecutive
from flotilla_broker.raft.messages import Append, Heartbeat, PreVoteRequest, Reply
from flotilla_broker.raft.progress import Mode
from support.raftnet import RAFT, Net, Node, WireMessage


def led(members: int = 3) -> tuple[Net, list[Node]]:
    """Return brokers of which the first leads; entry 1 is its no-op, and all know that it is committed."""
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    return net, net.nodes


def indexes(message_on_wire: list[WireMessage]) -> list[int]:
    """Return the indexes of the entries in messages, in order."""
    return [
        entry.index
        for message_on_wire in message_on_wire
        if isinstance(message_on_wire.message, Append)
        for entry in message_on_wire.message.entries
    ]


def noop(index: int, term: int, next_offset: int = 0) -> Entry:
    return Entry(index, term, next_offset, 0, memoryview(NOOP))


def replies(message_on_wire: list[WireMessage]) -> list[Reply]:
    return [
        message_on_wire.message for message_on_wire in message_on_wire if isinstance(message_on_wire.message, Reply)
    ]


# -- durability -------------------------------------------------------------------------------------------


def test_reply_is_sent_after_the_flush_of_its_entries() -> None:
    """Otherwise a follower acknowledges entries that are lost in a crash."""
    net, (one, two, _) = led()
    two.slow = True
    one.append(b"x")
    net.deliver(*net.take(one, two))
    assert two.values == [b"x"]
    assert net.take(two) == []
    two.flush_all()
    (reply,) = replies(net.take(two))
    assert (reply.accepted, reply.index) == (True, 2)


def test_reply_waits_for_its_own_flush_and_not_for_an_earlier_one() -> None:
    net, (one, two, _) = led()
    two.slow = True
    one.append(b"x")
    net.deliver(*net.take(one, two))
    flush = two.begin_flush()
    assert flush is not None
    one.append(b"y")
    net.deliver(*net.take(one, two))
    two.end_flush(flush)
    assert [reply.index for reply in replies(net.take(two))] == [2]
    two.flush_all()
    assert [reply.index for reply in replies(net.take(two))] == [3]


def test_leader_may_send_entries_before_they_are_durable() -> None:
    net, (one, two, three) = led()
    one.slow = True
    one.append(b"x")
    assert indexes(net.take(one, two)) == indexes(net.take(one, three)) == [2]


@pytest.mark.parametrize(("members", "needed"), [(1, 0), (3, 1), (5, 2)])
def test_entry_is_committed_when_durable_on_a_majority_and_on_the_leader(members: int, needed: int) -> None:
    """In pysyncobj, the leader counts itself even if its entry is not durable."""
    net, (one, *others) = led(members)
    one.slow = True
    sent = one.append(b"x")
    net.settle()
    assert sent.outcome is None, "all others have it, and the leader's own disk has not"
    assert one.raft.commit_index == 1
    one.flush_all()
    assert sent.offset == 0

    one.slow = False
    for other in others:
        other.slow = True
    sent = one.append(b"y")
    net.settle()
    for other in others[: max(0, needed - 1)]:
        other.flush_all()
    net.settle()
    if needed:
        assert sent.outcome is None
        others[needed - 1].flush_all()
        net.settle()
    assert sent.offset == 1


def test_new_leader_commits_earlier_entries_only_with_a_durable_entry_of_its_term() -> None:
    """Raft's figure 8: before that, another member could be elected whose log has other entries there."""
    net, (one, two, three) = led()
    net.isolate(one)
    net.isolate(two)
    one.append(b"found")  # of term 1, only on this disk
    net.wait(20)
    assert not one.raft.is_leader
    net.connect_all()
    one.slow = True
    net.campaign(one)
    net.settle()
    while not one.raft.is_leader:  # its vote for itself must be durable before it requests others
        assert one.flush()
        net.settle()
    assert two.partition.log.durable_index > one.partition.log.durable_index, "its no-op is on their disks alone"
    net.settle()
    assert one.raft.commit_index == 1
    assert {node.partition.committed_offset for node in (one, two, three)} == {0}
    one.flush_all()
    net.settle()
    assert one.values == two.values == three.values == [b"found"]
    assert one.partition.committed_offset == 1


def test_group_of_one_commits_only_durable_entries() -> None:
    """There are no replies to wait for; the flush of the leader decides."""
    net, (one,) = led(1)
    one.slow = True
    sent = one.append(b"x")
    assert one.raft.commit_index == 1
    flush = one.begin_flush()
    assert flush is not None
    one.turn()
    assert sent.outcome is None
    one.end_flush(flush)
    assert sent.offset == 0
    assert net.sent == []


def test_follower_applies_a_commit_only_when_the_entry_is_durable() -> None:
    net, (one, two, _) = led()
    two.slow = True
    one.append(b"x")
    net.settle()
    net.wait(0.5)
    assert one.raft.commit_index == 2
    assert two.partition.applied_index == 1
    two.flush_all()
    assert two.partition.applied_index == 2


def test_flush_that_ends_after_a_truncation_does_not_make_replaced_entries_durable() -> None:
    """The entry that has the index now is not on disk."""
    net, (one, two, _) = led()
    net.isolate(one)
    one.slow = True
    one.append(b"x")
    flush = one.begin_flush()
    assert flush is not None
    net.connect_all()
    net.take()
    net.inject(two, one, Append(2, 1, 1, 1, [noop(2, 2)]))
    assert one.shape == [(1, 1), (2, 2)]
    one.end_flush(flush)
    assert one.partition.log.durable_index == 1
    net.inject(two, one, Append(2, 2, 2, 2, []))
    assert net.take(one) == []
    assert one.partition.applied_index == 1
    one.flush_all()
    assert (one.partition.log.durable_index, one.partition.applied_index) == (2, 2)
    assert {reply.index for reply in replies(net.take(one))} == {2}


# -- late replies -----------------------------------------------------------------------------------------


def test_reply_of_an_earlier_term_is_not_counted() -> None:
    """The leader was deposed and elected again; the follower has replaced the entries that it had accepted."""
    net, (one, two, three) = led()
    one.slow = True
    for value in (b"a", b"b", b"c"):
        one.submit(value)
        one.partition.propose()
    one.engine.schedule(net.key)
    one.turn()
    while net.wire:
        net.take(to=three)
        net.deliver(*net.take(to=two))
        old = net.take(two, one)
    assert [reply.index for reply in replies(old)] == [4]
    one.crash()  # its entries were not durable, and are lost
    one.slow = False
    one.start()
    net.connect_all()
    net.isolate(two)
    net.elect(three)
    net.connect_all()
    net.wait(1)
    assert one.shape == two.shape == three.shape == [(1, 1), (2, 2)]
    net.elect(one)
    net.isolate(one)
    sent = one.append(b"d")
    assert one.shape[-1] == (4, 3)
    net.deliver(*old)
    assert sent.outcome is None
    assert one.raft.commit_index == 3
    assert one.raft.leadership is not None
    assert one.raft.leadership.progress[two.name].match_index < 4


def test_reply_beyond_the_last_index_counts_up_to_the_last_index() -> None:
    net, (one, two, _) = led()
    net.inject(two, one, Reply(1, accepted=True, index=99))
    assert one.raft.leadership is not None
    assert one.raft.leadership.progress[two.name].match_index == 1
    sent = one.append(b"x")
    assert sent.outcome is None


# -- late and repeated appends ----------------------------------------------------------------------------


def test_late_or_repeated_append_removes_no_entry() -> None:
    """In pysyncobj, it deletes every entry after `prevLogIdx`, also those that match and were acknowledged."""
    net, (one, two, _) = led()
    appends = []
    for value in (b"a", b"b", b"c", b"d"):
        sent = one.append(value)
        copies = net.take(one, two, Append)
        appends += copies
        net.deliver(*copies)
        net.settle()
        assert isinstance(sent.outcome, Appended)
    generation = two.partition.log.group.generation
    for message_on_wire in [*appends, *reversed(appends), *appends]:
        net.deliver(message_on_wire)
        assert two.values == [b"a", b"b", b"c", b"d"]
    assert two.partition.log.group.generation == generation, "nothing was truncated, not even briefly"
    assert {reply.index for reply in replies(net.take(two))} == {2, 3, 4, 5}


def test_reordered_appends_are_all_stored() -> None:
    net, (one, two, three) = led()
    for value in (b"a", b"b", b"c"):
        one.append(value)
    net.take(to=three)
    net.deliver(*reversed(net.take(one, two)))
    net.wait(1)
    assert two.values == three.values == [b"a", b"b", b"c"]


def test_pipelined_entries_are_sent_once() -> None:
    """In pysyncobj a successful reply moves the next index back, and the window is sent again."""
    net, (one, two, three) = led()
    delayed: list[WireMessage] = []
    for at in range(30):
        one.append(b"%d" % at)
        net.deliver(*net.take(one, two), *net.take(one, three))
        delayed += net.take(to=one)
        if at % 3 == 2:
            net.deliver(delayed.pop(0))
    net.deliver(*delayed)
    net.wait(1)
    for peer in (two, three):
        seen = indexes([message_on_wire for message_on_wire in net.sent if message_on_wire.to == peer.name])
        assert sorted(seen) == list(range(1, 32)), "each once"
    assert len(two.values) == 30


def test_diverged_former_leader_rejoins_with_several_messages_in_flight() -> None:
    """In pysyncobj each message in flight is rejected, each rejection resets the next index, and the oldest wins."""
    net, (one, two, three) = led()
    net.isolate(one)
    lost = [one.append(b"lost %d" % at) for at in range(8)]
    net.elect(two)
    for at in range(6):
        two.append(b"kept %d" % at)
        net.settle()
    net.connect_all()
    assert two.raft.leadership is not None
    two.raft.leadership.progress[one.name].mode = Mode.STREAM  # so that several are in flight
    two.raft.leadership.progress[one.name].next_index = 9
    for at in range(6, 9):
        two.append(b"kept %d" % at)
    under_way = net.take(two, one)
    assert len(under_way) > 1
    net.deliver(*under_way)
    refusals = net.take(one, two)
    assert sum(not reply.accepted for reply in replies(refusals)) > 1
    net.deliver(*reversed(refusals))
    before = len(net.sent)
    net.wait(1)
    assert one.values == two.values == three.values == [b"kept %d" % at for at in range(9)]
    assert len(net.sent) - before < 60
    assert all(isinstance(each.outcome, Failed) for each in lost)


# -- what a follower accepts ------------------------------------------------------------------------------


def test_append_of_an_earlier_term_is_rejected_with_the_current_term() -> None:
    net, (one, two, three) = led()
    net.elect(two)
    net.take()
    net.inject(one, three, Append(1, 1, 1, 1, [noop(2, 1), noop(3, 1)]))
    assert replies(net.take(three, one)) == [Reply(2, accepted=False, index=1)]
    assert three.shape == two.shape
    net.inject(one, three, Heartbeat(1))
    assert replies(net.take(three, one)) == [Reply(2, accepted=False, index=0)]
    assert three.raft.leader == two.name


def test_commit_index_counts_only_for_verified_entries() -> None:
    """In pysyncobj an append without entries can mark conflicting entries as committed."""
    net, (one, two, three) = led()
    net.isolate(one)
    one.append(b"x")
    one.append(b"y")
    assert one.shape == [(1, 1), (2, 1), (3, 1)]
    net.connect_all()
    net.take()
    net.inject(two, one, Append(5, 1, 1, 3, []))
    assert one.raft.commit_index == 1
    net.inject(two, one, Append(5, 3, 5, 3, []))
    assert one.raft.commit_index == 1, "the previous entry differs"
    net.inject(two, one, Heartbeat(5))
    assert one.raft.commit_index == 1
    net.inject(two, one, Append(5, 1, 1, 9, [noop(2, 5)]))
    assert one.raft.commit_index == 2
    assert one.shape == [(1, 1), (2, 5)]
    assert three.shape == [(1, 1)]


def batch_entry(index: int, base_offset: int, next_offset: int) -> Entry:
    batch = encode([b"v"])
    assign(batch, base_offset, 0)
    return Entry(index, 1, next_offset, 0, memoryview(RECORDS + batch))


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([batch_entry(2, 7, 8)], "offset 7: must be 0"),
        ([batch_entry(2, 0, 9)], "has next offset 9: its records end at 1"),
        ([batch_entry(2, 0, 1), batch_entry(3, 5, 6)], "offset 5: must be 1"),
        ([noop(2, 1, next_offset=4)], "no records"),
        ([batch_entry(3, 0, 1)], "are not consecutive"),
        ([batch_entry(2, 0, 1), batch_entry(2, 1, 2)], "are not consecutive"),
        ([Entry(2, 0, 0, 0, memoryview(NOOP))], "are not consecutive"),
        ([Entry(2, 1, 0, 0, memoryview(b"\2pickle"))], "unknown type"),
        ([Entry(2, 1, 0, 0, memoryview(b""))], "unknown type"),
        ([Entry(2, 1, 0, 0, memoryview(NOOP + b"\xff"))], "unknown instruction"),
        ([Entry(2, 1, 0, 0, memoryview(RECORDS))], "its records end at"),
        ([Entry(2, 1, 0, 0, memoryview(RECORDS + b"garbage"))], "invalid batch"),
    ],
)
def test_invalid_entry_is_rejected_and_not_stored(
    entries: list[Entry], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither stalls the replica nor is it applied; valid entries are stored afterwards."""
    net, (one, two, three) = led()
    net.inject(one, two, Append(1, 1, 1, 3, entries))
    assert two.engine.rejected == 1
    assert why in caplog.text
    assert two.shape == [(1, 1)]
    assert net.take(two) == []
    sent = one.append(b"x", producer=b"A" * 16)
    net.settle()
    net.wait(1)
    assert sent.offset == 0
    assert two.values == three.values == [b"x"]
    assert two.partition.producers.encode() == three.partition.producers.encode()


def test_replica_whose_log_fails_stops_and_the_broker_continues(caplog: pytest.LogCaptureFixture) -> None:
    net, (one, two, _) = led()
    two.log.quarantine(two.partition.log.number, "a test says so")
    one.append(b"x")
    net.settle()
    assert "replica out of service" in caplog.text
    assert net.key in two.engine.broken
    assert net.key not in two.engine.partitions
    net.inject(one, two, Heartbeat(1))
    net.wait(5)
    assert one.raft.is_leader


# -- windows, and followers that do not reply ---------------------------------------------------------------


def test_follower_that_never_replies_gets_at_most_a_window() -> None:
    """Without a limit, one slow follower took the leader to 1.2 GB in 5 s."""
    net, (one, two, three) = led()
    mark = len(net.sent)
    for at in range(100):
        one.append(b"%03d" % at + bytes(300))
        net.deliver(*net.take(one, two))
        net.deliver(*net.take(two, one))
        net.take(to=three)
    sizes = [
        sum(len(entry.payload) for entry in message_on_wire.message.entries)
        for message_on_wire in net.sent[mark:]
        if message_on_wire.to == three.name and isinstance(message_on_wire.message, Append)
    ]
    assert RAFT.window_bytes <= sum(sizes) < RAFT.window_bytes + RAFT.append_bytes_max
    assert one.raft.leadership is not None
    assert one.raft.leadership.progress[three.name].inflight_bytes == sum(sizes)
    assert len(two.values) == 100
    net.wait(2)
    assert three.values == two.values


def test_message_size_is_limited() -> None:
    net, (one, two, three) = led()
    net.isolate(three)
    for at in range(40):
        one.append(b"%03d" % at + bytes(200))
        net.settle()
    net.connect_all()
    net.wait(2)
    assert three.values == two.values
    for message_on_wire in net.sent:
        if isinstance(message_on_wire.message, Append) and len(message_on_wire.message.entries) > 1:
            assert sum(len(entry.payload) for entry in message_on_wire.message.entries) <= RAFT.append_bytes_max


def test_window_is_filled_in_one_run_with_messages_of_limited_size() -> None:
    """Also with entries that are still in memory, and without replies in between."""
    net, (one, two, three) = led()
    one.slow = True
    one.blocked.add(three.name)
    for at in range(20):
        one.submit(b"%03d" % at + bytes(400))
        one.partition.propose()
    one.turn()
    net.take(to=two)
    assert indexes(net.take(one, three)) == []
    one.blocked.clear()
    one.engine.writable(three.name)
    one.turn()
    messages = [message_on_wire.message for message_on_wire in net.take(one, three, Append)]
    sizes = [sum(len(e.payload) for e in message.entries) for message in messages if isinstance(message, Append)]
    assert len(sizes) > 2
    assert max(sizes) <= RAFT.append_bytes_max
    assert RAFT.window_bytes <= sum(sizes) < RAFT.window_bytes + RAFT.append_bytes_max


def test_large_messages_are_not_sent_on_a_congested_connection() -> None:
    net, (one, two, three) = led()
    one.blocked.add(three.name)
    mark = len(net.sent)
    sent = one.append(b"x")
    net.settle()
    net.wait(2)
    assert isinstance(sent.outcome, Appended)
    to_three = [message_on_wire for message_on_wire in net.sent[mark:] if message_on_wire.to == three.name]
    assert indexes(to_three) == []
    assert len(to_three) >= 5, "heartbeats continue, so the follower starts no election"
    assert three.raft.leader == one.name
    one.blocked.clear()
    one.engine.writable(three.name)
    one.turn()
    net.settle()
    assert three.values == two.values == [b"x"]


def test_lost_message_is_repeated_after_a_heartbeat() -> None:
    net, (one, two, three) = led()
    one.append(b"x")
    net.take(to=three)
    one.append(b"y")
    net.take(to=three)
    net.wait(2 * RAFT.heartbeat_s + 0.01)
    assert three.values == two.values == [b"x", b"y"]


def test_followers_learn_of_a_commit_soon_without_other_messages() -> None:
    net, (one, two, three) = led()
    one.append(b"x")
    net.settle()
    assert (two.partition.applied_index, three.partition.applied_index) == (1, 1)
    net.wait(RAFT.commit_notice_s + 0.001)
    assert (two.partition.applied_index, three.partition.applied_index) == (2, 2)


def test_idle_leader_sends_few_messages() -> None:
    net, (one, *_) = led()
    mark = len(net.sent)
    net.wait(30)
    heartbeats = 30 / RAFT.heartbeat_s
    assert len(net.sent) - mark <= 4 * (heartbeats + 1)
    assert one.raft.is_leader


# -- reads ----------------------------------------------------------------------------------------------------


def behind(net: Net, one: Node, three: Node) -> None:
    """Make the third broker miss entries that the leader has to read from disk."""
    net.isolate(three)
    for at in range(10):
        one.append(b"%d" % at + bytes(200))
        net.settle()
    one.slow_reads = True
    net.connect_all()
    net.settle()


def test_entries_are_read_from_disk_without_blocking() -> None:
    net, (one, two, three) = led()
    behind(net, one, three)
    net.wait(1)
    assert three.values == []
    for _ in range(10):
        one.read_all()
        one.turn()
        net.settle()
        net.wait(0.1)
    one.slow_reads = False
    net.wait(1)
    assert three.values == two.values
    assert len(three.values) == 10


def test_read_that_ends_after_the_leadership_sends_nothing() -> None:
    net, (one, two, three) = led()
    behind(net, one, three)
    net.wait(1)
    mark = net.count_sent(one, kind=Append)
    net.elect(two)
    assert one.read_all() > 0
    one.turn()
    assert net.count_sent(one, kind=Append) == mark
    net.converge()


def test_read_from_before_a_reconnect_sends_nothing() -> None:
    net, (one, two, three) = led()
    behind(net, one, three)
    net.disconnect(one, three)
    mark = net.count_sent(one, three)
    one.read_all()
    assert net.count_sent(one, three) == mark
    net.converge()
    assert three.values == two.values


def test_read_that_a_reply_made_obsolete_sends_only_consecutive_entries() -> None:
    """The follower has those entries already; the next message starts after them."""
    net, (one, two, three) = led()
    behind(net, one, three)
    net.wait(1)
    mark = len(net.sent)
    net.inject(two, three, Append(1, 1, 1, 1, one.entries[1:5]))  # as if an earlier connection had delivered them
    net.deliver(*[message_on_wire._replace(to=one.name) for message_on_wire in net.take(three)])
    assert one.raft.leadership is not None
    assert one.raft.leadership.progress[three.name].next_index == 6
    one.read_all()
    one.turn()
    for message_on_wire in net.sent[mark:]:
        message = message_on_wire.message
        if isinstance(message, Append):
            assert are_consecutive(message.prev_index, message.prev_term, message.entries)
    net.converge()
    assert three.values == two.values


# -- full disks -----------------------------------------------------------------------------------------------


def test_follower_with_a_full_disk_acknowledges_nothing_and_deposes_no_leader() -> None:
    """It keeps following, and catches up when there is free space."""
    net, (one, two, three) = led()
    three.fill_disk()
    mark = len(net.sent)
    sent = [one.append(b"%d" % at + bytes(200)) for at in range(5)]
    net.wait(30)
    assert all(isinstance(each.outcome, Appended) for each in sent)
    assert three.shape == [(1, 1)]
    assert not any(
        reply.accepted and reply.index > 1 for reply in replies([p for p in net.sent[mark:] if p.sender == three.name])
    )
    assert net.count_sent(kind=PreVoteRequest) == 2, "of the first election"
    assert (one.raft.is_leader, one.raft.term) == (True, 1)
    assert len(net.sent) - mark < 1000
    three.free_disk()
    net.wait(2)
    assert three.values == two.values
    assert len(three.values) == 5


def test_trim_reaches_followers_whose_disks_are_full() -> None:
    """A trim frees space: if it needed free space, a full cluster could never recover."""
    net, (one, two, three) = led()
    for at in range(10):
        one.append(b"%d" % at)
        net.settle()
    net.wait(1)
    two.fill_disk()
    three.fill_disk()
    one.partition.instruct(Trim(6))
    one.engine.schedule(net.key)
    one.turn()
    net.wait(2)
    assert [node.partition.start_offset for node in net.nodes] == [6, 6, 6]
    sent = one.append(b"more")
    net.settle()
    assert sent.outcome is None, "records wait for room all the same"
    assert len(two.values) == len(three.values) == 4


# -- proposing ------------------------------------------------------------------------------------------------


def test_only_a_leader_accepts_entries() -> None:
    net, (_, two, _) = led()
    with pytest.raises(NotLeader):
        two.raft.propose(NOOP, 0, 0)
    with pytest.raises(NotLeader):
        two.submit(b"x")
    assert two.shape == [(1, 1)]
    assert net.meta


def test_entry_of_an_earlier_term_is_committed_only_with_an_entry_of_the_leader_s_term() -> None:
    """Figure 8 of the paper: on a majority, and still replaced by a later leader."""
    net, (one, two, three) = led()
    net.isolate(three)
    one.append(b"x")
    net.deliver(*net.take(one, two))
    net.take()
    net.isolate(one)
    net.connect(two, three)
    net.now += 5
    two.raft._core.election_at = three.raft._core.election_at = net.now + 3
    net.campaign(two)
    for _ in range(2):
        net.deliver(*net.take(two, three))
        net.deliver(*net.take(three, two))
    assert two.raft.is_leader
    assert two.shape == [(1, 1), (2, 1), (3, 2)]
    assert two.raft.leadership is not None
    net.take()
    net.inject(two, three, Append(2, 1, 1, 1, two.entries[1:2]))
    net.deliver(*net.take(three, two))
    assert two.raft.leadership.progress[three.name].match_index == 2
    assert two.raft.commit_index == 1
    net.settle()
    assert two.raft.commit_index == 3


def test_closed_group_sends_nothing() -> None:
    net, (one, _, three) = led()
    behind(net, one, three)
    mark = len(net.sent)
    one.engine.drop(net.meta.key, "a test says so")
    one.read_all()
    one.turn()
    assert len(net.sent) == mark
    with pytest.raises((LogError, KeyError)):
        one.partition.log.log.group(1)
