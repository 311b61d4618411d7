"""The client library against a real cluster: resources are released in every way that a program ends."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flotilla import AsyncClient, Client, FlotillaError
from flotilla.client.errors import ClientClosed, ClientForked, ConfigInvalid, ServerUnreachable
from support.cluster import free_port
from support.fleet import Fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1, readers=1) as fleet:
        yield fleet


def values(client: Client, topic: str) -> list[bytes]:
    with client.consumer(topic) as consumer:
        return [record.value for record in consumer.records(until="end")]


def test_client_delivers_records_before_it_closes(fleet: Fleet) -> None:
    with Client(fleet.url) as client:
        client.topics.create("closed", partitions=1, replication=1)
        producer = client.producer(linger_s=60)
        deliveries = [producer.send("closed", str(at).encode()) for at in range(100)]
    assert [one.result(0).offset for one in deliveries] == list(range(100))
    with pytest.raises(ClientClosed):
        producer.send("closed", b"too late")
    with pytest.raises(ClientClosed):
        client.topics.list()
    with Client(fleet.url) as client:
        assert values(client, "closed") == [str(at).encode() for at in range(100)]


def test_program_that_exits_without_close_has_delivered_its_records(fleet: Fleet) -> None:
    """The interpreter closes clients at exit."""
    with Client(fleet.url) as client:
        client.topics.create("forgotten", partitions=1, replication=1)
        program = (
            "import sys; from flotilla import Client\n"
            "producer = Client(sys.argv[1]).producer(linger_s=30)\n"
            "producer.send('forgotten', b'one coffee')\n"
        )
        subprocess.run([sys.executable, "-c", program, fleet.url], check=True, timeout=60)
        assert values(client, "forgotten") == [b"one coffee"]


def test_creator_of_a_topic_connects_directly_to_brokers(fleet: Fleet) -> None:
    """The response to a create has no broker addresses; the client looks them up."""

    def appends() -> float:
        found = re.findall(r'flotilla_requests_total{call="/v1/append".*} (\S+)', fleet.client.get("/metrics").text)
        return sum(map(float, found))

    before = appends()
    with Client(fleet.url) as client:
        client.topics.create("straight", partitions=1, replication=1)
        with client.producer() as producer:
            producer.send("straight", b"one coffee").result(30)
    assert appends() == before


def test_client_keeps_only_open_resources(fleet: Fleet) -> None:
    """A program that opens a consumer per request does not grow."""

    async def work() -> int:
        async with AsyncClient(fleet.url) as client:
            await client.topics.create("many", partitions=1, replication=1)
            for _ in range(20):
                async with client.producer() as producer:
                    await (await producer.send("many", b"x"))
            return len(client._made)

    assert asyncio.run(work()) == 1


def test_fork_must_create_its_own_client_and_does_not_disturb_its_parent(fleet: Fleet) -> None:
    with Client(fleet.url) as client:
        client.topics.create("forked", partitions=1, replication=1)
        producer = client.producer()
        producer.send("forked", b"before").result(30)
        child = os.fork()
        if child == 0:  # whatever happens, it must not go on with the tests
            code = 1
            try:
                producer.send("forked", b"from the child")
            except ClientForked:
                with Client(fleet.url) as own, own.producer() as mine:
                    code = 0 if mine.send("forked", b"from its own").result(30).offset == 1 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send("forked", b"after").result(30)
        assert values(client, "forked") == [b"before", b"from its own", b"after"]


def test_unreachable_server_is_named_with_a_hint() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with (
        Client(url, request_s=0.5) as client,
        pytest.raises(ServerUnreachable, match="Is it running\\? `flotilla up`") as caught,
    ):
        client.topics.list()
    assert url in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"url": "ftp://x"}, {"route": "fast"}, {"ca": "/nowhere.pem"}, {"request_s": 0.0}], ids=str
)
def test_invalid_options_are_rejected_and_leave_nothing_open(options: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=next(iter(options))) as caught:
        Client(**options)  # type: ignore[arg-type]  # what is wrong is the point
    assert isinstance(caught.value, FlotillaError)
