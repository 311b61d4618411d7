"""Kafka, measured like Flotilla in `client.py`, for a ratio on the same machine.

Needs a running Kafka cluster of three brokers, and its client: `pip install confluent-kafka`. Topics have 4 partitions
with 3 replicas, and `min.insync.replicas` is 2 (`acks=all`). By default, Kafka does not wait for disks.

Usage: client_kafka.py HOST:PORT [--records 1000000] [--rounds 3] [--sizes 100,1024]
"""

import argparse
import os
import statistics
import struct
import threading
import time
import uuid
from typing import Any

from client import LATENCY_PER_S, LATENCY_S, MANY, PARTITIONS
from measurement import percentiles

try:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic
except ImportError:
    raise SystemExit("Kafka's client is not here: pip install confluent-kafka") from None

# Tuned for throughput: large batches, and a consumer that does not pause when its queue is full.
PRODUCER = {"acks": "all", "linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": 500_000}
CONSUMER = {"fetch.queue.backoff.ms": 5, "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 262_144}


class Kafka:
    """A Kafka cluster, and a topic that is deleted at the end."""

    def __init__(self, servers: str) -> None:
        self.servers = {"bootstrap.servers": servers}
        self.admin = AdminClient(self.servers)

    def create(self) -> str:
        """Create a topic; return its name when all replicas exist."""
        name = f"bench-{uuid.uuid4().hex[:8]}"
        settings = {"min.insync.replicas": "2"}
        for future in self.admin.create_topics([NewTopic(name, PARTITIONS, 3, config=settings)]).values():
            future.result(30)
        deadline = time.monotonic() + 30
        while not self._is_ready(name):
            assert time.monotonic() < deadline, f"topic {name} did not get its replicas"
            time.sleep(0.1)
        return name

    def _is_ready(self, name: str) -> bool:
        found = self.admin.list_topics(name, timeout=10).topics[name].partitions.values()
        return len(found) == PARTITIONS and all(len(one.isrs) == 3 for one in found)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        for future in self.admin.delete_topics([name]).values():
            future.result(30)

    def producer(self, **options: Any) -> Producer:  # noqa: ANN401 - as librdkafka has them
        """Make a producer."""
        return Producer({**self.servers, **PRODUCER, **options})

    def consumer(self, topic: str, **options: Any) -> Consumer:  # noqa: ANN401 - as librdkafka has them
        """Make a consumer of all partitions, from the earliest offset."""
        consumer = Consumer({**self.servers, "group.id": "bench", "enable.auto.commit": False, **options})
        consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
        return consumer


class Counter:
    """Counts acknowledged records."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: object, _: object) -> None:
        """Handle a delivery report."""
        assert error is None, error
        self.count += 1


def send(kafka: Kafka, topic: str, size: int, records: int) -> float:
    """Call `produce` for each record, with a delivery report for each."""
    producer, value, done = kafka.producer(), os.urandom(size), Counter()
    producer.list_topics(topic, timeout=10)
    began = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=done)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert done.count == records
    return records / (time.perf_counter() - began)


def many(kafka: Kafka, topic: str, size: int, records: int) -> float:
    """Call `produce_batch`, with delivery reports for failures only."""
    producer, done = kafka.producer(**{"delivery.report.only.error": True}), Counter()
    values = [os.urandom(size) for _ in range(1000)]
    producer.list_topics(topic, timeout=10)
    began = time.perf_counter()
    for _ in range(records // len(values)):
        batch: list[dict[str, Any]] = [{"value": value} for value in values]
        while batch:
            producer.produce_batch(topic, batch, on_delivery=done)
            batch = [{"value": one["value"]} for one in batch if "_error" in one]
            producer.poll(0.01 if batch else 0)
    assert producer.flush(60) == 0
    assert done.count == 0
    return records / (time.perf_counter() - began)


def consume(kafka: Kafka, topic: str, records: int) -> float:
    """Consume thousands of messages per call, and read each value."""
    consumer = kafka.consumer(topic, **CONSUMER)
    began, got = time.perf_counter(), 0
    while got < records:
        assert time.perf_counter() - began < 120, "Kafka sends no more"
        for message in consumer.consume(5000, 1.0):
            if message.error():
                raise KafkaException(message.error())
            got += message.value() is not None
    rate = got / (time.perf_counter() - began)
    consumer.close()
    return rate


def latency(kafka: Kafka) -> None:
    """Send at a constant rate, without lingering; measure the time until each record is consumed."""
    topic, total = kafka.create(), int(LATENCY_PER_S * LATENCY_S)
    took: list[float] = []
    consumer, producer = kafka.consumer(topic), kafka.producer(**{"linger.ms": 0})

    def receive() -> None:
        while len(took) < total:
            message = consumer.poll(10)
            assert message is not None
            took.append(time.perf_counter() - struct.unpack_from("<d", message.value())[0])

    reader = threading.Thread(target=receive)
    reader.start()
    began = time.perf_counter()
    for number in range(total):
        time.sleep(max(0.0, began + number / LATENCY_PER_S - time.perf_counter()))
        producer.produce(topic, struct.pack("<d", time.perf_counter()) + b"x" * 92, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(60)
    reader.join()
    consumer.close()
    kafka.delete(topic)
    print(f"until consumed, {LATENCY_PER_S} records/s of 100 B: {percentiles(took)}")


def main() -> None:
    """Parse the command line and run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", help="bootstrap servers, e.g. 127.0.0.1:9092")
    parser.add_argument("--records", type=int, default=1_000_000, help="100-byte records per round; fewer larger ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="100,1024", help="bytes of a record")
    options = parser.parse_args()
    kafka = Kafka(options.servers)
    for size in map(int, options.sizes.split(",")):
        records = max(1, options.records * 100 // size // MANY) * MANY
        found: dict[str, list[float]] = {way: [] for way in MEASURES}
        for _ in range(options.rounds):
            topic = kafka.create()
            for way, rates in found.items():
                rates.append(MEASURES[way](kafka, topic, size, records))
            kafka.delete(topic)
        for way, rates in found.items():
            rate, each = statistics.median(rates), ", ".join(f"{one:,.0f}" for one in rates)
            print(f"{way} {size} B: {rate:,.0f} records/s, {rate * size / 1e6:,.0f} MB/s ({each})")
    latency(kafka)


MEASURES: dict[str, Any] = {
    "send": send,
    "many": many,
    "consume": lambda kafka, topic, _, records: consume(
        kafka, topic, 2 * records
    ),  # the records of both earlier measurements
}

if __name__ == "__main__":
    main()
