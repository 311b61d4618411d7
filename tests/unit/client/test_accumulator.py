import os

import pytest

from flotilla.client.accumulator import TopicUnknown
from flotilla.client.bulk_send import BulkSend
from flotilla.client.errors import ClientClosed, ClientForked, DeliveryFailed, RecordInvalid, TopicMissing
from flotilla.client.partitioning import partition_of
from flotilla.records import Compression, decode
from support.accumulator_harness import ID, AccumulatorHarness, make_info


def test_accumulator_wakes_the_loop_once_and_buffers_records_while_a_queue_is_scheduled() -> None:
    harness = AccumulatorHarness()
    harness.add(b"1", partition=0)
    harness.add(b"2", partition=0)
    (queue,) = harness.woken
    first = harness.take(queue)
    harness.add(b"3", partition=0)
    harness.add(b"4", partition=0)
    assert len(harness.woken) == 1  # the task that has the queue takes from it again
    second = harness.take(queue)
    assert (first.values, second.values) == ([b"1", b"2"], [b"3", b"4"])
    assert harness.accumulator.take(queue) is None
    harness.add(b"5", partition=0)
    assert len(harness.woken) == 2


def test_records_without_a_key_stick_to_a_partition_until_its_batch_is_closed() -> None:
    harness = AccumulatorHarness()
    places = []
    for _ in range(4):
        places.append([harness.add(b"x").partition for _ in range(3)])
        harness.take(harness.accumulator._topics["t"].queues[places[-1][0]])
    assert places == [[0] * 3, [1] * 3, [2] * 3, [0] * 3]


def test_full_batch_moves_the_sticky_partition_past_partitions_with_a_backlog() -> None:
    harness = AccumulatorHarness()
    places = [harness.add(bytes(800)).partition for _ in range(8)]
    assert places == [0, 0, 1, 1, 2, 2, 0, 0]
    queue = harness.woken[1]  # of partition 1: its batches are taken, those of the others wait
    harness.take(queue)
    assert not queue.closed
    assert [harness.add(bytes(800)).partition for _ in range(2)] == [1, 1]


def test_key_selects_the_partition_unless_one_is_given() -> None:
    harness = AccumulatorHarness()
    keys = [b"%d" % number for number in range(20)]
    assert [harness.add(b"x", key=key).partition for key in keys] == [partition_of(key, 3) for key in keys]
    assert harness.add(b"x", key=b"1", partition=2).partition == 2
    with pytest.raises(RecordInvalid, match="has no partition 3, only 0 to 2"):
        harness.add(b"x", partition=3)
    with pytest.raises(RecordInvalid, match="no partition -1"):
        harness.add(b"x", partition=-1)


def test_batch_keeps_keys_headers_and_timestamps_with_their_records() -> None:
    harness = AccumulatorHarness()
    harness.add(b"1", partition=0)
    harness.add(b"2", partition=0, key=b"k")
    harness.add(b"3", partition=0, headers=(("h", b"v"),))
    harness.add(b"4", partition=0)
    harness.add(b"5", partition=0, timestamp_ms=7)  # a batch has times for all records, or for none
    harness.add(b"6", partition=0, timestamp_ms=8, key=b"")
    untimed, timed = (decode(batch.encode(ID, Compression.NONE)) for batch in harness.take_all())
    assert [(r.value, r.key, r.headers) for r in untimed] == [
        (b"1", None, ()),
        (b"2", b"k", ()),
        (b"3", None, (("h", b"v"),)),
        (b"4", None, ()),
    ]
    assert [(r.value, r.key, r.timestamp_ms) for r in timed] == [(b"5", None, 7), (b"6", b"", 8)]


def test_accumulator_rejects_invalid_record() -> None:
    harness = AccumulatorHarness()
    add = harness.accumulator.add
    with pytest.raises(RecordInvalid, match=r"value must be bytes, not str \(for text: text.encode\(\)\)"):
        add("t", "text")  # type: ignore[arg-type]  # a common mistake
    with pytest.raises(RecordInvalid, match="key must be bytes, not int"):
        add("t", b"", key=5)  # type: ignore[arg-type]  # a common mistake
    with pytest.raises(RecordInvalid, match="headers: "):
        add("t", b"", headers=(("", b""),))
    with pytest.raises(RecordInvalid, match="timestamp_ms must be"):
        add("t", b"", timestamp_ms=1 << 63)
    with pytest.raises(TopicUnknown):
        add("other", b"")
    assert (harness.accumulator.bytes, harness.woken) == (0, [])
    assert harness.add(bytearray(b"x"), key=memoryview(b"k")).partition == partition_of(b"k", 3)
    assert harness.take_all()[0].keys == [b"k"]


def test_record_above_batch_bytes_is_sent_alone_and_above_the_topic_limit_rejected() -> None:
    harness = AccumulatorHarness()
    harness.accumulator.update_topic(make_info(batch_bytes_max=5000))
    harness.add(b"1", partition=0)
    harness.add(bytes(4000), partition=0)
    harness.add(b"3", partition=0)
    exact = 5000 - 96 - 8
    harness.add(bytes(exact), partition=0)
    with pytest.raises(RecordInvalid, match="alone in a batch it has 5008 bytes; topic 't' takes up to 5000"):
        harness.add(bytes(exact + 1), partition=0)
    with pytest.raises(RecordInvalid, match="too large"):
        BulkSend([b"ok", bytes(9 << 20)]).plan(harness.accumulator._topics["t"])
    with pytest.raises(RecordInvalid, match="too large"):
        harness.add(bytes(40 << 20), partition=0)
    sizes = [[len(value) for value in batch.values] for batch in harness.take_all()]
    assert sizes == [[1], [4000], [1], [exact]]


def test_record_that_fits_the_limit_when_compressed_is_accepted() -> None:
    harness = AccumulatorHarness(compression=None)
    harness.accumulator.update_topic(make_info(batch_bytes_max=5000, compression="zstd"))
    harness.add(bytes(100_000))
    (batch,) = harness.take_all()
    assert len(batch.encode(ID, batch.queue.topic.compression)) < 5000


def test_full_buffer_returns_none_and_calls_back_on_release() -> None:
    harness = AccumulatorHarness(buffer_bytes=2000)
    delivery = harness.add(bytes(1500), partition=0)
    assert harness.accumulator.add("t", bytes(1500)) is None
    called: list[str] = []
    harness.accumulator.call_when_room(harness.accumulator.releases, lambda: called.append("room"))
    assert called == []
    releases = harness.accumulator.releases
    harness.accumulator.settle(harness.take(harness.woken[0]), 0)
    assert delivery.done()
    assert called == ["room"]
    harness.accumulator.call_when_room(releases, lambda: called.append("there was some since"))
    assert len(called) == 2
    assert harness.accumulator.bytes == 0
    harness.add(bytes(100_000))  # larger than the buffer: alone, it is let in
    assert harness.accumulator.add("t", b"") is None


def test_batch_lingers_until_linger_s_or_full_or_flushed() -> None:
    harness = AccumulatorHarness(linger_s=5.0)
    accumulator = harness.accumulator
    harness.add(b"1", partition=0)
    (queue,) = harness.woken
    assert accumulator.take(queue) == 5.0
    harness.now += 4.0
    assert accumulator.take(queue) == 1.0
    harness.add(bytes(1800), partition=0)
    assert harness.woken == [queue, queue]  # it is full: no reason to linger
    assert harness.take(queue).values == [b"1"]
    assert isinstance(accumulator.take(queue), float)
    assert len(accumulator.begin_flush()) == 2
    assert harness.woken == [queue] * 3
    assert len(harness.take(queue).values) == 1
    accumulator.end_flush()
    harness.add(b"3", partition=0)
    assert accumulator.take(queue) == 5.0
    harness.now += 5.0
    assert harness.take(queue).values == [b"3"]


def test_grown_topic_gets_records_in_new_partitions_and_never_shrinks() -> None:
    harness = AccumulatorHarness()
    harness.accumulator.update_topic(make_info(5))
    assert harness.add(b"x", partition=4).partition == 4
    harness.accumulator.update_topic(make_info(3))
    assert harness.add(b"x", partition=4).partition == 4


def test_records_for_the_old_topic_fail_after_it_was_recreated() -> None:
    harness = AccumulatorHarness()
    harness.add(b"old", partition=0)
    old = harness.woken[0]
    harness.accumulator.update_topic(make_info(id_="id-2"))
    harness.add(b"new", partition=0)
    new = harness.woken[1]
    assert (old.topic.info.id, new.topic.info.id) == ("id-1", "id-2")
    assert isinstance(old.topic.deleted_error, TopicMissing)
    assert new.topic.deleted_error is None
    harness.accumulator.remove_topic(old.topic)  # late news change nothing for the new one
    harness.add(b"new", partition=0)
    harness.accumulator.remove_topic(new.topic)
    with pytest.raises(TopicUnknown):
        harness.add(b"x")


def test_close_wakes_callers_that_wait_for_buffer_space() -> None:
    harness = AccumulatorHarness()
    called: list[str] = []
    harness.accumulator.call_when_room(harness.accumulator.releases, lambda: called.append("look"))
    harness.accumulator.close(lambda: ClientClosed("closed"))
    assert called == ["look"]
    with pytest.raises(ClientClosed):
        harness.add(b"x")
    with pytest.raises(ClientClosed):
        harness.accumulator.add_many("t", BulkSend([b"x"]))


def test_forked_child_gets_client_forked_even_if_a_lock_was_held() -> None:
    harness = AccumulatorHarness()
    harness.accumulator._lock.acquire()
    pid = os.fork()
    if pid == 0:
        try:
            harness.accumulator.add("t", b"x")
        except ClientForked:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    harness.accumulator._lock.release()
    assert harness.add(b"x") is not None


def test_bulk_send_splits_records_into_batches_by_size() -> None:
    harness = AccumulatorHarness(batch_bytes=1000, buffer_bytes=5000)
    many = BulkSend([bytes(76)] * 100, partition=1)
    assert harness.accumulator.add_many("t", many) is False
    assert harness.accumulator.bytes == 5000
    taken = harness.take_all()
    assert [len(batch) for batch in taken] == [7] * 7 + [1]
    for batch in taken:
        assert len(batch.encode(ID, Compression.NONE)) <= 1000
        harness.accumulator.settle(batch, 0)
    assert len(many.deliveries) == len(list(many.deliveries)) == 50
    assert harness.accumulator.add_many("t", many) is True
    assert len(many.deliveries) == len(list(many.deliveries)) == 100


def test_bulk_send_rejects_columns_of_different_lengths() -> None:
    with pytest.raises(RecordInvalid, match="keys has 1 items for 2 values"):
        BulkSend([b"1", b"2"], keys=[b"k"])
    with pytest.raises(RecordInvalid, match="an iterable of values, not bytes"):
        BulkSend(b"12")  # type: ignore[arg-type]  # a common mistake
    with pytest.raises(RecordInvalid, match="a value must be bytes, not int"):
        BulkSend([1])  # type: ignore[list-item]  # a common mistake
    assert AccumulatorHarness().accumulator.add_many("t", BulkSend([]))


def test_failed_batch_releases_buffer_space() -> None:
    harness = AccumulatorHarness()
    delivery = harness.add(b"x")
    harness.accumulator.settle(harness.take(harness.woken[0]), DeliveryFailed("no"))
    assert harness.accumulator.bytes == 0
    assert isinstance(delivery.exception(), DeliveryFailed)
