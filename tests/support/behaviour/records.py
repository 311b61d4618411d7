"""Records: what consumers return, in which order, and from which offset."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from flotilla import Client
from flotilla.client.config import Route
from flotilla.client.errors import DeliveryFailed, OffsetOutOfRange, RecordInvalid, TopicMissing
from flotilla.client.partitioning import partition_of
from flotilla.client.positions import ConsumerRecord, TopicPartition

SOON_S = 15.0


def send(client: Client, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Store values as one batch."""
    with client.producer() as producer:
        producer.send_many(topic, values, partition=partition).result(SOON_S)


def read(client: Client, topic: str) -> list[ConsumerRecord]:
    """Read all records."""
    with client.consumer(topic) as consumer:
        return list(consumer.records(until="end"))


def numbers(count: int, begin: int = 0) -> list[bytes]:
    """Make distinct values."""
    return [b"%d" % number for number in range(begin, begin + count)]


def record_keeps_value_key_headers_and_timestamp(url: str, name: str) -> None:
    """Offset and append time are set by the partition."""
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


def keys_select_partitions(url: str, name: str) -> None:
    """A key always selects the same partition, which callers can compute."""
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


def records_of_a_partition_stay_in_order(url: str, name: str) -> None:
    """Also in many batches, compressed, and fetched in small responses."""
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


def consumer_starts_at_the_given_position(url: str, name: str) -> None:
    """Earliest, latest, or a timestamp, which is compared with append times."""
    with Client(url) as client:
        client.topics.create(name, partitions=1)
        send(client, name, [b"old", b"older"])
        time.sleep(0.02)  # so that the append times of the two batches differ
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


def consumer_seeks_and_returns_its_position(url: str, name: str) -> None:
    """Also into a batch."""
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


def paused_partition_is_not_read(url: str, name: str) -> None:
    """Other partitions are, and its records follow after `resume`."""
    with Client(url) as client:
        client.topics.create(name, partitions=2)
        for partition in range(2):
            send(client, name, numbers(5), partition)
        with client.consumer(name) as consumer:
            assert len(list(consumer.records(max_records=1))) == 1
            consumer.seek(name, 0, 0)
            consumer.seek(name, 1, 0)
            consumer.pause(TopicPartition(name, 1))
            assert {record.partition for record in consumer.records(timeout_s=0.3)} == {0}
            consumer.resume(TopicPartition(name, 1))
            found = list(consumer.records(max_records=5, timeout_s=SOON_S))
            assert [(record.partition, record.offset) for record in found] == [(1, at) for at in range(5)]


def lag_counts_unread_records(url: str, name: str) -> None:
    """For each partition that a consumer reads."""
    with Client(url) as client:
        client.topics.create(name, partitions=2)
        send(client, name, numbers(5))
        send(client, name, numbers(3), 1)
        with client.consumer(name, partitions=[0]) as consumer:
            assert len(list(consumer.records(max_records=2))) == 2
            assert consumer.lag() == {TopicPartition(name, 0): 3}
            assert consumer.assignment == [TopicPartition(name, 0)]
        with client.consumer(name) as consumer:
            assert consumer.lag() == {TopicPartition(name, 0): 5, TopicPartition(name, 1): 3}


def waiting_consumer_gets_a_new_record_at_once(url: str, name: str) -> None:
    """A fetch waits on the server until there are records."""
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


def deleted_records_are_reported_to_consumers(url: str, name: str) -> None:
    """Offsets do not change. The first one can be within a batch. An offset beyond the end is rejected."""
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
            with pytest.raises(OffsetOutOfRange, match="offset 1 is below the first offset, 4") as gone:
                consumer.poll(SOON_S)
            assert (gone.value.first_offset, gone.value.next_offset) == (4, 10)
            consumer.seek(name, 0, 9)
            assert [record.offset for record in consumer.records(until="end")] == [9]
            consumer.seek(name, 0, 12)
            with pytest.raises(OffsetOutOfRange, match="offset 12 is above the next offset, 10"):
                consumer.poll(SOON_S)
        (cut,) = client.topics.delete_records(name, {0: "latest"})
        assert (cut.first_offset, cut.next_offset) == (10, 10)
        send(client, name, [b"on"])
        assert [(record.offset, record.value) for record in read(client, name)] == [(10, b"on")]


def new_partitions_of_a_topic_are_used(url: str, name: str) -> None:
    """Running producers learn of them, and no record is lost."""
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


def both_routes_lead_to_the_same_records(url: str, name: str) -> None:
    """Direct to brokers, and through managers."""
    with Client(url) as client:
        client.topics.create(name, partitions=2)
    for route in Route:
        with Client(url, route=route) as client:
            send(client, name, [route.encode()], partition=1)
            assert [record.value for record in read(client, name)][-1] == route.encode()
    with Client(url) as client:
        assert [record.value for record in read(client, name)] == [b"auto", b"direct", b"gateway"]


def too_large_record_is_rejected_before_it_is_sent(url: str, name: str) -> None:
    """By the limit of the topic, and by the global limit."""
    with Client(url) as client:
        client.topics.create(name, partitions=1, batch_bytes_max=1024)
        with client.producer() as producer:
            with pytest.raises(RecordInvalid):
                producer.send(name, bytes(2000))
            producer.send_many(name, [bytes(100)] * 50)
        assert len(read(client, name)) == 50


def sending_to_a_deleted_topic_fails(url: str, name: str) -> None:
    """A topic that is created again with the same name is another topic."""
    with Client(url) as client:
        with client.producer() as producer, pytest.raises(TopicMissing, match=f"topic '{name}' does not exist"):
            producer.send(name, b"nowhere")
        client.topics.create(name, partitions=1)
        with client.producer() as producer:
            producer.send(name, b"old").result(SOON_S)
            with Client(url) as other:
                other.topics.delete(name)
                other.topics.create(name, partitions=1)
            with pytest.raises(DeliveryFailed, match="was deleted"):
                producer.send(name, b"late").result(SOON_S)
        assert read(client, name) == []


BODIES: list[Callable[[str, str], None]] = [
    record_keeps_value_key_headers_and_timestamp,
    keys_select_partitions,
    records_of_a_partition_stay_in_order,
    consumer_starts_at_the_given_position,
    consumer_seeks_and_returns_its_position,
    paused_partition_is_not_read,
    lag_counts_unread_records,
    waiting_consumer_gets_a_new_record_at_once,
    deleted_records_are_reported_to_consumers,
    new_partitions_of_a_topic_are_used,
    both_routes_lead_to_the_same_records,
    too_large_record_is_rejected_before_it_is_sent,
    sending_to_a_deleted_topic_fails,
]
