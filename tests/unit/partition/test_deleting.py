"""Deleted records: a trim that a client asked for, whose offset may lie in the middle of a batch."""

import pytest

from flotilla.records import BatchHeader, split
from flotilla_broker.partition.entries import Trim
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.outcomes import Appended
from flotilla_broker.partition.reading import select_batches
from flotilla_broker.raft import NotLeader
from support.raftnet import Net, Node

ANN = b"A" * 16


def led(members: int = 3, entries: int = 4, records: int = 5) -> tuple[Net, list[Node]]:
    """Brokers of which the first leads; offsets 0 to 19, in batches of five."""
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    for at in range(entries):
        net.nodes[0].append(*[b"%d.%d" % (at, nr) for nr in range(records)], producer=ANN, sequence=at * records)
        net.settle()
    return net, net.nodes


def delete(net: Net, node: Node, offset: int) -> None:
    node.partition.trim(offset)
    node.engine.touch(net.key)
    node.turn()
    net.wait(1)


def readable(node: Node) -> list[int]:
    """The base offsets of what a reader gets who begins at the first offset."""
    partition = node.partition
    log, number = partition.log.log, partition.log.number
    entries = log.read(number, log.find_offset(number, partition.start_offset), bytes_max=1 << 20)
    found = select_batches(entries, partition.start_offset, partition.applied_index, 1 << 20)
    return [BatchHeader.from_bytes(batch).base_offset for data in found for batch in split(data)]


def test_records_go_up_to_an_offset_in_a_batch_and_its_batch_is_read_whole() -> None:
    """As with any fetch in a batch, readers skip what lies before the offset that they asked for."""
    net, nodes = led()
    delete(net, nodes[0], 12)
    for node in nodes:
        assert node.partition.start_offset == 12
        assert node.partition.log.group.first_offset == 10, "whole entries are let go of"
        assert readable(node) == [10, 15]


def test_all_that_is_there_can_go_and_offsets_go_on() -> None:
    net, nodes = led()
    delete(net, nodes[0], 20)
    for node in nodes:
        assert (node.partition.start_offset, node.partition.committed_offset) == (20, 20)
        assert node.values == []
    sent = nodes[0].append(b"next", producer=ANN, sequence=20)
    net.settle()
    assert sent.offset == 20


def test_what_is_gone_already_is_not_proposed_again() -> None:
    net, (one, *_) = led()
    delete(net, one, 12)
    last = one.partition.log.last_index
    for offset in (0, 7, 12):
        one.partition.trim(offset)
    assert one.partition.log.last_index == last


def test_what_is_not_committed_yet_is_not_touched() -> None:
    """Nothing goes that nobody could have read."""
    net, nodes = led()
    net.isolate(nodes[0])
    nodes[0].append(b"not yet", producer=ANN, sequence=20)
    nodes[0].partition.trim(1000)
    net.connect_all()
    net.wait(1)
    assert {node.partition.committed_offset for node in nodes} == {21}
    assert {node.partition.start_offset for node in nodes} == {20}


def test_only_a_leader_deletes() -> None:
    _, (_, two, _) = led()
    with pytest.raises(NotLeader):
        two.partition.trim(12)
    assert two.partition.start_offset == 0


def test_whoever_waits_hears_of_it_when_it_is_committed() -> None:
    net, (one, two, three) = led()
    heard: list[int] = []
    one.partition.watch(lambda: heard.append(one.partition.start_offset))
    net.isolate(one)
    one.partition.trim(7)
    one.engine.touch(net.key)
    one.turn()
    assert heard == []
    net.connect(one, two)
    net.connect(one, three)
    net.wait(1)
    assert heard == [7]


def test_where_records_begin_outlives_the_end_of_all_brokers() -> None:
    net, nodes = led()
    delete(net, nodes[0], 12)
    for node in nodes:
        node.crash()
    for node in nodes:
        node.start()
    net.connect_all()
    net.wait(10)
    assert {node.partition.start_offset for node in nodes} == {12}
    assert any(node.raft.is_settled for node in nodes)


def test_a_replica_that_was_away_begins_where_the_others_do() -> None:
    """By its log if that is long enough, or by a copy; the copy's summary tells of the offset in the batch."""
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


def test_a_new_replica_gets_a_copy_that_begins_in_a_batch() -> None:
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


def test_retention_goes_on_from_there_and_never_back() -> None:
    net, nodes = led()
    one = nodes[0]
    delete(net, one, 12)
    one.partition.clean_up()
    one.engine.touch(net.key)
    one.turn()
    net.wait(1)
    assert {node.partition.start_offset for node in nodes} == {12}
    one.partition.instruct(Trim(10))  # of a retention that knew nothing of it
    one.engine.touch(net.key)
    one.turn()
    net.wait(1)
    assert {node.partition.start_offset for node in nodes} == {12}
    delete(net, one, 17)
    assert {node.partition.start_offset for node in nodes} == {17}


def test_times_lead_to_no_offset_that_is_gone() -> None:
    net, (one, *_) = led()
    delete(net, one, 12)
    assert one.partition.offset_at_time(0) == 12
    assert one.partition.offset_at_time(1 << 60) == 20


def test_a_retry_of_a_deleted_batch_is_still_known() -> None:
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


def test_it_is_known_beforehand_whether_an_entry_goes() -> None:
    """A full disk takes only what makes room."""
    net, (one, *_) = led()
    delete(net, one, 12)
    assert not one.partition.frees_entries(12)
    assert not one.partition.frees_entries(14)
    assert one.partition.frees_entries(15)


# -- notes that older brokers wrote ------------------------------------------------------------------------------------

OLD_NOTE = bytes.fromhex(
    "89a474797065a77265706c696361a5746f706963a5746f706963a8746f7069635f6964c41000000000000000000000000000000000"
    "a9706172746974696f6e03a565706f636801a76d656d6265727391d9206161616161616161616161616161616161616161616161"
    "616161616161616161ac726574656e74696f6e5f6d73cd03e8af726574656e74696f6e5f6279746573c0a776657273696f6e01"
)


def test_a_note_without_a_limit_for_batches_is_read() -> None:
    """What is on disks stays readable."""
    assert ReplicaMeta.from_bytes(OLD_NOTE) == ReplicaMeta("topic", bytes(16), 3, 1, ("a" * 32,), 1000, None)


def test_a_replica_with_an_old_note_can_be_removed_though_it_is_out_of_service() -> None:
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
