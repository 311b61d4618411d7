"""From batches to entries, offsets and timestamps; and the outcome of each append."""

from collections.abc import Sequence

import pytest

from flotilla.records import BatchHeader, check, decode, split
from flotilla_broker.partition.appends import Appended, Failed, Unknown
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.partition.entries import RECORDS
from flotilla_broker.raft import NotLeader
from flotilla_broker.raft.messages import Append
from support.raftnet import LOG, Net, Node, Sent

ANN = b"A" * 16
BOB = b"B" * 16


def led(members: int = 3, *, partition: PartitionConfig | None = None) -> tuple[Net, list[Node]]:
    """Return brokers of which the first leads; entry 1 is its no-op."""
    net = Net(members, partition=partition) if partition is not None else Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    return net, net.nodes


def payload_batches(node: Node) -> list[bytes]:
    return [
        bytes(batch)
        for entry in node.entries
        if entry.payload[:1] == RECORDS
        for batch in split(bytes(entry.payload[1:]))
    ]


def headers(node: Node) -> list[BatchHeader]:
    return [batch.header for batch in node.batches]


def codes(sent: Sequence[Sent]) -> list[str | None]:
    return [each.outcome.code if isinstance(each.outcome, Failed) else None for each in sent]


# -- entries --------------------------------------------------------------------------------------------------


def test_offsets_are_contiguous_with_several_batches_per_entry() -> None:
    net, (one, two, three) = led()
    sent = [one.submit(*[b"%d.%d" % (at, nr) for nr in range(count)]) for at, count in enumerate((1, 3, 2, 5))]
    one.turn()
    net.settle()
    assert [each.offset for each in sent] == [0, 1, 4, 6]
    assert len(one.entries) == 2
    more = one.append(b"more")
    net.settle()
    net.wait(0.1)
    assert more.offset == 11
    for node in (one, two, three):
        assert [header.base_offset for header in headers(node)] == [0, 1, 4, 6, 11]
        assert node.partition.committed_offset == 12


def test_many_small_batches_become_few_entries() -> None:
    """While an entry is written to disk, later batches wait and share the next entry."""
    net, (one, *_) = led()
    one.slow = True
    sent = [one.append(b"first")]
    sent += [one.append(b"%d" % at) for at in range(6)]
    assert len(one.entries) == 2, "six batches wait"
    one.flush_all()
    assert len(one.entries) == 3
    one.flush_all()
    net.settle()
    assert [each.offset for each in sent] == list(range(7))


def test_full_entry_does_not_wait_for_the_disk() -> None:
    net, (one, *_) = led()
    one.slow = True
    one.append(b"first")
    size = len(one.submit(b"x").batch)
    fits = (net.partition_config.entry_bytes - 1) // size
    for _ in range(fits - 1):
        one.submit(b"x")
    one.turn()
    assert len(one.entries) == 2
    one.submit(b"x")
    one.turn()
    assert len(one.entries) > 2
    assert one.partition.queued_bytes == 0


def test_entry_contains_as_many_batches_as_fit_and_at_least_one() -> None:
    net, (one, *_) = led(1)
    limit = net.partition_config.entry_bytes
    for _ in range(20):
        one.submit(bytes(100))
    large = one.submit(bytes(1500))
    one.submit(b"behind")
    one.turn()
    sizes = [(len(entry.payload), len(list(split(bytes(entry.payload[1:]))))) for entry in one.entries[1:]]
    assert all(size <= limit or batches == 1 for size, batches in sizes)
    assert max(batches for _, batches in sizes) > 3
    assert large.offset == 20
    assert sum(batches for _, batches in sizes) == 22


def test_batches_are_changed_only_in_offset_and_time() -> None:
    net, nodes = led()
    one = nodes[0]
    sent = [one.submit(b"%d" % at, b"", bytes(at), producer=ANN, sequence=3 * at) for at in range(5)]
    one.turn()
    net.wait(1)
    for node in nodes:
        stored = payload_batches(node)
        assert len(stored) == len(sent)
        for each, batch in zip(sent, stored, strict=True):
            before, after = check(each.batch), check(batch)
            assert (after.base_offset, after.append_time_ms) == (each.offset, one.entries[1].time_ms)
            changed = [at for at in range(len(batch)) if batch[at] != each.batch[at]]
            assert len(batch) == len(each.batch)
            assert len(changed) <= 16
            assert (before.crc, before.base_sequence, before.count) == (after.crc, after.base_sequence, after.count)
            assert decode(batch).values == decode(each.batch).values


def test_batch_of_the_client_is_not_modified() -> None:
    """The client may send it again, or to another server."""
    _, (one,) = led(1)
    one.append(b"first")
    sent = one.append(b"second")
    assert check(sent.batch).base_offset != 1
    assert sent.offset == 1


def test_offsets_are_contiguous_across_leaders() -> None:
    net, (one, two, three) = led()
    first = one.append(b"a", b"b")
    net.settle()
    net.isolate(one)
    lost = one.append(b"lost", b"lost", b"lost")
    net.elect(two)
    second = two.append(b"c")
    net.settle()
    net.connect_all()
    net.wait(1)
    third = two.append(b"d")
    net.settle()
    net.elect(three)
    fourth = three.append(b"e")
    net.wait(1)
    assert [each.offset for each in (first, second, third, fourth)] == [0, 2, 3, 4]
    assert isinstance(lost.outcome, Failed)
    for node in net.nodes:
        assert node.values == [b"a", b"b", b"c", b"d", b"e"]
        assert [header.base_offset for header in headers(node)] == [0, 2, 3, 4]


def test_next_offset_goes_back_with_a_truncation() -> None:
    net, (one, two, _) = led()
    net.isolate(one)
    one.append(b"x", b"y", producer=ANN)
    assert one.partition.log.next_offset == 2
    net.connect_all()
    net.take()
    net.elect(two)
    net.wait(1)
    assert one.partition.log.next_offset == 0
    assert one.partition.producers.encode() == two.partition.producers.encode()


# -- timestamps -------------------------------------------------------------------------------------------------


def test_append_times_never_decrease_if_the_clock_goes_back() -> None:
    net, (one, two, three) = led()
    for node, skew_ms in ((one, 0), (one, 5000), (one, -90_000), (two, -50_000), (three, 100_000), (two, -1)):
        node.skew_ms = skew_ms
        if not node.raft.is_leader:
            net.elect(node)
        assert isinstance(node.append(b"x").outcome, Appended | None)
        net.settle()
        net.wait(0.1)
    for node in net.nodes:
        times = [entry.time_ms for entry in node.entries]
        assert times == sorted(times)
        assert len(set(times)) > 3
        assert [header.append_time_ms for header in headers(node)] == [
            entry.time_ms for entry in node.entries if entry.payload[:1] == RECORDS
        ]


def test_last_append_time_survives_a_restart() -> None:
    net, (one,) = led(1)
    one.skew_ms = 1_000_000
    late = one.append(b"x")
    assert isinstance(late.outcome, Appended)
    one.crash()
    one.skew_ms = 0
    one.start()
    net.wait(5)
    again = one.append(b"y")
    assert isinstance(again.outcome, Appended)
    assert again.outcome.time_ms >= late.outcome.time_ms


# -- outcomes -----------------------------------------------------------------------------------------------------


def test_follower_rejects_an_append_before_it_is_proposed() -> None:
    _, (_, two, _) = led()
    with pytest.raises(NotLeader):
        two.submit(b"x")


def test_queued_appends_fail_when_the_leader_steps_down() -> None:
    net, (one, two, _) = led()
    one.slow = True
    proposed = one.append(b"proposed")
    queued = one.append(b"queued")
    net.inject(two, one, Append(9, 0, 0, 0, []))
    assert codes([queued]) == ["not_leader"]
    assert proposed.outcome is None, "the outcome is open"


def test_append_fails_once_an_entry_of_another_leader_is_committed_in_its_place() -> None:
    net, (one, two, _) = led()
    net.isolate(one)
    lost = [one.append(b"x"), one.append(b"y")]
    net.elect(two)
    net.connect_all()
    net.take()
    assert [each.outcome for each in lost] == [None, None]
    for at in range(2):
        two.append(b"%d" % at)
    net.wait(1)
    assert codes(lost) == ["not_leader", "not_leader"]
    assert all(node.values == [b"0", b"1"] for node in net.nodes)


def test_append_of_a_truncated_entry_is_open_until_its_index_is_committed() -> None:
    """It fails only when its index is committed with another term."""
    net, (one, two, _) = led()
    net.isolate(one)
    lost = [one.append(b"x"), one.append(b"y"), one.append(b"z")]
    net.elect(two)
    net.connect_all()
    net.wait(1)
    assert one.shape == [(1, 1), (2, 2)]
    assert codes(lost) == ["not_leader", None, None]
    assert [each.outcome for each in lost[1:]] == [None, None]
    two.append(b"0")
    two.append(b"1")
    net.wait(1)
    assert codes(lost) == ["not_leader"] * 3


def test_append_succeeds_if_a_later_leader_commits_its_entry() -> None:
    """Its own leader stepped down, and did not know the outcome."""
    net, (one, two, three) = led()
    sent = one.append(b"x")
    net.deliver(*net.take(one, two))
    net.take()
    net.isolate(one)
    net.wait(10)
    assert sent.outcome is None
    assert not one.raft.is_leader
    assert two.raft.is_leader, "only it can be elected"
    net.connect_all()
    net.wait(1)
    assert sent.offset == 0
    assert three.values == [b"x"]


def test_proposed_appends_are_unknown_when_a_replica_is_closed() -> None:
    net, (one, *_) = led()
    one.slow = True
    proposed = one.append(b"proposed")
    queued = one.append(b"queued")
    one.engine.drop(net.meta.key, "it is moved away")
    assert isinstance(proposed.outcome, Unknown)
    assert proposed.outcome.message == "it is moved away"
    assert codes([queued]) == ["closed"]


def test_append_is_completed_once() -> None:
    net, (one, two, _) = led()
    sent = [one.append(b"%d" % at) for at in range(3)]
    net.settle()
    net.elect(two)
    net.wait(2)
    one.engine.drop(net.meta.key, "done")
    assert all(len(each.outcomes) == 1 for each in sent)


# -- retries --------------------------------------------------------------------------------------------------------


def test_retry_in_the_same_entry_is_stored_once() -> None:
    net, (one, *_) = led()
    first = one.submit(b"x", b"y", producer=ANN)
    retry = one.submit(b"x", b"y", producer=ANN)
    other = one.submit(b"z", producer=ANN, sequence=2)
    one.turn()
    assert retry.outcome is None
    net.settle()
    assert (first.offset, retry.offset, other.offset) == (0, 0, 2)
    assert isinstance(retry.outcome, Appended)
    assert retry.outcome.retried
    assert one.values == [b"x", b"y", b"z"]


def test_retry_of_an_uncommitted_entry_waits_for_it() -> None:
    net, (one, *_) = led()
    first = one.append(b"x", producer=ANN)
    retry = one.append(b"x", producer=ANN)
    assert (first.outcome, retry.outcome) == (None, None)
    net.settle()
    assert (first.offset, retry.offset) == (0, 0)
    assert one.values == [b"x"]


def test_retry_of_a_committed_entry_is_answered_at_once() -> None:
    net, (one, *_) = led()
    one.append(b"a", producer=BOB)
    first = one.append(b"x", producer=ANN)
    net.settle()
    net.take()
    retry = one.append(b"x", producer=ANN)
    assert (first.offset, retry.offset) == (1, 1)
    assert net.wire == type(net.wire)(), "nothing was proposed"


def test_retry_at_another_leader_finds_the_stored_batch() -> None:
    net, (one, two, three) = led()
    first = one.append(b"x", producer=ANN)
    net.deliver(*net.take(one, two))
    net.take()
    net.isolate(one)
    net.elect(two)
    retry = two.append(b"x", producer=ANN)
    net.settle()
    net.connect_all()
    net.wait(1)
    assert (first.offset, retry.offset) == (0, 0)
    assert three.values == [b"x"]


def test_retry_of_a_truncated_entry_fails_with_it() -> None:
    net, (one, two, three) = led()
    net.isolate(one)
    first = one.append(b"x", producer=ANN)
    retry = one.append(b"x", producer=ANN)
    net.elect(two)
    net.connect_all()
    net.wait(1)
    assert codes([first, retry]) == ["not_leader", "not_leader"]
    again = two.append(b"x", producer=ANN)
    net.wait(1)
    assert again.offset == 0
    assert isinstance(again.outcome, Appended)
    assert not again.outcome.retried
    assert one.values == three.values == [b"x"]


def test_rejection_has_a_reason_and_does_not_affect_other_batches() -> None:
    net, (one, *_) = led()
    good = one.submit(b"x", producer=ANN)
    gap = one.submit(b"y", producer=ANN, sequence=7)
    unknown = one.submit(b"y", producer=BOB, sequence=7)
    reused = one.submit(b"other", producer=ANN)
    stale = [one.submit(b"e", producer=ANN, epoch=2), one.submit(b"e", producer=ANN, epoch=1)]
    last = one.submit(b"z")
    one.turn()
    net.settle()
    assert (good.offset, stale[0].offset, last.offset) == (0, 1, 2)
    assert codes([gap, unknown, reused, stale[1]]) == [
        "sequence_gap",
        "unknown_producer",
        "sequence_reused",
        "epoch_stale",
    ]
    assert one.values == [b"x", b"e", b"z"]
    assert len(one.entries) == 2


def test_only_rejected_batches_make_no_entry() -> None:
    net, (one, *_) = led()
    one.append(b"y", producer=BOB, sequence=7)
    assert one.shape == [(1, 1)]
    assert not net.wire


# -- restart --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [0, 1, 5, 60])
def test_state_is_the_same_after_a_restart(entries: int) -> None:
    """The summary and the entries after it; over several segments, so that the summary is saved in between."""
    net, (one,) = led(1)
    for at in range(entries):
        one.append(b"%d" % at + bytes(400), producer=ANN, sequence=at)
        one.append(b"%d" % at, producer=bytes([at + 1]) * 16)
    before = one.partition.snapshot()
    assert (one.partition.log.group.state_index > 0) is (entries > 40)
    one.crash()
    one.start(turn=False)
    assert one.partition.log.last_index == before[0]
    net.wait(5)
    index, state = one.partition.snapshot()
    assert index == before[0] + 1, "a no-op"
    one.partition._time_ms = max(entry.time_ms for entry in one.entries[:-1])
    assert one.partition.snapshot()[1] == before[1], "but for the time of the no-op"
    assert state
    retry = one.append(b"0", producer=bytes([1]) * 16) if entries else None
    assert retry is None or retry.offset == 1


def test_uncommitted_entries_are_known_after_a_restart() -> None:
    net, (one, two, three) = led()
    net.isolate(one)
    one.append(b"x", producer=ANN)
    one.crash()
    one.start()
    assert one.values == [b"x"]
    assert one.partition.applied_index == 0
    assert one.partition.committed_offset == 0
    net.connect_all()
    net.elect(one)
    retry = one.append(b"x", producer=ANN)
    net.wait(1)
    assert retry.offset == 0
    assert two.values == three.values == [b"x"]


def test_replicas_have_the_same_summary() -> None:
    net, nodes = led()
    for at in range(30):
        nodes[0].append(b"%d" % at + bytes(200), producer=bytes([at % 3 + 1]) * 16, sequence=at // 3)
        net.settle()
    net.wait(1)
    assert len({node.partition.snapshot() for node in nodes}) == 1


def test_large_batch_has_its_own_entry() -> None:
    _, (one,) = led(1, partition=PartitionConfig(entry_bytes=100))
    sent = [one.submit(bytes(LOG.entry_bytes_max // 2)), one.submit(b"x"), one.submit(b"y")]
    one.turn()
    assert [each.offset for each in sent] == [0, 1, 2]
    assert len(one.entries) == 4
