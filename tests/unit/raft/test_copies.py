"""Copies of the log, for followers that need what was trimmed: interrupted anywhere, and finished in the end."""

from collections.abc import Callable

import msgspec
import pytest

from flotilla_broker.partition.entries import NOOP, Trim
from flotilla_broker.partition.outcomes import Appended, Unknown
from flotilla_broker.raft import Entry
from flotilla_broker.raft.copying import UNFINISHED
from flotilla_broker.raft.messages import Append, CopyBegin, CopyEntries, CopyReply, Heartbeat, Reply, Vote, VoteRequest
from flotilla_broker.raft.progress import Mode
from support.raftnet import RAFT, Net, Node, Parcel

ANN = b"A" * 16
COPY = (CopyBegin, CopyEntries, CopyReply)


def trim(net: Net, node: Node, offset: int) -> None:
    node.partition.instruct(Trim(offset))
    node.engine.touch(net.key)
    node.turn()
    net.settle()


def trimmed(members: int = 3, records: int = 24) -> tuple[Net, list[Node]]:
    """Brokers of which the first leads, and the last was away until what it needs was trimmed. It is still away."""
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


def check_copied(net: Net) -> None:
    """All hold the same from the first offset on, with the same summary."""
    one, *others = net.nodes
    for other in others:
        start = max(one.partition.start_offset, other.partition.start_offset)
        ours = [b for b in one.batches if b.header.base_offset >= start]
        theirs = [b for b in other.batches if b.header.base_offset >= start]
        assert [b.header for b in ours] == [b.header for b in theirs]
        assert other.partition.start_offset == one.partition.start_offset
        assert other.partition.producers.encode() == one.partition.producers.encode()
        metas = [group.meta for group in other.log.groups.values()]
        assert metas == [net.meta.to_bytes()], "a copy is left over"


def test_a_follower_behind_the_first_entry_gets_a_copy() -> None:
    """G5: anchor, entries and summary, in one step; and no endless sending."""
    net, (one, _, three) = trimmed()
    mark, old = len(net.sent), three.partition.log.number
    net.connect_all()
    net.settle()
    net.wait(1)
    assert three.partition.log.number != old
    assert three.partition.log.anchor_index == one.partition.log.anchor_index
    check_copied(net)
    assert len(net.sent) - mark < 80
    assert net.count_sent(one, three, CopyBegin) == 1
    assert three.raft.log.group.take_state is not None
    sent = one.append(b"more", producer=ANN, sequence=25)
    net.wait(1)
    assert sent.offset == 25
    check_copied(net)


def test_a_copy_that_nobody_answers_is_not_sent_again_and_again() -> None:
    """G5: the stock core sent 13,109 messages in a tenth of a second."""
    net, (one, _, three) = trimmed()
    net.connect_all()
    mark = len(net.sent)
    until = net.now + 30
    while net.now < until:
        net.take(to=three)
        net.wait(0.1, without=(three,))
    to_three = [parcel.message for parcel in net.sent[mark:] if (parcel.sender, parcel.to) == (one.name, three.name)]
    assert len(to_three) < 30 / RAFT.heartbeat_s * 2 + 100
    sizes = [sum(len(e.payload) for e in m.entries) for m in to_three if isinstance(m, CopyEntries)]
    copies = sum(isinstance(m, CopyBegin) for m in to_three)
    assert 1 <= copies <= 30 / RAFT.election_s_max + 1
    assert sum(sizes) <= copies * (RAFT.window_bytes + RAFT.append_bytes_max)
    assert any(isinstance(m, Heartbeat) for m in to_three), "it must not lose patience meanwhile"


def test_the_leader_does_not_count_a_copy_before_it_is_on_disk() -> None:
    """D: the answer is held like any other."""
    net, (one, _, three) = trimmed()
    three.slow = True
    net.connect_all()
    net.settle()
    assert one.raft.leadership is not None
    assert three.held
    assert net.count_sent(three, one, CopyReply) == 0
    assert one.raft.leadership.progress[three.name].mode is Mode.COPY
    net.wait(RAFT.commit_notice_s, without=(three,))
    three.flush_all()
    assert net.count_sent(three, one, CopyReply) > 0


def test_a_broker_that_crashes_during_a_copy_starts_with_its_old_log() -> None:
    net, (one, _, three) = trimmed()
    net.connect_all()
    net.deliver(*net.take(one, three, CopyBegin))
    net.deliver(net.take(one, three, CopyEntries)[0])
    assert three.raft.is_copying
    assert UNFINISHED in [group.meta for group in three.log.groups.values()]
    three.flush_all()
    three.crash()
    three.start()
    assert three.values == [b"first"]
    assert [group.meta for group in three.log.groups.values()] == [net.meta.to_bytes()]
    net.converge()
    check_copied(net)


def test_the_old_log_votes_as_before_until_the_copy_is_whole() -> None:
    net, (one, two, three) = trimmed()
    net.connect_all()
    net.deliver(*net.take(one, three, CopyBegin))
    net.take(three)
    last = three.shape[-1]
    net.tell(two, three, VoteRequest(7, *last))
    assert three.raft.term == 7
    assert three.partition.log.vote == two.name
    assert not three.raft.is_copying, "a copy of an earlier term is given up"
    net.converge()
    check_copied(net)


def test_a_vote_survives_the_copy_that_takes_the_log_s_place() -> None:
    """The copy is another group of the log: with no vote in it, a second one could be given in the same term."""
    net, one, two, three, begin, _ = begun()
    net.tell(one, three, VoteRequest(2, 99, 1))
    assert (three.partition.log.term, three.partition.log.vote) == (2, one.name)
    net.tell(one, three, msgspec.structs.replace(begin, term=2))
    entries = [entry for entry in one.entries if entry.index <= begin.last_index]
    net.tell(one, three, CopyEntries(2, begin.copy, entries))
    assert three.partition.log.last_index == begin.last_index
    assert three.raft._core.commit_index == begin.last_index, "the core knows that all of it is committed"
    three.flush_all()
    for _ in range(2):
        assert (three.raft.term, three.partition.log.vote) == (2, one.name)
        net.take()
        net.tell(two, three, VoteRequest(2, 999, 2))
        three.flush_all()
        assert net.take(three, two, Vote) == []
        three.crash()
        three.start()
        net.connect_all()


def test_the_summary_of_a_copy_survives_a_restart() -> None:
    """What was trimmed cannot be read again: who sent it is known from the summary alone."""
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
    check_copied(net)
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


def test_a_replica_that_was_copied_hears_when_its_entries_are_durable() -> None:
    """The copy is another group of the log, with a number of its own, by which a flush names it."""
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


def test_an_answer_about_an_earlier_copy_says_nothing_of_this_one() -> None:
    net, one, _, three, begin, _ = begun()
    net.disconnect(one, three)
    net.connect_all()
    (again,) = net.take(one, three, CopyBegin)
    assert isinstance(again.message, CopyBegin)
    assert again.message.copy == begin.copy + 1
    assert one.raft.leadership is not None
    for answer in (CopyReply(1, begin.copy, begin.last_index), CopyReply(1, begin.copy, 0, given_up=True)):
        net.tell(three, one, answer)
        assert one.raft.leadership.progress[three.name].mode is Mode.COPY
        assert one.raft.leadership.copies[three.name].number == again.message.copy
    net.converge()
    check_copied(net)


# -- interrupted ----------------------------------------------------------------------------------------------


def nothing(net: Net) -> None:
    """Nothing but what happens to the message."""


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
    one.engine.touch(net.key)
    one.turn()


def delay(net: Net) -> None:
    net.settle()
    net.wait(0.5)


def copy_with_fault(at: int, event: Callable[[Net], None], deliveries: int) -> bool:
    """Let something happen at the n-th message of a copy; return False if there was no such message."""
    net, nodes = trimmed(records=16)
    net.connect_all()
    while True:
        parcel = next((p for p in net.wire if isinstance(p.message, COPY)), None)
        if parcel is None and not net.wire:
            return False
        if parcel is not None:
            at -= 1
        if parcel is not None and at < 0:
            net.wire.remove(parcel)
            event(net)
            net.deliver(*[parcel] * deliveries)
            break
        parcel = parcel or net.wire[0]
        net.wire.remove(parcel)
        net.deliver(parcel)
    net.converge()
    check_copied(net)
    assert len(nodes[-1].partition.producers) == 1
    leader = next(node for node in nodes if node.raft.is_leader)
    sent = leader.append(b"after", producer=ANN, sequence=17)
    net.wait(1)
    assert sent.offset == 17
    check_copied(net)
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
def test_a_copy_that_is_interrupted_at_any_message_is_finished_in_the_end(
    event: Callable[[Net], None], deliveries: int
) -> None:
    messages = 0
    while copy_with_fault(messages, event, deliveries):
        messages += 1
    assert messages >= 6, "one to begin, some with entries, and answers"


# -- late -----------------------------------------------------------------------------------------------------


def test_a_late_copy_takes_away_nothing_that_was_acknowledged_since() -> None:
    """Messages of a copy that come again, when the follower has gone on."""
    net, (one, two, three) = trimmed()
    mark = len(net.sent)
    net.connect_all()
    net.settle()
    copy = [p for p in net.sent[mark:] if p.to == three.name and isinstance(p.message, COPY)]
    assert isinstance(copy[0].message, CopyBegin)
    net.isolate(two)
    acknowledged = [one.append(b"later %d" % at, producer=ANN, sequence=25 + at) for at in range(3)]
    net.settle()
    net.wait(0.1)
    assert all(isinstance(each.outcome, Appended) for each in acknowledged), "on two disks, one of them the third's"
    shape = three.shape
    for parcel in [*copy, *copy, copy[0], copy[-1]]:
        net.deliver(parcel)
        assert three.shape == shape
        assert not three.raft.is_copying
    three.flush_all()
    (*_, answer) = [p.message for p in net.take(three, one, CopyReply)]
    assert isinstance(answer, CopyReply)
    net.connect_all()
    net.converge()
    check_copied(net)


def test_a_copy_of_an_earlier_term_is_refused() -> None:
    net, (one, two, three) = trimmed()
    net.connect_all()
    copy = net.take(one, three, COPY)
    net.elect(two)
    net.wait(3)
    net.take()
    for parcel in copy:
        net.deliver(parcel)
    answers = [p.message for p in net.take(three, one)]
    assert answers
    assert all(isinstance(a, Reply) and not a.accepted and a.term > 1 for a in answers)
    assert not three.raft.is_copying


# -- what is wrong with a copy ----------------------------------------------------------------------------------


def begun() -> tuple[Net, Node, Node, Node, CopyBegin, list[CopyEntries]]:
    """A copy that began; its messages with entries were taken off the wire."""
    net, (one, two, three) = trimmed()
    net.connect_all()
    (begin,) = net.take(one, three, CopyBegin)
    net.deliver(begin)
    message = begin.message
    assert isinstance(message, CopyBegin)
    parts = [p.message for p in net.take(one, three, CopyEntries)]
    return net, one, two, three, message, [part for part in parts if isinstance(part, CopyEntries)]


def answers(net: Net, three: Node) -> list[CopyReply]:
    return [p.message for p in net.take(three) if isinstance(p.message, CopyReply)]


def test_a_copy_with_a_hole_is_given_up_and_begun_again() -> None:
    net, one, _, three, begin, parts = begun()
    answers(net, three)
    net.tell(one, three, CopyEntries(begin.term, begin.copy, parts[0].entries[1:]))
    assert [reply.given_up for reply in answers(net, three)] == [True]
    assert not three.raft.is_copying
    net.tell(one, three, parts[0])
    assert [reply.given_up for reply in answers(net, three)] == [True], "there is none any more"
    net.converge()
    check_copied(net)


@pytest.mark.parametrize(("ahead", "term"), [(3, 1), (0, 1), (1, 0)])
def test_a_copy_whose_entries_do_not_follow_each_other_is_given_up(ahead: int, term: int) -> None:
    """Also those that have no records, whose offsets say nothing: a hole, a repetition, a term that goes back."""
    net, one, _, three, begin, _ = begun()
    answers(net, three)
    entry = Entry(begin.anchor_index + ahead, term, begin.first_offset, 0, memoryview(NOOP))
    net.tell(one, three, CopyEntries(begin.term, begin.copy, [entry]))
    assert [reply.given_up for reply in answers(net, three)] == [True]
    assert three.engine.broken == {}
    net.converge()
    check_copied(net)


def test_a_copy_with_a_wrong_offset_is_given_up() -> None:
    net, one, _, three, begin, parts = begun()
    answers(net, three)
    net.tell(one, three, CopyEntries(begin.term, begin.copy, parts[0].entries))
    number = three.raft._copied.copy.number if three.raft._copied.copy is not None else 0
    before = three.log.group(number).last_index
    wrong = parts[0].entries[-1]
    later = type(wrong)(wrong.index + 1, wrong.term, wrong.next_offset + 1, wrong.time_ms, wrong.payload)
    answers(net, three)
    net.tell(one, three, CopyEntries(begin.term, begin.copy, [later]))
    assert [reply.given_up for reply in answers(net, three)] == [True]
    assert number not in three.log.groups
    assert before == wrong.index


def test_a_copy_does_not_go_beyond_its_end() -> None:
    net, one, _, three, begin, parts = begun()
    short = CopyBegin(
        begin.term, 9, begin.anchor_index, begin.anchor_term, begin.first_offset, begin.anchor_index + 1, 1, begin.state
    )
    net.tell(one, three, short)
    answers(net, three)
    net.tell(one, three, CopyEntries(begin.term, 9, parts[0].entries[:2]))
    assert [reply.given_up for reply in answers(net, three)] == [True]
    assert three.values == [b"first"]


def test_entries_of_another_copy_are_not_taken() -> None:
    net, one, _, three, begin, parts = begun()
    answers(net, three)
    net.tell(one, three, CopyEntries(begin.term, begin.copy + 1, parts[0].entries))
    assert answers(net, three) == [CopyReply(begin.term, begin.copy + 1, 0, given_up=True)]
    assert three.raft.is_copying, "the one that is under way goes on"
    net.tell(one, three, parts[0])
    assert [reply.index for reply in answers(net, three)] == [parts[0].entries[-1].index]


def test_a_copy_ends_with_the_connection_to_the_leader_that_gives_it() -> None:
    net, one, two, three, _, _ = begun()
    net.disconnect(two, three)
    assert three.raft.is_copying
    net.disconnect(one, three)
    assert not three.raft.is_copying
    assert [group.meta for group in three.log.groups.values()] == [net.meta.to_bytes()]


def test_a_copy_is_given_up_on_a_full_disk_and_finished_once_there_is_room() -> None:
    net, one, two, three, begin, parts = begun()
    three.fill_disk()
    answers(net, three)
    net.tell(one, three, parts[0])
    assert answers(net, three) == [CopyReply(begin.term, begin.copy, 0, given_up=True)]
    assert not three.raft.is_copying
    assert three.values == [b"first"]
    three.free_disk()
    net.converge()
    assert one.raft.term == 1
    assert three.values[-1] == two.values[-1]
    check_copied(net)


def test_what_an_ex_leader_was_waiting_for_is_unknown_after_a_copy() -> None:
    """Its log was replaced: nobody looked whether its entry is in the copy."""
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
    assert net.count_sent(one, three, CopyBegin) == 1
    assert isinstance(lost.outcome, Unknown)
    assert b"lost?" not in three.values
    assert two.values == one.values


def test_a_copy_is_sent_up_to_the_window() -> None:
    net, (one, _, three) = trimmed(records=40)
    net.connect_all()
    for _ in range(5):
        net.wait(0.01, without=(three,))
    parts = [p.message for p in net.wire if isinstance(p.message, CopyEntries)]
    sizes = [sum(len(entry.payload) for entry in part.entries) for part in parts]
    assert RAFT.window_bytes <= sum(sizes) < RAFT.window_bytes + RAFT.append_bytes_max
    assert max(sizes) <= RAFT.append_bytes_max
    one.blocked.add(three.name)
    net.settle()
    assert three.raft.is_copying
    one.blocked.clear()
    one.engine.writable(three.name)
    one.turn()
    net.wait(1)
    check_copied(net)


def test_no_entries_are_sent_to_a_follower_that_is_being_copied_to() -> None:
    net, (one, _, three) = trimmed()
    net.connect_all()
    mark = len(net.sent)
    for at in range(5):
        one.append(b"new %d" % at, producer=ANN, sequence=25 + at)
        net.settle(without=(three,))
    assert not any(isinstance(p.message, Append) for p in net.sent[mark:] if p.to == three.name)
    net.wait(1)
    check_copied(net)


def test_a_read_that_ends_after_its_copy_sends_nothing() -> None:
    net, (one, _, three) = trimmed()
    one.slow_reads = True
    net.connect_all()
    net.settle()
    assert net.count_sent(one, three, CopyBegin) == 1
    net.disconnect(one, three)
    net.connect_all()
    net.settle()
    before = net.count_sent(one, three, CopyEntries)
    first = one.read_all()
    one.turn()
    assert first == 2
    assert net.count_sent(one, three, CopyEntries) - before == 1, "only that of the newer copy"
    net.converge()
    check_copied(net)


def test_a_leader_that_trims_what_it_is_copying_begins_again() -> None:
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
    check_copied(net)


def test_what_arrives_in_another_way_during_a_copy_stays() -> None:
    """Appends of an old connection are late, and bring everything before the copy is whole: it is dropped then."""
    net = Net()
    one, two, three = net.nodes
    net.elect(one)
    net.wait(1)
    late: list[Parcel] = []
    for at in range(10):
        one.append(b"%d" % at)
        late += net.take(one, three)
        net.settle()
    net.isolate(three)
    trim(net, one, 5)
    net.wait(0.1)
    net.connect_all()
    net.deliver(*net.take(one, three, CopyBegin))
    copy = net.take(one, three, CopyEntries)
    begin = three.raft._copied.copy.begin if three.raft._copied.copy is not None else None
    assert begin is not None
    assert begin.last_index == 12
    number = three.partition.log.number
    net.deliver(*late)
    net.tell(one, three, Append(1, 11, 1, 0, one.entries[-1:]))
    assert three.shape[-1] == one.shape[-1]
    assert three.raft.is_copying
    net.deliver(*copy)
    assert not three.raft.is_copying
    assert three.partition.log.number == number
    assert len(three.log.groups) == 1
    assert len(three.values) == 10
    assert [reply.index for reply in answers(net, three)][-1] == begin.last_index
    net.converge()
    assert two.values[-5:] == three.values[-5:]
