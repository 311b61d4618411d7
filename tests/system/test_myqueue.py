"""`flotilla.myqueue` on a real cluster, by both routes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flotilla import Client, FlotillaError
from flotilla.client.errors import (
    ClientClosed,
    ConfigInvalid,
    DataInvalid,
    Refused,
    ServerUnreachable,
    TopicExists,
    TopicMissing,
)
from flotilla.myqueue import ApiHandler, Consumer, MyConsumer, MyProducer, Producer
from support.cluster import free_port
from support.fleet import Fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1, readers=1) as fleet:
        yield fleet


@pytest.mark.parametrize("route", ["direct", "gateway"])
def test_messages_are_dequeued_once_and_in_order(fleet: Fleet, route: str) -> None:
    """An acknowledged message is visible at once."""
    topics, broker = [f"{route}-1", f"{route}-2"], fleet.url.removeprefix("http://")
    with Producer(topics, broker, route=route) as producer, Consumer(topics, broker, route=route) as consumer:
        for at in range(50):
            topic = topics[at % 2]
            assert not consumer.can_dequeue(topic)
            receipt = producer.enqueue(topic, f"message {at}")
            assert receipt == (topic, 0, at // 2)
            assert consumer.get_size(topic) == 1
            assert consumer.can_dequeue(topic)
            assert consumer.get_size(topic) == 1, "get_size consumes nothing"
            assert consumer.dequeue(topic) == f"message {at}"
            assert (consumer.dequeue(topic), consumer.get_size(topic)) == (None, 0)
        for at in range(100):
            producer.enqueue(topics[0], str(at))
        assert [consumer.dequeue(topics[0]) for _ in range(101)] == [*map(str, range(100)), None]


def test_consumer_starts_at_latest(fleet: Fleet) -> None:
    with MyProducer("later", fleet.url) as producer:
        producer.enqueue("later", "before")
        with MyConsumer("later", fleet.url) as consumer, MyConsumer("later", fleet.url, start="earliest") as all_:
            producer.enqueue("later", "after")
            assert (consumer.get_size("later"), all_.get_size("later")) == (1, 2)
            assert [consumer.dequeue("later") for _ in range(2)] == ["after", None]
            assert [all_.dequeue("later") for _ in range(3)] == ["before", "after", None]


def test_producer_creates_missing_topics_with_one_partition(fleet: Fleet) -> None:
    fleet.create("wide", partitions=3)
    with Producer(["made", "wide"], fleet.url) as producer, Client(fleet.url) as client:
        assert len(client.topics.describe("made").partitions) == 1
        assert len(client.topics.describe("wide").partitions) == 3
        assert producer.enqueue("wide", "here", partition=2).partition == 2
        with Consumer("wide", fleet.url, start="earliest") as consumer:
            for at in range(20):
                producer.enqueue("wide", str(at))
            assert sorted(str(consumer.dequeue("wide")) for _ in range(21)) == sorted(["here", *map(str, range(20))])


def test_dequeue_waits_for_the_timeout(fleet: Fleet) -> None:
    with Producer("waited", fleet.url) as producer, Consumer("waited", fleet.url) as consumer:
        timer = threading.Timer(0.3, producer.enqueue, ("waited", "at last"))
        timer.start()
        assert consumer.dequeue("waited", timeout_s=20) == "at last"
        timer.join()
        assert consumer.dequeue("waited", timeout_s=0.1) is None


def test_waiting_thread_does_not_block_others(fleet: Fleet) -> None:
    with Producer("turns", fleet.url) as producer, Consumer("turns", fleet.url) as consumer:
        found: list[str | None] = []
        waiter = threading.Thread(target=lambda: found.append(consumer.dequeue("turns", timeout_s=60)))
        waiter.start()
        began = time.monotonic()
        for _ in range(5):
            assert (consumer.get_size("turns"), consumer.dequeue("turns")) == (0, None)
        assert time.monotonic() - began < 30
        producer.enqueue("turns", "for the waiting thread")
        waiter.join()
        assert found == ["for the waiting thread"]


def test_threads_sharing_a_consumer_get_each_message_once(fleet: Fleet) -> None:
    with Producer("shared", fleet.url) as producer, Consumer("shared", fleet.url) as consumer:
        senders = [
            threading.Thread(target=lambda at=at: [producer.enqueue("shared", f"{at} {one}") for one in range(25)])
            for at in range(4)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        found: list[str] = []

        def take() -> None:
            while (message := consumer.dequeue("shared")) is not None:
                found.append(message)

        takers = [threading.Thread(target=take) for _ in range(3)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join()
        assert sorted(found) == sorted(f"{at} {one}" for at in range(4) for one in range(25))


def test_binary_record_raises_and_is_skipped(fleet: Fleet) -> None:
    with (
        Producer("mixed", fleet.url) as producer,
        Consumer("mixed", fleet.url) as consumer,
        Client(fleet.url) as client,
    ):
        with client.producer() as raw:
            raw.send("mixed", b"\xff\xfe")
        producer.enqueue("mixed", "text")
        with pytest.raises(DataInvalid, match="message at offset 0 of 'mixed' is not UTF-8 text"):
            consumer.dequeue("mixed")
        assert consumer.dequeue("mixed") == "text"


def test_myqueue_raises_client_errors(fleet: Fleet) -> None:
    with pytest.raises(TopicMissing, match="topic 'nowhere' does not exist"):
        Consumer(["nowhere"], fleet.url)
    with pytest.raises(Refused, match="'bad name': name must match"):
        Producer(["bad name"], fleet.url)
    with pytest.raises(ConfigInvalid, match="topics must be given"):
        Producer([], fleet.url)
    producer = Producer("closed", fleet.url)
    with pytest.raises(ConfigInvalid, match="'other' was not passed to the constructor"):
        producer.enqueue("other", "message")
    producer.close()
    with pytest.raises(ClientClosed):
        producer.enqueue("closed", "message")


def test_handler_covers_the_simple_api(fleet: Fleet) -> None:
    with ApiHandler(fleet.url.removeprefix("http://")) as api:
        assert api.create_topic("called", partitions=2, replication=1) == "Topic 'called' created successfully."
        with pytest.raises(TopicExists, match=r"^Topic already exists.$"):
            api.create_topic("called")
        assert "called" in api.list_topics()
        assert api.list_partitions("called") == [0, 1]
        producer, consumer = api.register_producer("called"), api.register_consumer("called")
        late, second = api.register_consumer("called", start="latest"), api.register_consumer("called", partition=1)
        sent = [api.enqueue("called", producer, "one", 0), api.produce("called", producer, "zwei & drei?", 1)]
        assert sent == [("called", 0, 0), ("called", 1, 0)]
        assert [api.size("called", one) for one in (consumer, late, second)] == [2, 2, 1]
        assert [api.dequeue("called", consumer), api.consume("called", consumer)] == ["one", "zwei & drei?"]
        assert (api.dequeue("called", consumer), api.size("called", consumer, 0)) == (None, 0)
        assert api.dequeue("called", late, partition=1) == "zwei & drei?"
        fleet.post("/producer/produce", topic="called", producer_id=producer, message_base64="/w==", partition_index=0)
        with pytest.raises(DataInvalid, match="is not UTF-8 text"):
            api.dequeue("called", consumer)
        api.heartbeat_producer(producer)
        api.heartbeat_consumer(consumer)
        assert {one["status"] for one in api.list_producers() if one["producer_id"] == producer} == {"active"}
        assert {late, second} <= {one["consumer_id"] for one in api.list_consumers()}
        assert "writer" in {one["role"] for one in api.list_managers()}
        (broker,) = api.list_brokers()
        assert api.add_broker(broker["broker_host"]) == broker["broker_id"]
        assert api.deactivate_broker(broker["broker_host"]) == "Broker deactivated successfully."
        assert api.activate_broker(broker["broker_host"]) == "Broker activated successfully."
        with pytest.raises(Refused, match="only a broker without replicas can be removed"):
            api.remove_broker(broker["broker_host"])
        assert api.delete_topic("called") == "Topic 'called' deleted successfully."
        with pytest.raises(TopicMissing, match=r"^Topic does not exist.$"):
            api.size("called", consumer)
        with pytest.raises(Refused, match="Producer not registered"):
            api.enqueue("direct-1", producer, "message")


def test_unreachable_server_is_an_error() -> None:
    with ApiHandler(f"127.0.0.1:{free_port()}", request_s=0.5) as api, pytest.raises(ServerUnreachable):
        api.list_topics()
    with pytest.raises(FlotillaError, match="is not an address"):
        ApiHandler("nowhere")
