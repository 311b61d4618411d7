"""The fake in the hands of a test: its beginning and end, what it shows, and what it is asked to do wrong."""

import asyncio
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from flotilla.client.errors import (
    ClientClosed,
    DeliveryUnknown,
    NotAllowed,
    OutcomeUnknown,
    Refused,
    ServerUnreachable,
)
from flotilla.testing import FakeFlotilla

SOON_S = 10.0


@pytest.fixture
def fake() -> Iterator[FakeFlotilla]:
    with FakeFlotilla() as fake:
        yield fake


def values(fake: FakeFlotilla, topic: str = "t") -> list[bytes]:
    return [record.value for record in fake.records(topic)]


# -- beginning and end ------------------------------------------------------------------------------------


def test_a_fake_runs_between_its_beginning_and_its_end() -> None:
    fake = FakeFlotilla()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = fake.url
    fake.close()
    for _ in range(2):  # it may begin again, and is empty then
        fake.start()
        with pytest.raises(RuntimeError, match="runs already"):
            fake.start()
        client = fake.client()
        client.topics.create("t")
        fake.close()
        with pytest.raises(ClientClosed):
            client.topics.list()
    with pytest.raises(ValueError, match="brokers is 0; it must be from 1 to 9"):
        FakeFlotilla(brokers=0)


def test_nothing_of_a_fake_is_left_behind() -> None:
    """Its thread has ended, and nobody answers at its port."""
    before = threading.active_count()
    with FakeFlotilla() as fake:
        url = fake.url
        fake.client().topics.create("t")
    assert threading.active_count() == before
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=1)


def test_several_fakes_know_nothing_of_each_other(fake: FakeFlotilla) -> None:
    with FakeFlotilla(brokers=1) as other:
        fake.client().topics.create("t")
        assert other.client().topics.list() == ()
        assert len(other.client().brokers.list()) == 1
        assert len({broker.url for broker in fake.client().brokers.list()} | {fake.url}) == 4


def test_an_asynchronous_client_works_on_the_loop_of_a_test(fake: FakeFlotilla) -> None:
    async def run() -> list[bytes]:
        async with fake.async_client() as client:
            await client.topics.create("t", partitions=1)
            async with client.producer() as producer:
                await (await producer.send("t", b"one"))
            async with client.consumer("t") as consumer:
                return [record.value async for record in consumer.records(until="end")]

    assert asyncio.run(run()) == [b"one"]


def test_the_time_is_what_a_test_says() -> None:
    """So that what depends on append times can be tested without waiting."""
    now = [1000]
    with FakeFlotilla(now_ms=lambda: now[0]) as fake, fake.client() as client:
        client.topics.create("t", partitions=1)
        with client.producer() as producer:
            for moment in (1000, 5000, 3000):  # clocks go back; append times do not
                now[0] = moment
                producer.send("t", b"%d" % moment).result(SOON_S)
        assert [record.append_time_ms for record in fake.records("t")] == [1000, 5000, 5000]
        assert [one.offset for one in client.topics.offsets("t", 2000)] == [1]


def test_records_can_be_looked_at_and_all_can_be_forgotten(fake: FakeFlotilla) -> None:
    client = fake.client()
    client.topics.create("t", partitions=2)
    with client.producer() as producer:
        producer.send("t", b"b", partition=1, key=b"k", headers=(("h", b"x"),), timestamp_ms=7)
        producer.send("t", b"a", partition=0)
    first, second = fake.records("t")
    assert (first.partition, first.value, second.partition, second.value) == (0, b"a", 1, b"b")
    assert (second.key, tuple(second.headers), second.timestamp_ms) == (b"k", (("h", b"x"),), 7)
    fake.refuse("/v1/topics", "forbidden")
    fake.clear()
    assert client.topics.list() == ()
    with pytest.raises(KeyError):
        fake.records("t")


# -- what goes wrong --------------------------------------------------------------------------------------


def test_who_cannot_be_reached_is_reached_again(fake: FakeFlotilla) -> None:
    """Connections are cut, new ones are refused, and nothing is lost: a producer goes on when it can."""
    client = fake.client(request_s=0.3)
    client.topics.create("t", partitions=1)
    with client.producer() as producer:
        producer.send("t", b"before").result(SOON_S)
        with fake.unreachable():
            with pytest.raises(ServerUnreachable, match="cannot be connected to"):
                client.topics.list()
            during = producer.send("t", b"during")
            assert not during.done()
        assert during.result(SOON_S).offset == 1
    assert values(fake) == [b"before", b"during"]


def test_a_consumer_goes_on_after_its_connections_were_cut(fake: FakeFlotilla) -> None:
    client = fake.client()
    client.topics.create("t", partitions=1)
    with client.producer() as producer, client.consumer("t") as consumer:
        producer.send("t", b"one").result(SOON_S)
        assert consumer.poll(SOON_S) is not None
        with fake.unreachable():
            assert consumer.poll(0.1) is None
        producer.send("t", b"two")
        record = consumer.poll(SOON_S)
        assert record is not None
        assert record.value == b"two"


def test_brokers_alone_cannot_be_reached_and_managers_pass_on(fake: FakeFlotilla) -> None:
    """The way is found out."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    with fake.unreachable("brokers"), client.producer() as producer:
        assert producer.send("t", b"around").result(SOON_S).offset == 0
    with fake.unreachable("managers"), fake.client(request_s=0.2) as other, pytest.raises(ServerUnreachable):
        other.topics.list()
    with pytest.raises(ValueError, match="it must be all, brokers, managers"), fake.unreachable("cats"):  # type: ignore[arg-type]
        pass


def test_an_answer_that_is_lost_does_not_double_records(fake: FakeFlotilla) -> None:
    """Guarantee 3: retries do not duplicate."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    fake.lose_answers(times=3)
    with client.producer() as producer:
        assert producer.send("t", b"one").result(SOON_S).offset == 0
        assert producer.send("t", b"two").result(SOON_S).offset == 1
    assert values(fake) == [b"one", b"two"]


def test_a_record_whose_answers_are_all_lost_is_unknown_and_may_be_there(fake: FakeFlotilla) -> None:
    """The outcome is ok, failed or unknown; a lost answer is never "failed"."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    fake.lose_answers(times=None)
    with client.producer(delivery_s=0.3) as producer, pytest.raises(DeliveryUnknown):
        producer.send("t", b"there").result(SOON_S)
    assert values(fake) == [b"there"]


def test_what_must_not_be_said_twice_is_unknown_if_its_answer_is_lost(fake: FakeFlotilla) -> None:
    client = fake.client()
    fake.lose_answers(path="/v1/topics")
    with pytest.raises(OutcomeUnknown):
        client.topics.create("t")
    assert [topic.name for topic in client.topics.list()] == ["t"], "it was done all the same"


def test_requests_are_refused_as_often_as_asked_for(fake: FakeFlotilla) -> None:
    client = fake.client()
    fake.refuse("/v1/topics", "forbidden", times=2, message="not you", scope="admin")
    for _ in range(2):
        with pytest.raises(NotAllowed, match="not you") as refused:
            client.topics.create("t")
        assert (refused.value.code, refused.value.details) == ("forbidden", {"scope": "admin"})
    client.topics.create("t", partitions=1)
    fake.refuse("/v1/append", "unavailable", times=3)  # what may pass is tried again, and nobody notices
    with client.producer() as producer:
        assert producer.send("t", b"one").result(SOON_S).offset == 0
    fake.refuse("/v1/topics", "conflict", times=None)
    with pytest.raises(Refused):
        client.topics.list()
    fake.heal()
    assert len(client.topics.list()) == 1


def test_people_are_refused_in_their_own_shape(fake: FakeFlotilla) -> None:
    fake.refuse("/topics", "busy", message="Come back later.")
    response = httpx.get(f"{fake.url}/topics")
    assert (response.status_code, response.json()) == (429, {"status": "failure", "message": "Come back later."})
    assert response.headers["retry-after"] == "1"


def test_answers_take_as_long_as_asked_for(fake: FakeFlotilla) -> None:
    """What was asked for is done at once, so that a client that does not wait cannot know."""
    client = fake.client(request_s=SOON_S)
    with fake.delay(0.2, "/v1/topics"):
        began = time.monotonic()
        client.topics.create("t", partitions=1)
        assert time.monotonic() - began >= 0.2
    with (
        fake.delay(SOON_S, "/v1/append"),
        client.producer(delivery_s=0.2) as producer,
        pytest.raises(DeliveryUnknown),
    ):
        producer.send("t", b"late").result(SOON_S)
    assert values(fake) == [b"late"]


@pytest.mark.parametrize(
    ("path", "code", "times", "said"),
    [
        ("/", "sorry", 1, "'sorry' is no code of a refusal; there are bad_batch, "),
        ("v1", "busy", 1, "'v1' is no beginning of a path"),
        ("/", "busy", 0, "0 times cannot be"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_at_once(
    fake: FakeFlotilla, path: str, code: str, times: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        fake.refuse(path, code, times)
    with pytest.raises(ValueError, match="a delay of -1 s cannot be"), fake.delay(-1):
        pass
