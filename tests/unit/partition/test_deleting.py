"""Deletion of records: a trim requested by a client, at an offset that may be inside a batch."""

import pytest

from flotilla.records import BatchHeader, split
from flotilla_broker.partition.appends import Appended
from flotilla_broker.partition.entries import Trim
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.reading import select_batches
from flotilla_broker.raft import NotLeader
from support.raftnet import Net, Node

ANN = b"A" * 16


def led(members: int = 3, entries: int = 4, records: int = 5) -> tuple[Net, list[Node]]:
    """Return brokers of which the first leads; offsets 0 to 19, in batches of five."""
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    for at in range(entries):
        net.nodes[0].append(*[b"%d.%d" % (at, nr) for nr in range(records)], producer=ANN, sequence=at * records)
        net.settle()
    return net, net.nodes


def delete(net: Net, node: Node, offset: int) -> None:
    node.partition.trim(offset)
    node.engine.schedule(net.key)
    node.turn()
    net.wait(1)


def readable(node: Node) -> list[int]:
    """Return the base offsets of the batches that a reader gets from the first offset on."""
    partition = node.partition
    log, number = partition.log.log, partition.log.number
    entries = log.read(number, log.find_offset(number, partition.start_offset), bytes_max=1 << 20)
    found = select_batches(entries, partition.start_offset, partition.applied_index, 1 << 20)
    return [BatchHeader.from_bytes(batch).base_offset for data in found for batch in split(data)]


def test_delete_inside_a_batch_keeps_the_whole_batch_readable() -> None:
    """As with any fetch inside a batch, readers skip the records before the offset that they requested."""
    net, nodes = led()
    delete(net, nodes[0], 12)
    for node in nodes:
        assert node.partition.start_offset == 12
        assert node.partition.log.group.first_offset == 10, "only whole entries are trimmed"
        assert readable(node) == [10, 15]


def test_all_records_can_be_deleted_and_offsets_continue() -> None:
    net, nodes = led()
    delete(net, nodes[0], 20)
    for node in nodes:
        assert (node.partition.start_offset, node.partition.committed_offset) == (20, 20)
        assert node.values == []
    sent = nodes[0].append(b"next", producer=ANN, sequence=20)
    net.settle()
    assert sent.offset == 20


def test_deleted_offset_is_not_proposed_again() -> None:
    net, (one, *_) = led()
    delete(net, one, 12)
    last = one.partition.log.last_index
    for offset in (0, 7, 12):
        one.partition.trim(offset)
    assert one.partition.log.last_index == last


def test_uncommitted_records_are_not_deleted() -> None:
    """Records that were never readable are not deleted."""
    net, nodes = led()
    net.isolate(nodes[0])
    nodes[0].append(b"not yet", producer=ANN, sequence=20)
    nodes[0].partition.trim(1000)
    net.connect_all()
    net.wait(1)
    assert {node.partition.committed_offset for node in nodes} == {21}
    assert {node.partition.start_offset for node in nodes} == {20}


def test_only_a_leader_deletes_records() -> None:
    _, (_, two, _) = led()
    with pytest.raises(NotLeader):
        two.partition.trim(12)
    assert two.partition.start_offset == 0


def test_watcher_is_notified_when_a_trim_is_committed() -> None:
    net, (one, two, three) = led()
    heard: list[int] = []
    one.partition.watch(lambda: heard.append(one.partition.start_offset))
    net.isolate(one)
    one.partition.trim(7)
    one.engine.schedule(net.key)
    one.turn()
    assert heard == []
    net.connect(one, two)
    net.connect(one, three)
    net.wait(1)
    assert heard == [7]


def test_start_offset_survives_a_restart_of_all_brokers() -> None:
    net, nodes = led()
    delete(net, nodes[0], 12)
    for node in nodes:
        node.crash()
    for node in nodes:
        node.start()
    net.connect_all()
    net.wait(10)
    assert {node.partition.start_offset for node in nodes} == {12}
    assert any(node.raft.has_committed_in_term for node in nodes)


def test_replica_that_was_down_gets_the_start_offset() -> None:
    """From its log if that is long enough, or from a snapshot, whose summary contains the offset inside the batch."""
    net, (one, two, three) = led()
    net.isolate(three)
    delete(net, one, 12)
    one.flush_all()
    assert one.partition.log.anchor_index > 0
    net.connect_all()
    net.wait(5)
    assert three.partition.start_offset == 12
    three.crash()
    three.start()
    net.connect_all()
    net.wait(5)
    assert {node.partition.start_offset for node in (one, two, three)} == {12}


def test_new_replica_gets_a_snapshot_that_starts_inside_a_batch() -> None:
    net, (one, two, three) = led()
    three.crash()
    delete(net, one, 12)
    for at in range(4, 40):
        one.append(*[bytes(200)] * 5, producer=ANN, sequence=at * 5)
        net.settle()
    three.start()
    net.connect_all()
    net.wait(10)
    assert three.partition.start_offset == 12
    assert three.partition.log.group.first_offset == 10
    assert three.partition.snapshot() == one.partition.snapshot() == two.partition.snapshot()


def test_retention_continues_from_the_start_offset_and_never_goes_back() -> None:
    net, nodes = led()
    one = nodes[0]
    delete(net, one, 12)
    one.partition.apply_retention()
    one.engine.schedule(net.key)
    one.turn()
    net.wait(1)
    assert {node.partition.start_offset for node in nodes} == {12}
    one.partition.instruct(Trim(10))  # of a retention run that did not know of it
    one.engine.schedule(net.key)
    one.turn()
    net.wait(1)
    assert {node.partition.start_offset for node in nodes} == {12}
    delete(net, one, 17)
    assert {node.partition.start_offset for node in nodes} == {17}


def test_timestamp_lookup_returns_no_deleted_offset() -> None:
    net, (one, *_) = led()
    delete(net, one, 12)
    assert one.partition.offset_at_time(0) == 12
    assert one.partition.offset_at_time(1 << 60) == 20


def test_retry_of_a_deleted_batch_is_recognized() -> None:
    """Guarantee 3: deleting records forgets no producer, so a late retry appends nothing."""
    net, (one, two, three) = led()
    delete(net, one, 20)
    one.crash()
    net.wait(10)
    leader = two if two.raft.is_leader else three
    retry = leader.append(*[b"3.%d" % nr for nr in range(5)], producer=ANN, sequence=15)
    net.settle()
    assert isinstance(retry.outcome, Appended)
    assert (retry.outcome.base_offset, retry.outcome.retried) == (15, True)
    assert leader.partition.committed_offset == 20


def test_frees_entries_returns_whether_a_trim_removes_an_entry() -> None:
    """A full disk accepts only what frees space."""
    net, (one, *_) = led()
    delete(net, one, 12)
    assert not one.partition.frees_entries(12)
    assert not one.partition.frees_entries(14)
    assert one.partition.frees_entries(15)


# -- replica metadata of older brokers ---------------------------------------------------------------------------------

OLD_NOTE = bytes.fromhex(
    "89a474797065a77265706c696361a5746f706963a5746f706963a8746f7069635f6964c41000000000000000000000000000000000"
    "a9706172746974696f6e03a565706f636801a76d656d6265727391d9206161616161616161616161616161616161616161616161"
    "616161616161616161ac726574656e74696f6e5f6d73cd03e8af726574656e74696f6e5f6279746573c0a776657273696f6e01"
)


def test_metadata_without_a_batch_limit_is_read() -> None:
    """Formats on disk stay readable."""
    assert ReplicaMeta.from_bytes(OLD_NOTE) == ReplicaMeta("topic", bytes(16), 3, 1, ("a" * 32,), 1000, None)


def test_replica_out_of_service_with_old_metadata_can_be_removed() -> None:
    _, (one,) = led(1)
    number = one.partition.log.number
    note = ReplicaMeta.from_bytes(OLD_NOTE)
    key = note.key.to_bytes()
    other = one.log.create_group(OLD_NOTE)
    one.engine.broken[key] = (note, "its data is damaged")
    one.engine.drop(note.key, "it is moved away")
    assert set(one.log.groups) == {number}
    assert other not in one.log.groups
    assert key not in one.engine.broken
