"""TRIM, EXPIRE and SEAL: entries without records, which all replicas apply in the same way."""

import random

import pytest

from flotilla_broker.partition.appends import Appended, Failed
from flotilla_broker.partition.entries import Expire, Instruction, Seal, Trim
from flotilla_broker.raft import NotLeader
from flotilla_broker.raft.messages import Append
from support.raftnet import Net, Node
from support.simdisk import Crash

ANN = b"A" * 16
BOB = b"B" * 16


def led(members: int = 3) -> tuple[Net, list[Node]]:
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    return net, net.nodes


def instruct(net: Net, node: Node, instruction: Instruction) -> int:
    index = node.partition.instruct(instruction)
    node.engine.schedule(net.key)
    node.turn()
    return index


def fill(net: Net, node: Node, entries: int, records: int = 1) -> None:
    for at in range(entries):
        node.append(*[b"%d.%d" % (at, nr) for nr in range(records)])
        net.settle()


# -- TRIM -------------------------------------------------------------------------------------------------------


def test_trim_removes_earlier_entries_and_keeps_an_anchor() -> None:
    net, nodes = led()
    fill(net, nodes[0], 10)
    before = nodes[0].entries
    index = instruct(net, nodes[0], Trim(6))
    net.wait(1)
    for node in nodes:
        log = node.partition.log
        assert node.partition.start_offset == 6
        assert (log.anchor_index, log.term_of(log.anchor_index)) == (7, 1)
        assert log.group.first_offset == 6
        assert node.values == [b"%d.0" % at for at in range(6, 10)]
        assert [bytes(e.payload) for e in node.entries[:-1]] == [bytes(e.payload) for e in before[7:]]
        assert node.shape[-1] == (index, 1)


def test_entry_is_kept_until_all_of_its_records_are_trimmed() -> None:
    net, nodes = led()
    fill(net, nodes[0], 3, records=4)
    instruct(net, nodes[0], Trim(6))
    net.wait(1)
    for node in nodes:
        assert node.partition.start_offset == 6
        assert node.partition.log.group.first_offset == 4, "it is shared with records that stay"
        assert len(node.values) == 8


def test_trim_takes_no_offset_and_none_that_is_committed_later() -> None:
    net, nodes = led()
    fill(net, nodes[0], 3)
    instruct(net, nodes[0], Trim(1000))
    net.settle()
    sent = nodes[0].append(b"next")
    net.wait(1)
    assert sent.offset == 3
    for node in nodes:
        assert node.partition.start_offset == 3
        assert node.values == [b"next"]
        assert node.partition.log.anchor_index == 4, "the trim itself is kept"


def test_trim_does_not_go_back() -> None:
    net, nodes = led()
    fill(net, nodes[0], 10)
    instruct(net, nodes[0], Trim(6))
    instruct(net, nodes[0], Trim(2))
    net.wait(1)
    assert {(node.partition.start_offset, node.partition.log.anchor_index) for node in nodes} == {(6, 7)}


def test_uncommitted_trim_removes_nothing() -> None:
    net, (one, two, three) = led()
    fill(net, one, 10)
    net.wait(1)
    net.isolate(one)
    instruct(net, one, Trim(6))
    net.wait(1)
    assert one.partition.start_offset == 0
    net.elect(two)
    net.connect_all()
    net.wait(1)
    assert [len(node.values) for node in (one, two, three)] == [10, 10, 10]
    two.append(b"x")
    net.wait(1)
    assert {node.partition.start_offset for node in net.nodes} == {0}, "it was taken back"


def test_trim_survives_a_restart() -> None:
    net, (one,) = led(1)
    fill(net, one, 10, records=2)
    instruct(net, one, Trim(7))
    values, state = one.values, one.partition.snapshot()
    assert one.partition.start_offset == 7
    one.crash()
    one.start(turn=False)
    assert one.values == values
    assert one.partition.snapshot() == state
    assert one.partition.log.anchor_index == 4
    net.wait(5)
    sent = one.append(b"next")
    assert sent.offset == 20


def test_producers_outlive_their_trimmed_records() -> None:
    """A retry must be recognized even if the batch that it repeats was trimmed."""
    net, (one, two, three) = led()
    first = one.append(b"x", producer=ANN)
    fill(net, one, 5)
    instruct(net, one, Trim(4))
    net.wait(1)
    for node in (one, two, three):
        assert node.partition.start_offset == 4
    one.crash()
    net.wait(10)
    leader = two if two.raft.is_leader else three
    retry = leader.append(b"x", producer=ANN)
    net.settle()
    assert first.offset == retry.offset == 0


@pytest.mark.parametrize("survive", [0.0, 0.6])
def test_trim_interrupted_by_a_crash_keeps_all_later_entries(survive: float) -> None:
    """A trim is one frame. pysyncobj rewrites its journal in place: kill -9 left 11,326 of 20,000 entries."""
    steps = 0
    while True:
        net, (one,) = led(1)
        for at in range(30):
            one.append(b"%d" % at + bytes(300), producer=ANN, sequence=at)
        acknowledged = one.values
        table = one.partition.producers.encode()
        one.partition.instruct(Trim(20))
        one.engine.schedule(net.key)
        one.disk.crash_in = steps
        try:
            one.turn()
            for _ in range(10):
                one.flush_all()
        except Crash:
            one.up = False
            one.disk.reboot(random.Random(steps), survive)
        else:
            break
        one.start()
        assert one.values[-10:] == acknowledged[-10:]
        assert one.values == acknowledged[-len(one.values) :]
        net.wait(5)
        assert one.partition.producers.encode() == table
        assert one.append(b"next").offset == 30
        steps += 1
    assert steps >= 3


# -- EXPIRE -------------------------------------------------------------------------------------------------------


def test_idle_producers_expire_on_all_replicas() -> None:
    net, nodes = led()
    one = nodes[0]
    old = one.append(b"x", producer=ANN)
    net.settle()
    net.wait(10)
    new = one.append(b"y", producer=BOB)
    net.settle()
    assert isinstance(new.outcome, Appended)
    instruct(net, one, Expire(new.outcome.time_ms))
    net.wait(1)
    assert old.offset == 0
    assert {len(node.partition.producers) for node in nodes} == {1}
    assert len({node.partition.snapshot() for node in nodes}) == 1
    again = [one.append(b"z", producer=ANN, sequence=1), one.append(b"y", producer=BOB)]
    net.settle()
    assert isinstance(again[0].outcome, Failed)
    assert again[0].outcome.code == "unknown_producer"
    assert again[1].offset == 1


def test_expiry_applies_at_its_position_in_the_log() -> None:
    """Entries after it were accepted by a leader that still knew the producer: they are kept."""
    net, (one, two, _) = led()
    one.append(b"x", producer=ANN)
    net.settle()
    net.wait(10)
    instruct(net, one, Expire(int(net.now * 1000)))
    behind = one.append(b"y", producer=ANN, sequence=1)
    net.settle()
    net.wait(1)
    assert behind.offset == 1
    assert len(two.partition.producers) == 1
    retry = one.append(b"y", producer=ANN, sequence=1)
    assert retry.offset == 1


def test_uncommitted_expire_removes_no_producer() -> None:
    net, (one, two, _) = led()
    one.append(b"x", producer=ANN)
    net.settle()
    net.wait(1)
    net.isolate(one)
    instruct(net, one, Expire(1 << 60))
    assert len(one.partition.producers) == 1
    net.elect(two)
    net.connect_all()
    net.wait(1)
    two.append(b"y")
    net.wait(1)
    assert {len(node.partition.producers) for node in net.nodes} == {1}


# -- SEAL -------------------------------------------------------------------------------------------------------------


def test_no_records_follow_a_seal() -> None:
    net, (one, two, three) = led()
    before = one.append(b"before")
    net.settle()
    index = instruct(net, one, Seal())
    after = one.append(b"after")
    assert isinstance(after.outcome, Failed)
    assert after.outcome.code == "sealed"
    net.wait(1)
    assert before.offset == 0
    assert {node.partition.sealed_index for node in net.nodes} == {index}
    net.elect(two)
    after = two.append(b"after")
    net.wait(1)
    assert isinstance(after.outcome, Failed)
    assert all(node.values == [b"before"] for node in (one, two, three))
    assert two.shape[-1] == (index + 1, 2), "a new leader's no-op may follow"


def test_queued_appends_fail_after_a_seal() -> None:
    net, (one, *_) = led()
    one.slow = True
    first = one.append(b"first")
    queued = one.append(b"queued")
    instruct(net, one, Seal())
    one.flush_all()
    net.settle()
    assert first.offset == 0
    assert isinstance(queued.outcome, Failed)
    assert queued.outcome.code == "sealed"


def test_seal_is_undone_by_a_truncation_of_its_entry() -> None:
    net, (one, two, three) = led()
    net.isolate(one)
    instruct(net, one, Seal())
    assert one.partition.is_sealed
    net.elect(two)
    net.connect_all()
    net.wait(1)
    assert not one.partition.is_sealed
    net.elect(one)
    sent = one.append(b"x")
    net.wait(1)
    assert sent.offset == 0
    assert three.values == [b"x"]


def test_seal_survives_a_restart_and_the_first_one_counts() -> None:
    net, (one,) = led(1)
    one.append(b"x")
    index = instruct(net, one, Seal())
    instruct(net, one, Seal())
    assert one.partition.sealed_index == index
    state = one.partition.snapshot()
    one.crash()
    one.start()
    assert one.partition.sealed_index == index
    net.wait(5)
    assert one.partition.is_sealed
    assert one.partition.snapshot()[0] > state[0]
    after = one.append(b"after")
    assert isinstance(after.outcome, Failed)


def test_truncation_after_a_seal_keeps_it() -> None:
    net, (one, two, _) = led()
    index = instruct(net, one, Seal())
    net.settle()
    net.isolate(one)
    instruct(net, one, Trim(0))
    net.elect(two)
    net.connect_all()
    net.wait(1)
    assert one.partition.sealed_index == index


def test_summary_contains_a_seal_only_once_it_is_committed() -> None:
    """An uncommitted seal may be undone, and a summary cannot."""
    net, (one, *_) = led()
    plain = one.partition.snapshot()
    instruct(net, one, Seal())
    assert one.partition.is_sealed
    assert one.partition.snapshot()[0] == plain[0]
    one.partition._time_ms = 0
    state = one.partition.snapshot()[1]
    one.partition.sealed_index = 0
    assert one.partition.snapshot()[1] == state
    one.partition.sealed_index = 2
    net.settle()
    assert one.partition.snapshot()[1] != state


# -- all instructions -------------------------------------------------------------------------------------------------


def test_only_a_leader_accepts_instructions() -> None:
    _, (_, two, _) = led()
    with pytest.raises(NotLeader):
        two.partition.instruct(Trim(0))


def test_instructions_take_no_offset() -> None:
    net, (one, *_) = led()
    for instruction in (Trim(0), Expire(0), Trim(1)):
        instruct(net, one, instruction)
    sent = one.append(b"x")
    net.settle()
    assert sent.offset == 0


def test_replaced_instruction_is_not_applied_with_its_replacement() -> None:
    """The index is the same, but the entry is another one."""
    net, (one, two, three) = led()
    fill(net, one, 5)
    net.wait(1)
    net.isolate(one)
    index = instruct(net, one, Trim(5))
    net.elect(two)
    assert two.shape[-1] == (index, 2)
    net.connect_all()
    net.wait(1)
    assert [node.partition.start_offset for node in (one, two, three)] == [0, 0, 0]
    assert len(one.values) == 5
    net.inject(two, one, Append(2, index, 2, index, []))
    assert one.partition.start_offset == 0


def test_wrong_clock_of_the_past_deletes_nothing_later() -> None:
    """Append times never go back, so they do not show the current time: retention uses the clock."""
    net = Net()
    one, *_ = net.nodes
    net.elect(one)
    net.wait(1)
    one.append(b"kept", producer=b"A" * 16)
    net.wait(1)
    week_ms = 7 * 24 * 3600 * 1000
    one.skew_ms = 2 * week_ms
    one.append(b"from the future")
    net.wait(1)
    one.skew_ms = 0
    one.partition.apply_retention()
    one.turn()
    net.wait(1)
    assert one.partition.start_offset == 0
    assert len(one.partition.producers) == 1
    one.skew_ms = 2 * week_ms + 1
    one.partition.apply_retention()
    one.turn()
    net.wait(1)
    assert one.partition.start_offset == 1, "what is too old by the clock goes"
