"""Records: what is sent comes back, as it was, in its order, from where one begins."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from flotilla import Client
from flotilla.client.config import Route
from flotilla.client.errors import DeliveryFailed, OffsetOutOfRange, RecordInvalid, TopicMissing
from flotilla.client.partitioning import partition_of
from flotilla.client.positions import ConsumerRecord, Place

SOON_S = 15.0


def send(client: Client, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Store some values, as one batch."""
    with client.producer() as producer:
        producer.send_many(topic, values, partition=partition).result(SOON_S)


def read(client: Client, topic: str) -> list[ConsumerRecord]:
    """Read all that is there."""
    with client.consumer(topic) as consumer:
        return list(consumer.records(until="end"))


def numbers(count: int, begin: int = 0) -> list[bytes]:
    """Make some values that can be told apart."""
    return [b"%d" % number for number in range(begin, begin + count)]


def a_record_comes_back_with_all_that_it_had(url: str, name: str) -> None:
    """Value, key, headers and time are the sender's; offset and append time are the partition's."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        before_ms = int(time.time() * 1000) - 1
        headers = (("source", b"web"), ("empty", b""), ("source", b"\xff"))
        with client.producer() as producer:
            producer.send(name, b"\x00\xff", key=b"table 7", headers=headers, timestamp_ms=1234)
            producer.flush()
            producer.send(name, b"", key=b"")
        first, second = read(client, name)
        assert (first.topic, first.partition, first.offset, first.key, first.value) == (
            name, 0, 0, b"table 7", b"\x00\xff",
        )  # fmt: skip
        assert (tuple(first.headers), first.timestamp_ms) == (headers, 1234)
        assert (second.offset, second.key, second.value, tuple(second.headers)) == (1, b"", b"", ())
        assert before_ms <= first.append_time_ms <= second.append_time_ms <= time.time() * 1000 + 1


def keys_choose_partitions(url: str, name: str) -> None:
    """The same key goes to the same partition, which anybody can work out."""
    with Client(url) as client:
        client.topics.create(name, partitions=3)
        keys = numbers(20)
        with client.producer() as producer:
            for key in keys:
                producer.send(name, b"one", key=key)
            producer.send_many(name, [b"many"] * len(keys), keys=keys)
        found = read(client, name)
        assert len(found) == 2 * len(keys)
        assert all(record.partition == partition_of(record.key or b"", 3) for record in found)


def what_is_sent_to_a_partition_stays_in_order(url: str, name: str) -> None:
    """Also in many batches, compressed, and read in small pieces."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        with client.producer(batch_bytes=1000, compression="zstd") as producer:
            producer.send_many(name, numbers(2000))
            for value in numbers(100, 2000):
                producer.send(name, value)
        with client.consumer(name, fetch_bytes=2000) as consumer:
            assert [record.value for record in consumer.records(until="end")] == numbers(2100)
        with client.consumer(name) as consumer:
            batches = list(consumer.batches(until="end"))
            assert [value for batch in batches for value in batch.values] == numbers(2100)


def a_consumer_begins_where_it_is_told(url: str, name: str) -> None:
    """At the earliest, at the latest, at a time: that of the append."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, [b"old", b"older"])
        time.sleep(0.02)  # so that the times of the two batches differ
        send(client, name, [b"new"])
        moment_ms = read(client, name)[2].append_time_ms
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
        for start, expected in (
            ("earliest", [b"old", b"older", b"new"]),
            (moment_ms, [b"new"]),
            (moment, [b"new"]),
            (moment + timedelta(days=1), []),
            ("latest", []),
        ):
            with client.consumer(name, start=start) as consumer:
                assert [record.value for record in consumer.records(until="end")] == expected, start


def a_consumer_seeks_and_knows_where_it_is(url: str, name: str) -> None:
    """Also into the middle of a batch."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(10))
        with client.consumer(name) as consumer:
            assert [record.offset for record in consumer.records(max_records=2)] == [0, 1]
            assert consumer.position(name, 0) == 2
            consumer.seek(name, 0, 7)
            assert [record.value for record in consumer.records(until="end")] == [b"7", b"8", b"9"]
            consumer.seek(name, 0, "earliest")
            assert consumer.poll(SOON_S) is not None
            assert consumer.position(name, 0) == 1
            consumer.seek(name, 0, "latest")
            assert consumer.position(name, 0) == 10
            assert consumer.poll(0.1) is None


def a_partition_that_is_paused_is_not_read(url: str, name: str) -> None:
    """Others are; and what it had comes after `resume`."""
    with Client(url) as client:
        client.topics.create(name, partitions=2)
        for partition in range(2):
            send(client, name, numbers(5), partition)
        with client.consumer(name) as consumer:
            assert len(list(consumer.records(max_records=1))) == 1
            consumer.seek(name, 0, 0)
            consumer.seek(name, 1, 0)
            consumer.pause(Place(name, 1))
            assert {record.partition for record in consumer.records(timeout_s=0.3)} == {0}
            consumer.resume(Place(name, 1))
            found = list(consumer.records(max_records=5, timeout_s=SOON_S))
            assert [(record.partition, record.offset) for record in found] == [(1, at) for at in range(5)]


def lag_counts_what_is_left(url: str, name: str) -> None:
    """In each partition that a consumer reads."""
    with Client(url) as client:
        client.topics.create(name, partitions=2)
        send(client, name, numbers(5))
        send(client, name, numbers(3), 1)
        with client.consumer(name, partitions=[0]) as consumer:
            assert len(list(consumer.records(max_records=2))) == 2
            assert consumer.lag() == {Place(name, 0): 3}
            assert consumer.assignment == [Place(name, 0)]
        with client.consumer(name) as consumer:
            assert consumer.lag() == {Place(name, 0): 5, Place(name, 1): 3}


def who_waits_gets_a_record_when_it_comes(url: str, name: str) -> None:
    """A fetch waits at the server, and is answered at once when there is something."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        with client.consumer(name, start="latest", wait_s=SOON_S) as consumer:
            assert consumer.poll(0.1) is None
            thread = threading.Thread(target=lambda: send(client, name, [b"at last"]))
            began = time.monotonic()
            thread.start()
            record = consumer.poll(SOON_S)
            thread.join()
            assert record is not None
            assert record.value == b"at last"
            assert time.monotonic() - began < SOON_S / 2


def records_that_are_deleted_are_gone_and_who_wants_them_is_told(url: str, name: str) -> None:
    """Offsets do not change; a cut may lie in a batch; what is yet to come is refused, and changes nothing."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, numbers(10))
        (cut,) = client.topics.delete_records(name, {0: 4})
        assert (cut.first_offset, cut.next_offset) == (4, 10)
        assert [record.offset for record in read(client, name)] == [4, 5, 6, 7, 8, 9]
        with pytest.raises(OffsetOutOfRange) as beyond:
            client.topics.delete_records(name, {0: 11})
        assert (beyond.value.first_offset, beyond.value.next_offset) == (4, 10)
        with client.consumer(name, on_gone="raise") as consumer:
            assert consumer.poll(SOON_S) is not None
            consumer.seek(name, 0, 1)
            with pytest.raises(OffsetOutOfRange, match="offset 1 is gone: records begin at 4") as gone:
                consumer.poll(SOON_S)
            assert (gone.value.first_offset, gone.value.next_offset) == (4, 10)
            consumer.seek(name, 0, 9)
            assert [record.offset for record in consumer.records(until="end")] == [9]
            consumer.seek(name, 0, 12)
            with pytest.raises(OffsetOutOfRange, match="offset 12 is yet to come: the next record gets 10"):
                consumer.poll(SOON_S)
        (cut,) = client.topics.delete_records(name, {0: "latest"})
        assert (cut.first_offset, cut.next_offset) == (10, 10)
        send(client, name, [b"on"])
        assert [(record.offset, record.value) for record in read(client, name)] == [(10, b"on")]


def a_topic_grows_and_its_new_partitions_are_used(url: str, name: str) -> None:
    """Producers that are at work hear of them, and nothing is lost."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        with client.producer() as producer:
            producer.send(name, b"before").result(SOON_S)
            assert len(client.topics.grow(name, 3).partitions) == 3
            producer.send(name, b"meanwhile", partition=0).result(SOON_S)
            producer.flush()
            producer.send(name, b"after", partition=2).result(SOON_S)
        found = [(record.partition, record.value) for record in read(client, name)]
        assert sorted(found) == [(0, b"before"), (0, b"meanwhile"), (2, b"after")]


def both_ways_lead_to_the_same_records(url: str, name: str) -> None:
    """Straight to brokers, and through managers."""
    with Client(url) as client:
        client.topics.create(name, partitions=2)
    for route in Route:
        with Client(url, route=route) as client:
            send(client, name, [route.encode()], partition=1)
            assert [record.value for record in read(client, name)][-1] == route.encode()
    with Client(url) as client:
        assert [record.value for record in read(client, name)] == [b"auto", b"direct", b"gateway"]


def what_is_too_large_is_refused_before_it_is_sent(url: str, name: str) -> None:
    """By the topic's own limit, and by that of all."""
    with Client(url) as client:
        client.topics.create(name, partitions=1, batch_bytes_max=1024)
        with client.producer() as producer:
            with pytest.raises(RecordInvalid):
                producer.send(name, bytes(2000))
            producer.send_many(name, [bytes(100)] * 50)
        assert len(read(client, name)) == 50


def what_is_sent_to_a_topic_that_is_gone_fails(url: str, name: str) -> None:
    """A topic that is made again under the name is another one."""
    with Client(url) as client:
        with client.producer() as producer, pytest.raises(TopicMissing, match=f"there is no topic '{name}'"):
            producer.send(name, b"nowhere")
        client.topics.create(name, partitions=1)
        with client.producer() as producer:
            producer.send(name, b"old").result(SOON_S)
            with Client(url) as other:
                other.topics.delete(name)
                other.topics.create(name, partitions=1)
            with pytest.raises(DeliveryFailed, match="was removed"):
                producer.send(name, b"late").result(SOON_S)
        assert read(client, name) == []


BODIES: list[Callable[[str, str], None]] = [
    a_record_comes_back_with_all_that_it_had,
    keys_choose_partitions,
    what_is_sent_to_a_partition_stays_in_order,
    a_consumer_begins_where_it_is_told,
    a_consumer_seeks_and_knows_where_it_is,
    a_partition_that_is_paused_is_not_read,
    lag_counts_what_is_left,
    who_waits_gets_a_record_when_it_comes,
    records_that_are_deleted_are_gone_and_who_wants_them_is_told,
    a_topic_grows_and_its_new_partitions_are_used,
    both_ways_lead_to_the_same_records,
    what_is_too_large_is_refused_before_it_is_sent,
    what_is_sent_to_a_topic_that_is_gone_fails,
]
