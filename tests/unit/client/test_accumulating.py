import os

import pytest

from flotilla.client.accumulating import TopicUnknown
from flotilla.client.errors import ClientClosed, ClientForked, DeliveryFailed, RecordInvalid, TopicMissing
from flotilla.client.gathering import Many
from flotilla.client.partitioning import partition_of
from flotilla.records import Compression, decode
from support.gathering import ID, Gathering, make_info


def test_the_loop_is_told_once_and_records_gather_while_it_is_busy() -> None:
    world = Gathering()
    world.add(b"1", partition=0)
    world.add(b"2", partition=0)
    (lane,) = world.woken
    first = world.take(lane)
    world.add(b"3", partition=0)
    world.add(b"4", partition=0)
    assert len(world.woken) == 1  # whoever has the lane looks again
    second = world.take(lane)
    assert (first.values, second.values) == ([b"1", b"2"], [b"3", b"4"])
    assert world.accumulator.take(lane) is None
    world.add(b"5", partition=0)
    assert len(world.woken) == 2


def test_records_without_a_key_stick_to_a_partition_until_its_batch_is_closed() -> None:
    world = Gathering()
    places = []
    for _ in range(4):
        places.append([world.add(b"x").partition for _ in range(3)])
        world.take(world.accumulator._topics["t"].lanes[places[-1][0]])
    assert places == [[0] * 3, [1] * 3, [2] * 3, [0] * 3]


def test_a_full_batch_sends_records_to_the_next_partition_and_not_to_one_that_lags() -> None:
    world = Gathering()
    places = [world.add(bytes(800)).partition for _ in range(8)]
    assert places == [0, 0, 1, 1, 2, 2, 0, 0]
    lane = world.woken[1]  # of partition 1: its batches are taken, those of the others wait
    world.take(lane)
    assert not lane.closed
    assert [world.add(bytes(800)).partition for _ in range(2)] == [1, 1]


def test_keys_choose_the_partition_and_a_partition_that_is_given_comes_first() -> None:
    world = Gathering()
    keys = [b"%d" % number for number in range(20)]
    assert [world.add(b"x", key=key).partition for key in keys] == [partition_of(key, 3) for key in keys]
    assert world.add(b"x", key=b"1", partition=2).partition == 2
    with pytest.raises(RecordInvalid, match="has 3 partitions, and no 3"):
        world.add(b"x", partition=3)
    with pytest.raises(RecordInvalid, match="no -1"):
        world.add(b"x", partition=-1)


def test_keys_headers_and_times_arrive_with_their_records() -> None:
    world = Gathering()
    world.add(b"1", partition=0)
    world.add(b"2", partition=0, key=b"k")
    world.add(b"3", partition=0, headers=(("h", b"v"),))
    world.add(b"4", partition=0)
    world.add(b"5", partition=0, timestamp_ms=7)  # a batch has times for all records, or for none
    world.add(b"6", partition=0, timestamp_ms=8, key=b"")
    untimed, timed = (decode(parcel.encode(ID, Compression.NONE)) for parcel in world.take_all())
    assert [(r.value, r.key, r.headers) for r in untimed] == [
        (b"1", None, ()),
        (b"2", b"k", ()),
        (b"3", None, (("h", b"v"),)),
        (b"4", None, ()),
    ]
    assert [(r.value, r.key, r.timestamp_ms) for r in timed] == [(b"5", None, 7), (b"6", b"", 8)]


def test_a_record_that_breaks_a_rule_is_refused_at_once() -> None:
    world = Gathering()
    add = world.accumulator.add
    with pytest.raises(RecordInvalid, match=r"value is a str; expected bytes \(for text: text.encode\(\)\)"):
        add("t", "text")  # type: ignore[arg-type]  # what people do
    with pytest.raises(RecordInvalid, match="key is a int"):
        add("t", b"", key=5)  # type: ignore[arg-type]  # what people do
    with pytest.raises(RecordInvalid, match="headers: "):
        add("t", b"", headers=(("", b""),))
    with pytest.raises(RecordInvalid, match="timestamp_ms must be"):
        add("t", b"", timestamp_ms=1 << 63)
    with pytest.raises(TopicUnknown):
        add("other", b"")
    assert (world.accumulator.bytes, world.woken) == (0, [])
    assert world.add(bytearray(b"x"), key=memoryview(b"k")).partition == partition_of(b"k", 3)
    assert world.take_all()[0].keys == [b"k"]


def test_a_record_larger_than_a_batch_goes_alone_and_one_larger_than_the_topic_takes_is_refused() -> None:
    world = Gathering()
    world.accumulator.learn(make_info(batch_bytes_max=5000))
    world.add(b"1", partition=0)
    world.add(bytes(4000), partition=0)
    world.add(b"3", partition=0)
    exact = 5000 - 96 - 8
    world.add(bytes(exact), partition=0)
    with pytest.raises(RecordInvalid, match="alone in a batch it has 5008 bytes; topic 't' takes up to 5000"):
        world.add(bytes(exact + 1), partition=0)
    with pytest.raises(RecordInvalid, match="too large"):
        Many([b"ok", bytes(9 << 20)]).plan(world.accumulator._topics["t"])
    with pytest.raises(RecordInvalid, match="too large"):
        world.add(bytes(40 << 20), partition=0)
    sizes = [[len(value) for value in parcel.values] for parcel in world.take_all()]
    assert sizes == [[1], [4000], [1], [exact]]


def test_a_record_that_is_small_enough_when_it_is_packed_is_taken() -> None:
    world = Gathering(compression=None)
    world.accumulator.learn(make_info(batch_bytes_max=5000, compression="zstd"))
    world.add(bytes(100_000))
    (parcel,) = world.take_all()
    assert len(parcel.encode(ID, parcel.lane.topic.compression)) < 5000


def test_no_room_is_told_and_room_is_announced() -> None:
    world = Gathering(buffer_bytes=2000)
    delivery = world.add(bytes(1500), partition=0)
    assert world.accumulator.add("t", bytes(1500)) is None
    called: list[str] = []
    world.accumulator.when_room(world.accumulator.releases, lambda: called.append("room"))
    assert called == []
    releases = world.accumulator.releases
    world.accumulator.settle(world.take(world.woken[0]), 0)
    assert delivery.done()
    assert called == ["room"]
    world.accumulator.when_room(releases, lambda: called.append("there was some since"))
    assert len(called) == 2
    assert world.accumulator.bytes == 0
    world.add(bytes(100_000))  # larger than the buffer: alone, it is let in
    assert world.accumulator.add("t", b"") is None


def test_a_batch_lingers_until_its_time_is_over_or_it_is_full_or_flushed() -> None:
    world = Gathering(linger_s=5.0)
    accumulator = world.accumulator
    world.add(b"1", partition=0)
    (lane,) = world.woken
    assert accumulator.take(lane) == 5.0
    world.now += 4.0
    assert accumulator.take(lane) == 1.0
    world.add(bytes(1800), partition=0)
    assert world.woken == [lane, lane]  # it is full: no reason to linger
    assert world.take(lane).values == [b"1"]
    assert isinstance(accumulator.take(lane), float)
    assert len(accumulator.begin_flush()) == 2
    assert world.woken == [lane] * 3
    assert len(world.take(lane).values) == 1
    accumulator.end_flush()
    world.add(b"3", partition=0)
    assert accumulator.take(lane) == 5.0
    world.now += 5.0
    assert world.take(lane).values == [b"3"]


def test_a_topic_that_grows_gets_records_in_its_new_partitions_and_never_shrinks() -> None:
    world = Gathering()
    world.accumulator.learn(make_info(5))
    assert world.add(b"x", partition=4).partition == 4
    world.accumulator.learn(make_info(3))
    assert world.add(b"x", partition=4).partition == 4


def test_a_topic_that_was_made_again_is_another_one() -> None:
    world = Gathering()
    world.add(b"old", partition=0)
    old = world.woken[0]
    world.accumulator.learn(make_info(id_="id-2"))
    world.add(b"new", partition=0)
    new = world.woken[1]
    assert (old.topic.info.id, new.topic.info.id) == ("id-1", "id-2")
    assert isinstance(old.topic.gone, TopicMissing)
    assert new.topic.gone is None
    world.accumulator.drop(old.topic)  # late news change nothing for the new one
    world.add(b"new", partition=0)
    world.accumulator.drop(new.topic)
    with pytest.raises(TopicUnknown):
        world.add(b"x")


def test_whoever_waits_learns_that_it_was_closed() -> None:
    world = Gathering()
    called: list[str] = []
    world.accumulator.when_room(world.accumulator.releases, lambda: called.append("look"))
    world.accumulator.refuse(lambda: ClientClosed("closed"))
    assert called == ["look"]
    with pytest.raises(ClientClosed):
        world.add(b"x")
    with pytest.raises(ClientClosed):
        world.accumulator.add_many("t", Many([b"x"]))


def test_a_child_is_told_that_the_producer_is_its_parents_even_if_a_lock_was_held() -> None:
    world = Gathering()
    world.accumulator._lock.acquire()
    pid = os.fork()
    if pid == 0:
        try:
            world.accumulator.add("t", b"x")
        except ClientForked:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    world.accumulator._lock.release()
    assert world.add(b"x") is not None


def test_many_records_are_cut_into_batches_by_size() -> None:
    world = Gathering(batch_bytes=1000, buffer_bytes=5000)
    many = Many([bytes(76)] * 100, partition=1)
    assert world.accumulator.add_many("t", many) is False
    assert world.accumulator.bytes == 5000
    taken = world.take_all()
    assert [len(parcel) for parcel in taken] == [7] * 7 + [1]
    for parcel in taken:
        assert len(parcel.encode(ID, Compression.NONE)) <= 1000
        world.accumulator.settle(parcel, 0)
    assert len(many.deliveries) == len(list(many.deliveries)) == 50
    assert world.accumulator.add_many("t", many) is True
    assert len(many.deliveries) == len(list(many.deliveries)) == 100


def test_many_columns_must_fit_each_other() -> None:
    with pytest.raises(RecordInvalid, match="keys has 1 items for 2 values"):
        Many([b"1", b"2"], keys=[b"k"])
    with pytest.raises(RecordInvalid, match="one bytes where many"):
        Many(b"12")  # type: ignore[arg-type]  # what people do
    with pytest.raises(RecordInvalid, match="a value is a int"):
        Many([1])  # type: ignore[list-item]  # what people do
    assert Gathering().accumulator.add_many("t", Many([]))


def test_records_that_fail_make_room_too() -> None:
    world = Gathering()
    delivery = world.add(b"x")
    world.accumulator.settle(world.take(world.woken[0]), DeliveryFailed("no"))
    assert world.accumulator.bytes == 0
    assert isinstance(delivery.exception(), DeliveryFailed)
