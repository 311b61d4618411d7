"""Snapshot transfer to followers that need trimmed entries: interrupted at any message, and completed."""

from collections.abc import Callable

import msgspec
import pytest

from flotilla_broker.partition.appends import Appended, Unknown
from flotilla_broker.partition.entries import NOOP, Trim
from flotilla_broker.raft import Entry
from flotilla_broker.raft.messages import (
    Append,
    Heartbeat,
    Reply,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotReply,
    Vote,
    VoteRequest,
)
from flotilla_broker.raft.progress import Mode
from flotilla_broker.raft.snapshot_receive import UNFINISHED
from support.raftnet import RAFT, Net, Node, WireMessage

ANN = b"A" * 16
COPY = (SnapshotBegin, SnapshotChunk, SnapshotReply)


def trim(net: Net, node: Node, offset: int) -> None:
    node.partition.instruct(Trim(offset))
    node.engine.schedule(net.key)
    node.turn()
    net.settle()


def trimmed(members: int = 3, records: int = 24) -> tuple[Net, list[Node]]:
    """Return brokers of which the first leads; the last was down while the entries that it needs were trimmed."""
    net = Net(members)
    one, last = net.nodes[0], net.nodes[-1]
    net.elect(one)
    net.wait(1)
    one.append(b"first", producer=ANN)
    net.wait(1)
    net.isolate(last)
    for at in range(records):
        one.append(b"%03d" % at + bytes(200), producer=ANN, sequence=1 + at)
        net.settle()
    trim(net, one, 5)
    one.flush_all()
    net.wait(0.5)
    assert one.partition.log.anchor_index > last.partition.log.last_index
    return net, net.nodes


def check_installed(net: Net) -> None:
    """Check that all replicas are the same from the first offset on, with the same summary."""
    one, *others = net.nodes
    for other in others:
        start = max(one.partition.start_offset, other.partition.start_offset)
        ours = [b for b in one.batches if b.header.base_offset >= start]
        theirs = [b for b in other.batches if b.header.base_offset >= start]
        assert [b.header for b in ours] == [b.header for b in theirs]
        assert other.partition.start_offset == one.partition.start_offset
        assert other.partition.producers.encode() == one.partition.producers.encode()
        metas = [group.meta for group in other.log.groups.values()]
        assert metas == [net.meta.to_bytes()], "an unfinished snapshot remains"


def test_follower_that_needs_trimmed_entries_gets_a_snapshot() -> None:
    """Anchor, entries and state are installed in one step; the leader does not send in an endless loop."""
    net, (one, _, three) = trimmed()
    mark, old = len(net.sent), three.partition.log.number
    net.connect_all()
    net.settle()
    net.wait(1)
    assert three.partition.log.number != old
    assert three.partition.log.anchor_index == one.partition.log.anchor_index
    check_installed(net)
    assert len(net.sent) - mark < 80
    assert net.count_sent(one, three, SnapshotBegin) == 1
    assert three.raft.log.group.take_state is not None
    sent = one.append(b"more", producer=ANN, sequence=25)
    net.wait(1)
    assert sent.offset == 25
    check_installed(net)


def test_snapshot_without_replies_is_not_sent_repeatedly() -> None:
    """With pysyncobj alone, a leader sent 13,109 messages in 0.1 s to a follower that needed a trimmed entry."""
    net, (one, _, three) = trimmed()
    net.connect_all()
    mark = len(net.sent)
    until = net.now + 30
    while net.now < until:
        net.take(to=three)
        net.wait(0.1, without=(three,))
    to_three = [
        message_on_wire.message
        for message_on_wire in net.sent[mark:]
        if (message_on_wire.sender, message_on_wire.to) == (one.name, three.name)
    ]
    assert len(to_three) < 30 / RAFT.heartbeat_s * 2 + 100
    sizes = [sum(len(e.payload) for e in m.entries) for m in to_three if isinstance(m, SnapshotChunk)]
    copies = sum(isinstance(m, SnapshotBegin) for m in to_three)
    assert 1 <= copies <= 30 / RAFT.election_s_max + 1
    assert sum(sizes) <= copies * (RAFT.window_bytes + RAFT.append_bytes_max)
    assert any(isinstance(m, Heartbeat) for m in to_three), "heartbeats continue, so the follower starts no election"


def test_leader_counts_a_snapshot_only_when_it_is_durable() -> None:
    """The reply waits for the flush, like any other."""
    net, (one, _, three) = trimmed()
    three.slow = True
    net.connect_all()
    net.settle()
    assert one.raft.leadership is not None
    assert three.unflushed
    assert net.count_sent(three, one, SnapshotReply) == 0
    assert one.raft.leadership.progress[three.name].mode is Mode.SNAPSHOT
    net.wait(RAFT.commit_notice_s, without=(three,))
    three.flush_all()
    assert net.count_sent(three, one, SnapshotReply) > 0


def test_broker_that_crashes_during_a_snapshot_starts_with_its_old_log() -> None:
    net, (one, _, three) = trimmed()
    net.connect_all()
    net.deliver(*net.take(one, three, SnapshotBegin))
    net.deliver(net.take(one, three, SnapshotChunk)[0])
    assert three.raft.is_receiving_snapshot
    assert UNFINISHED in [group.meta for group in three.log.groups.values()]
    three.flush_all()
    three.crash()
    three.start()
    assert three.values == [b"first"]
    assert [group.meta for group in three.log.groups.values()] == [net.meta.to_bytes()]
    net.converge()
    check_installed(net)


def test_old_log_votes_until_the_snapshot_is_complete() -> None:
    net, (one, two, three) = trimmed()
    net.connect_all()
    net.deliver(*net.take(one, three, SnapshotBegin))
    net.take(three)
    last = three.shape[-1]
    net.inject(two, three, VoteRequest(7, *last))
    assert three.raft.term == 7
    assert three.partition.log.vote == two.name
    assert not three.raft.is_receiving_snapshot, "a snapshot of an earlier term is dropped"
    net.converge()
    check_installed(net)


def test_vote_survives_the_snapshot_that_replaces_the_log() -> None:
    """A snapshot is another group of the log: without the vote, a second one could be granted in the same term."""
    net, one, two, three, begin, _ = begun()
    net.inject(one, three, VoteRequest(2, 99, 1))
    assert (three.partition.log.term, three.partition.log.vote) == (2, one.name)
    net.inject(one, three, msgspec.structs.replace(begin, term=2))
    entries = [entry for entry in one.entries if entry.index <= begin.last_index]
    net.inject(one, three, SnapshotChunk(2, begin.snapshot_id, entries))
    assert three.partition.log.last_index == begin.last_index
    assert three.raft._core.commit_index == begin.last_index, "the core knows that all of it is committed"
    three.flush_all()
    for _ in range(2):
        assert (three.raft.term, three.partition.log.vote) == (2, one.name)
        net.take()
        net.inject(two, three, VoteRequest(2, 999, 2))
        three.flush_all()
        assert net.take(three, two, Vote) == []
        three.crash()
        three.start()
        net.connect_all()


def test_state_of_a_snapshot_survives_a_restart() -> None:
    """Trimmed entries cannot be read again: their producers are known only from the summary."""
    net = Net()
    one, two, three = net.nodes
    net.elect(one)
    net.wait(1)
    net.isolate(three)
    first = one.append(b"trimmed", producer=ANN)
    for at in range(8):
        one.append(b"%d" % at)
        net.settle()
    trim(net, one, 5)
    net.wait(0.5)
    net.connect_all()
    net.wait(1)
    check_installed(net)
    three.crash()
    three.start()
    assert three.partition.start_offset == 5
    assert len(three.partition.producers) == 1
    assert three.partition.producers.encode() == two.partition.producers.encode()
    net.connect_all()
    net.wait(1)
    net.elect(three)
    retry = three.append(b"trimmed", producer=ANN)
    assert retry.offset == first.offset == 0


def test_replica_is_notified_of_flushes_after_a_snapshot() -> None:
    """The snapshot is another group of the log, and flushes name it by its own number."""
    net, (one, _, three) = trimmed()
    net.connect_all()
    net.settle()
    net.wait(1)
    three.slow = True
    sent = one.append(b"more", producer=ANN, sequence=25)
    net.wait(0.1)
    assert sent.offset == 25
    before = three.partition.applied_index
    assert before == three.partition.log.last_index - 1
    three.flush_all()
    assert three.partition.applied_index == before + 1


def test_reply_to_an_earlier_snapshot_is_ignored() -> None:
    net, one, _, three, begin, _ = begun()
    net.disconnect(one, three)
    net.connect_all()
    (again,) = net.take(one, three, SnapshotBegin)
    assert isinstance(again.message, SnapshotBegin)
    assert again.message.snapshot_id == begin.snapshot_id + 1
    assert one.raft.leadership is not None
    for answer in (
        SnapshotReply(1, begin.snapshot_id, begin.last_index),
        SnapshotReply(1, begin.snapshot_id, 0, aborted=True),
    ):
        net.inject(three, one, answer)
        assert one.raft.leadership.progress[three.name].mode is Mode.SNAPSHOT
        assert one.raft.leadership.snapshots[three.name].number == again.message.snapshot_id
    net.converge()
    check_installed(net)


# -- interruptions --------------------------------------------------------------------------------------------


def nothing(net: Net) -> None:
    """Do nothing besides losing the message."""


def reconnect(net: Net) -> None:
    net.disconnect(net.nodes[0], net.nodes[-1])
    net.connect_all()


def change_leader(net: Net) -> None:
    net.elect(net.nodes[1])


def crash_follower(net: Net) -> None:
    net.nodes[-1].crash()
    net.nodes[-1].start()
    net.connect_all()


def crash_leader(net: Net) -> None:
    net.nodes[0].crash()
    net.wait(5)
    net.nodes[0].start()
    net.connect_all()


def trim_more(net: Net) -> None:
    one = net.nodes[0]
    one.partition.instruct(Trim(15))
    one.engine.schedule(net.key)
    one.turn()


def delay(net: Net) -> None:
    net.settle()
    net.wait(0.5)


def transfer_with_fault(at: int, event: Callable[[Net], None], deliveries: int) -> bool:
    """Inject a fault at the n-th message of a snapshot transfer; return False if there was no such message."""
    net, nodes = trimmed(records=16)
    net.connect_all()
    while True:
        message_on_wire = next((p for p in net.wire if isinstance(p.message, COPY)), None)
        if message_on_wire is None and not net.wire:
            return False
        if message_on_wire is not None:
            at -= 1
        if message_on_wire is not None and at < 0:
            net.wire.remove(message_on_wire)
            event(net)
            net.deliver(*[message_on_wire] * deliveries)
            break
        message_on_wire = message_on_wire or net.wire[0]
        net.wire.remove(message_on_wire)
        net.deliver(message_on_wire)
    net.converge()
    check_installed(net)
    assert len(nodes[-1].partition.producers) == 1
    leader = next(node for node in nodes if node.raft.is_leader)
    sent = leader.append(b"after", producer=ANN, sequence=17)
    net.wait(1)
    assert sent.offset == 17
    check_installed(net)
    return True


@pytest.mark.parametrize(
    ("event", "deliveries"),
    [(nothing, 0), (nothing, 2)]
    + [
        (event, deliveries)
        for event in (reconnect, change_leader, crash_follower, crash_leader, trim_more, delay)
        for deliveries in (0, 1)
    ],
)
def test_snapshot_that_is_interrupted_at_any_message_completes(event: Callable[[Net], None], deliveries: int) -> None:
    messages = 0
    while transfer_with_fault(messages, event, deliveries):
        messages += 1
    assert messages >= 6, "a SnapshotBegin, chunks with entries, and replies"


# -- late -----------------------------------------------------------------------------------------------------


def test_late_snapshot_removes_no_acknowledged_entry() -> None:
    """Messages of a snapshot arrive again when the follower has more entries."""
    net, (one, two, three) = trimmed()
    mark = len(net.sent)
    net.connect_all()
    net.settle()
    copy = [p for p in net.sent[mark:] if p.to == three.name and isinstance(p.message, COPY)]
    assert isinstance(copy[0].message, SnapshotBegin)
    net.isolate(two)
    acknowledged = [one.append(b"later %d" % at, producer=ANN, sequence=25 + at) for at in range(3)]
    net.settle()
    net.wait(0.1)
    assert all(isinstance(each.outcome, Appended) for each in acknowledged), "on two disks, one of them the third's"
    shape = three.shape
    for message_on_wire in [*copy, *copy, copy[0], copy[-1]]:
        net.deliver(message_on_wire)
        assert three.shape == shape
        assert not three.raft.is_receiving_snapshot
    three.flush_all()
    (*_, answer) = [p.message for p in net.take(three, one, SnapshotReply)]
    assert isinstance(answer, SnapshotReply)
    net.connect_all()
    net.converge()
    check_installed(net)


def test_snapshot_of_an_earlier_term_is_rejected() -> None:
    net, (one, two, three) = trimmed()
    net.connect_all()
    copy = net.take(one, three, COPY)
    net.elect(two)
    net.wait(3)
    net.take()
    for message_on_wire in copy:
        net.deliver(message_on_wire)
    answers = [p.message for p in net.take(three, one)]
    assert answers
    assert all(isinstance(a, Reply) and not a.accepted and a.term > 1 for a in answers)
    assert not three.raft.is_receiving_snapshot


# -- invalid snapshots ------------------------------------------------------------------------------------------


def begun() -> tuple[Net, Node, Node, Node, SnapshotBegin, list[SnapshotChunk]]:
    """Return a started snapshot transfer; its messages with entries were taken off the wire."""
    net, (one, two, three) = trimmed()
    net.connect_all()
    (begin,) = net.take(one, three, SnapshotBegin)
    net.deliver(begin)
    message = begin.message
    assert isinstance(message, SnapshotBegin)
    parts = [p.message for p in net.take(one, three, SnapshotChunk)]
    return net, one, two, three, message, [part for part in parts if isinstance(part, SnapshotChunk)]


def answers(net: Net, three: Node) -> list[SnapshotReply]:
    return [p.message for p in net.take(three) if isinstance(p.message, SnapshotReply)]


def test_snapshot_with_a_gap_is_aborted_and_restarted() -> None:
    net, one, _, three, begin, parts = begun()
    answers(net, three)
    net.inject(one, three, SnapshotChunk(begin.term, begin.snapshot_id, parts[0].entries[1:]))
    assert [reply.aborted for reply in answers(net, three)] == [True]
    assert not three.raft.is_receiving_snapshot
    net.inject(one, three, parts[0])
    assert [reply.aborted for reply in answers(net, three)] == [True], "the unfinished snapshot is gone"
    net.converge()
    check_installed(net)


@pytest.mark.parametrize(("ahead", "term"), [(3, 1), (0, 1), (1, 0)])
def test_snapshot_with_inconsecutive_entries_is_aborted(ahead: int, term: int) -> None:
    """Also for entries without records, whose offsets prove nothing: a gap, a repetition, a decreasing term."""
    net, one, _, three, begin, _ = begun()
    answers(net, three)
    entry = Entry(begin.anchor_index + ahead, term, begin.first_offset, 0, memoryview(NOOP))
    net.inject(one, three, SnapshotChunk(begin.term, begin.snapshot_id, [entry]))
    assert [reply.aborted for reply in answers(net, three)] == [True]
    assert three.engine.broken == {}
    net.converge()
    check_installed(net)


def test_snapshot_with_a_wrong_offset_is_aborted() -> None:
    net, one, _, three, begin, parts = begun()
    answers(net, three)
    net.inject(one, three, SnapshotChunk(begin.term, begin.snapshot_id, parts[0].entries))
    number = three.raft._snapshots.snapshot.number if three.raft._snapshots.snapshot is not None else 0
    before = three.log.group(number).last_index
    wrong = parts[0].entries[-1]
    later = type(wrong)(wrong.index + 1, wrong.term, wrong.next_offset + 1, wrong.time_ms, wrong.payload)
    answers(net, three)
    net.inject(one, three, SnapshotChunk(begin.term, begin.snapshot_id, [later]))
    assert [reply.aborted for reply in answers(net, three)] == [True]
    assert number not in three.log.groups
    assert before == wrong.index


def test_snapshot_does_not_exceed_its_last_index() -> None:
    net, one, _, three, begin, parts = begun()
    short = SnapshotBegin(
        begin.term, 9, begin.anchor_index, begin.anchor_term, begin.first_offset, begin.anchor_index + 1, 1, begin.state
    )
    net.inject(one, three, short)
    answers(net, three)
    net.inject(one, three, SnapshotChunk(begin.term, 9, parts[0].entries[:2]))
    assert [reply.aborted for reply in answers(net, three)] == [True]
    assert three.values == [b"first"]


def test_chunk_of_another_snapshot_is_rejected() -> None:
    net, one, _, three, begin, parts = begun()
    answers(net, three)
    net.inject(one, three, SnapshotChunk(begin.term, begin.snapshot_id + 1, parts[0].entries))
    assert answers(net, three) == [SnapshotReply(begin.term, begin.snapshot_id + 1, 0, aborted=True)]
    assert three.raft.is_receiving_snapshot, "the running transfer continues"
    net.inject(one, three, parts[0])
    assert [reply.index for reply in answers(net, three)] == [parts[0].entries[-1].index]


def test_snapshot_is_dropped_with_the_connection_to_its_leader() -> None:
    net, one, two, three, _, _ = begun()
    net.disconnect(two, three)
    assert three.raft.is_receiving_snapshot
    net.disconnect(one, three)
    assert not three.raft.is_receiving_snapshot
    assert [group.meta for group in three.log.groups.values()] == [net.meta.to_bytes()]


def test_snapshot_is_aborted_on_a_full_disk_and_completes_with_free_space() -> None:
    net, one, two, three, begin, parts = begun()
    three.fill_disk()
    answers(net, three)
    net.inject(one, three, parts[0])
    assert answers(net, three) == [SnapshotReply(begin.term, begin.snapshot_id, 0, aborted=True)]
    assert not three.raft.is_receiving_snapshot
    assert three.values == [b"first"]
    three.free_disk()
    net.converge()
    assert one.raft.term == 1
    assert three.values[-1] == two.values[-1]
    check_installed(net)


def test_appends_of_a_former_leader_are_unknown_after_a_snapshot() -> None:
    """Its log was replaced: nothing shows whether its entry is in the snapshot."""
    net = Net()
    one, two, three = net.nodes
    net.elect(three)
    net.wait(1)
    net.isolate(three)
    lost = three.append(b"lost?")
    net.elect(one)
    for at in range(10):
        one.append(b"%d" % at)
        net.settle()
    trim(net, one, 5)
    net.wait(1)
    assert lost.outcome is None
    net.connect_all()
    net.wait(5)
    assert net.count_sent(one, three, SnapshotBegin) == 1
    assert isinstance(lost.outcome, Unknown)
    assert b"lost?" not in three.values
    assert two.values == one.values


def test_snapshot_is_sent_up_to_the_window() -> None:
    net, (one, _, three) = trimmed(records=40)
    net.connect_all()
    for _ in range(5):
        net.wait(0.01, without=(three,))
    parts = [p.message for p in net.wire if isinstance(p.message, SnapshotChunk)]
    sizes = [sum(len(entry.payload) for entry in part.entries) for part in parts]
    assert RAFT.window_bytes <= sum(sizes) < RAFT.window_bytes + RAFT.append_bytes_max
    assert max(sizes) <= RAFT.append_bytes_max
    one.blocked.add(three.name)
    net.settle()
    assert three.raft.is_receiving_snapshot
    one.blocked.clear()
    one.engine.writable(three.name)
    one.turn()
    net.wait(1)
    check_installed(net)


def test_no_entries_are_sent_to_a_follower_during_a_snapshot() -> None:
    net, (one, _, three) = trimmed()
    net.connect_all()
    mark = len(net.sent)
    for at in range(5):
        one.append(b"new %d" % at, producer=ANN, sequence=25 + at)
        net.settle(without=(three,))
    assert not any(isinstance(p.message, Append) for p in net.sent[mark:] if p.to == three.name)
    net.wait(1)
    check_installed(net)


def test_read_that_ends_after_its_snapshot_sends_nothing() -> None:
    net, (one, _, three) = trimmed()
    one.slow_reads = True
    net.connect_all()
    net.settle()
    assert net.count_sent(one, three, SnapshotBegin) == 1
    net.disconnect(one, three)
    net.connect_all()
    net.settle()
    before = net.count_sent(one, three, SnapshotChunk)
    first = one.read_all()
    one.turn()
    assert first == 2
    assert net.count_sent(one, three, SnapshotChunk) - before == 1, "only the state of the newer snapshot"
    net.converge()
    check_installed(net)


def test_leader_that_trims_entries_of_a_snapshot_restarts_it() -> None:
    net, (one, _, three) = trimmed()
    one.slow_reads = True
    net.connect_all()
    net.settle()
    one.read_all()
    net.settle()
    trim(net, one, 20)
    for _ in range(6):
        one.flush_all()
        one.read_all()
        one.turn()
        net.settle(without=(three,))
    one.slow_reads = False
    one.read_all()
    net.wait(5)
    assert three.partition.log.anchor_index == one.partition.log.anchor_index
    check_installed(net)


def test_entries_that_arrive_in_appends_during_a_snapshot_stay() -> None:
    """Late appends of an old connection deliver all entries before the snapshot is complete, which is then dropped."""
    net = Net()
    one, two, three = net.nodes
    net.elect(one)
    net.wait(1)
    late: list[WireMessage] = []
    for at in range(10):
        one.append(b"%d" % at)
        late += net.take(one, three)
        net.settle()
    net.isolate(three)
    trim(net, one, 5)
    net.wait(0.1)
    net.connect_all()
    net.deliver(*net.take(one, three, SnapshotBegin))
    copy = net.take(one, three, SnapshotChunk)
    begin = three.raft._snapshots.snapshot.begin if three.raft._snapshots.snapshot is not None else None
    assert begin is not None
    assert begin.last_index == 12
    number = three.partition.log.number
    net.deliver(*late)
    net.inject(one, three, Append(1, 11, 1, 0, one.entries[-1:]))
    assert three.shape[-1] == one.shape[-1]
    assert three.raft.is_receiving_snapshot
    net.deliver(*copy)
    assert not three.raft.is_receiving_snapshot
    assert three.partition.log.number == number
    assert len(three.log.groups) == 1
    assert len(three.values) == 10
    assert [reply.index for reply in answers(net, three)][-1] == begin.last_index
    net.converge()
    assert two.values[-5:] == three.values[-5:]
