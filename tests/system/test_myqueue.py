"""`flotilla.myqueue` on a real system, by both routes."""

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
def test_what_was_enqueued_is_dequeued_once_and_in_order(fleet: Fleet, route: str) -> None:
    """Whoever was told that a message is in the queue finds it there, however soon they look."""
    topics, broker = [f"{route}-1", f"{route}-2"], fleet.url.removeprefix("http://")
    with Producer(topics, broker, route=route) as producer, Consumer(topics, broker, route=route) as consumer:
        for at in range(50):
            topic = topics[at % 2]
            assert not consumer.can_dequeue(topic)
            receipt = producer.enqueue(topic, f"message {at}")
            assert receipt == (topic, 0, at // 2)
            assert consumer.get_size(topic) == 1
            assert consumer.can_dequeue(topic)
            assert consumer.get_size(topic) == 1, "to look takes nothing away"
            assert consumer.dequeue(topic) == f"message {at}"
            assert (consumer.dequeue(topic), consumer.get_size(topic)) == (None, 0)
        for at in range(100):
            producer.enqueue(topics[0], str(at))
        assert [consumer.dequeue(topics[0]) for _ in range(101)] == [*map(str, range(100)), None]


def test_a_consumer_sees_what_comes_after_it_was_made(fleet: Fleet) -> None:
    with MyProducer("later", fleet.url) as producer:
        producer.enqueue("later", "before")
        with MyConsumer("later", fleet.url) as consumer, MyConsumer("later", fleet.url, start="earliest") as all_:
            producer.enqueue("later", "after")
            assert (consumer.get_size("later"), all_.get_size("later")) == (1, 2)
            assert [consumer.dequeue("later") for _ in range(2)] == ["after", None]
            assert [all_.dequeue("later") for _ in range(3)] == ["before", "after", None]


def test_a_producer_makes_its_topics_with_one_partition_and_leaves_others_as_they_are(fleet: Fleet) -> None:
    fleet.create("wide", partitions=3)
    with Producer(["made", "wide"], fleet.url) as producer, Client(fleet.url) as client:
        assert len(client.topics.describe("made").partitions) == 1
        assert len(client.topics.describe("wide").partitions) == 3
        assert producer.enqueue("wide", "here", partition=2).partition == 2
        with Consumer("wide", fleet.url, start="earliest") as consumer:
            for at in range(20):
                producer.enqueue("wide", str(at))
            assert sorted(str(consumer.dequeue("wide")) for _ in range(21)) == sorted(["here", *map(str, range(20))])


def test_to_wait_for_a_message_takes_as_long_as_one_says(fleet: Fleet) -> None:
    with Producer("waited", fleet.url) as producer, Consumer("waited", fleet.url) as consumer:
        timer = threading.Timer(0.3, producer.enqueue, ("waited", "at last"))
        timer.start()
        assert consumer.dequeue("waited", timeout_s=20) == "at last"
        timer.join()
        assert consumer.dequeue("waited", timeout_s=0.1) is None


def test_one_thread_that_waits_does_not_have_others_wait(fleet: Fleet) -> None:
    with Producer("turns", fleet.url) as producer, Consumer("turns", fleet.url) as consumer:
        found: list[str | None] = []
        waiter = threading.Thread(target=lambda: found.append(consumer.dequeue("turns", timeout_s=60)))
        waiter.start()
        began = time.monotonic()
        for _ in range(5):
            assert (consumer.get_size("turns"), consumer.dequeue("turns")) == (0, None)
        assert time.monotonic() - began < 30
        producer.enqueue("turns", "for whoever waits")
        waiter.join()
        assert found == ["for whoever waits"]


def test_threads_that_share_a_consumer_get_each_message_once(fleet: Fleet) -> None:
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


def test_what_is_no_text_is_told_and_passed_over(fleet: Fleet) -> None:
    with (
        Producer("mixed", fleet.url) as producer,
        Consumer("mixed", fleet.url) as consumer,
        Client(fleet.url) as client,
    ):
        with client.producer() as raw:
            raw.send("mixed", b"\xff\xfe")
        producer.enqueue("mixed", "text")
        with pytest.raises(DataInvalid, match="the message at offset 0 of 'mixed' is no text"):
            consumer.dequeue("mixed")
        assert consumer.dequeue("mixed") == "text"


def test_errors_are_those_of_the_client(fleet: Fleet) -> None:
    with pytest.raises(TopicMissing, match="there is no topic 'nowhere'"):
        Consumer(["nowhere"], fleet.url)
    with pytest.raises(Refused, match="a name has letters"):
        Producer(["bad name"], fleet.url)
    with pytest.raises(ConfigInvalid, match="topics must be given"):
        Producer([], fleet.url)
    producer = Producer("closed", fleet.url)
    with pytest.raises(ConfigInvalid, match="'other' is none of those"):
        producer.enqueue("other", "message")
    producer.close()
    with pytest.raises(ClientClosed):
        producer.enqueue("closed", "message")


def test_the_handler_makes_each_call_of_the_api(fleet: Fleet) -> None:
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
        with pytest.raises(DataInvalid, match="is no text"):
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
        with pytest.raises(Refused, match="it can be removed when it holds none"):
            api.remove_broker(broker["broker_host"])
        assert api.delete_topic("called") == "Topic 'called' deleted successfully."
        with pytest.raises(TopicMissing, match=r"^Topic does not exist.$"):
            api.size("called", consumer)
        with pytest.raises(Refused, match="Producer not registered"):
            api.enqueue("direct-1", producer, "message")


def test_nobody_there_is_told() -> None:
    with ApiHandler(f"127.0.0.1:{free_port()}", request_s=0.5) as api, pytest.raises(ServerUnreachable):
        api.list_topics()
    with pytest.raises(FlotillaError, match="is no address"):
        ApiHandler("nowhere")
