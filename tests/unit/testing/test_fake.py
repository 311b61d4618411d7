"""FakeFlotilla: start and close, stored records, and fault injection."""

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


# -- start and close --------------------------------------------------------------------------------------


def test_fake_runs_between_start_and_close() -> None:
    fake = FakeFlotilla()
    with pytest.raises(RuntimeError, match="this fake is not running"):
        _ = fake.url
    fake.close()
    for _ in range(2):  # it can be started again, and is empty then
        fake.start()
        with pytest.raises(RuntimeError, match="already running"):
            fake.start()
        client = fake.client()
        client.topics.create("t")
        fake.close()
        with pytest.raises(ClientClosed):
            client.topics.list()
    with pytest.raises(ValueError, match="brokers is 0; it must be from 1 to 9"):
        FakeFlotilla(brokers=0)


def test_closed_fake_leaves_no_thread_and_no_port() -> None:
    """Its thread has ended, and its port refuses connections."""
    before = threading.active_count()
    with FakeFlotilla() as fake:
        url = fake.url
        fake.client().topics.create("t")
    assert threading.active_count() == before
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=1)


def test_fakes_are_independent(fake: FakeFlotilla) -> None:
    with FakeFlotilla(brokers=1) as other:
        fake.client().topics.create("t")
        assert other.client().topics.list() == ()
        assert len(other.client().brokers.list()) == 1
        assert len({broker.url for broker in fake.client().brokers.list()} | {fake.url}) == 4


def test_async_client_runs_on_the_event_loop_of_the_test(fake: FakeFlotilla) -> None:
    async def run() -> list[bytes]:
        async with fake.async_client() as client:
            await client.topics.create("t", partitions=1)
            async with client.producer() as producer:
                await (await producer.send("t", b"one"))
            async with client.consumer("t") as consumer:
                return [record.value async for record in consumer.records(until="end")]

    assert asyncio.run(run()) == [b"one"]


def test_append_times_use_the_clock_of_the_test() -> None:
    """Tests of append times need no waiting."""
    now = [1000]
    with FakeFlotilla(now_ms=lambda: now[0]) as fake, fake.client() as client:
        client.topics.create("t", partitions=1)
        with client.producer() as producer:
            for moment in (1000, 5000, 3000):  # clocks go back; append times do not
                now[0] = moment
                producer.send("t", b"%d" % moment).result(SOON_S)
        assert [record.append_time_ms for record in fake.records("t")] == [1000, 5000, 5000]
        assert [one.offset for one in client.topics.offsets("t", 2000)] == [1]


def test_records_returns_stored_records_and_clear_deletes_them(fake: FakeFlotilla) -> None:
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


# -- fault injection --------------------------------------------------------------------------------------


def test_producer_resumes_after_unreachable_servers(fake: FakeFlotilla) -> None:
    """Connections are cut, new ones are refused, and the producer delivers all records later."""
    client = fake.client(request_s=0.3)
    client.topics.create("t", partitions=1)
    with client.producer() as producer:
        producer.send("t", b"before").result(SOON_S)
        with fake.unreachable():
            with pytest.raises(ServerUnreachable, match="cannot connect to"):
                client.topics.list()
            during = producer.send("t", b"during")
            assert not during.done()
        assert during.result(SOON_S).offset == 1
    assert values(fake) == [b"before", b"during"]


def test_consumer_resumes_after_cut_connections(fake: FakeFlotilla) -> None:
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


def test_client_uses_managers_if_only_brokers_are_unreachable(fake: FakeFlotilla) -> None:
    """The client routes appends through managers."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    with fake.unreachable("brokers"), client.producer() as producer:
        assert producer.send("t", b"around").result(SOON_S).offset == 0
    with fake.unreachable("managers"), fake.client(request_s=0.2) as other, pytest.raises(ServerUnreachable):
        other.topics.list()
    with pytest.raises(ValueError, match="it must be all, brokers, managers"), fake.unreachable("cats"):  # type: ignore[arg-type]
        pass


def test_lost_response_does_not_duplicate_records(fake: FakeFlotilla) -> None:
    """Guarantee 3: retries do not duplicate."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    fake.lose_answers(times=3)
    with client.producer() as producer:
        assert producer.send("t", b"one").result(SOON_S).offset == 0
        assert producer.send("t", b"two").result(SOON_S).offset == 1
    assert values(fake) == [b"one", b"two"]


def test_outcome_is_unknown_if_all_responses_are_lost(fake: FakeFlotilla) -> None:
    """The outcome is ok, failed or unknown; a lost response is never "failed"."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    fake.lose_answers(times=None)
    with client.producer(delivery_s=0.3) as producer, pytest.raises(DeliveryUnknown):
        producer.send("t", b"there").result(SOON_S)
    assert values(fake) == [b"there"]


def test_outcome_of_non_idempotent_request_is_unknown_if_its_response_is_lost(fake: FakeFlotilla) -> None:
    client = fake.client()
    fake.lose_answers(path="/v1/topics")
    with pytest.raises(OutcomeUnknown):
        client.topics.create("t")
    assert [topic.name for topic in client.topics.list()] == ["t"], "the request took effect"


def test_requests_are_refused_the_given_number_of_times(fake: FakeFlotilla) -> None:
    client = fake.client()
    fake.refuse("/v1/topics", "forbidden", times=2, message="not you", scope="admin")
    for _ in range(2):
        with pytest.raises(NotAllowed, match="not you") as refused:
            client.topics.create("t")
        assert (refused.value.code, refused.value.details) == ("forbidden", {"scope": "admin"})
    client.topics.create("t", partitions=1)
    fake.refuse("/v1/append", "unavailable", times=3)  # retryable: the producer retries
    with client.producer() as producer:
        assert producer.send("t", b"one").result(SOON_S).offset == 0
    fake.refuse("/v1/topics", "conflict", times=None)
    with pytest.raises(Refused):
        client.topics.list()
    fake.heal()
    assert len(client.topics.list()) == 1


def test_simple_api_refusal_has_its_own_format(fake: FakeFlotilla) -> None:
    fake.refuse("/topics", "busy", message="Come back later.")
    response = httpx.get(f"{fake.url}/topics")
    assert (response.status_code, response.json()) == (429, {"status": "failure", "message": "Come back later."})
    assert response.headers["retry-after"] == "1"


def test_delay_delays_the_response_but_not_the_request(fake: FakeFlotilla) -> None:
    """The request is processed at once, so the outcome is unknown to a client that does not wait."""
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
        ("/", "sorry", 1, "unknown error code 'sorry'; use one of bad_batch, "),
        ("v1", "busy", 1, "path is 'v1'; it must start with a slash"),
        ("/", "busy", 0, "times is 0; it must be at least 1"),
    ],
)
def test_invalid_fault_raises_value_error(fake: FakeFlotilla, path: str, code: str, times: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fake.refuse(path, code, times)
    with pytest.raises(ValueError, match="delay is -1 s; it must be at least 0"), fake.delay(-1):
        pass
