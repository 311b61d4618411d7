"""Faults end in time, and a fake closes at once, with any fault and any waiting client."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from flotilla import records
from flotilla.client.errors import ServerUnreachable, TopicMissing
from flotilla.records import Record
from flotilla.testing import FakeFlotilla, partition
from flotilla.testing.fake import Servers
from support.cluster import wait_until

SOON_S = 10.0
LONG_S = 60.0
SERVERS: tuple[Servers, ...] = ("managers", "all")


@pytest.fixture
def fake() -> Iterator[FakeFlotilla]:
    with FakeFlotilla() as fake:
        yield fake


def test_close_does_not_wait_for_a_producer_without_responses() -> None:
    """A test does not wait for the delivery timeout of its producers."""
    began = time.monotonic()
    for servers in SERVERS:
        fake = FakeFlotilla()
        fake.start()
        client = fake.client()
        client.topics.create("t", partitions=1)
        producer = client.producer(delivery_s=LONG_S)
        fake.lose_answers(times=None)
        with fake.unreachable(servers):
            delivery = producer.send("t", b"one")
            fake.close()
        assert delivery.result(0).offset == 0, "faults end before clients are closed"
    assert time.monotonic() - began < SOON_S


def test_faults_end_without_error_after_the_fake_is_closed() -> None:
    fake = FakeFlotilla()
    for _ in range(2):
        fake.start()
        with fake.unreachable(), fake.delay(1):
            fake.close()
    fake.start()
    with fake.unreachable(), ExitStack() as later:
        fake.close()
        later.enter_context(fake)
        later.enter_context(fake.unreachable())
    with pytest.raises(RuntimeError, match="this fake is not running"):
        _ = fake.url


def test_server_is_reachable_when_the_last_unreachable_block_ends(fake: FakeFlotilla) -> None:
    with fake.unreachable("managers"):
        with fake.unreachable():
            pass
        with pytest.raises(ServerUnreachable):
            fake.client(request_s=0.2).topics.list()
    assert fake.client().topics.list() == ()


@pytest.mark.parametrize("how", ["block", "heal", "clear"])
def test_delayed_response_is_sent_when_the_delay_ends(how: str) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool, FakeFlotilla() as fake:
        client = fake.client(request_s=LONG_S)
        with fake.delay(LONG_S, "/v1/topics"):
            made = pool.submit(client.topics.create, "t")
            wait_until("the topic to exist", lambda: "t" in fake._system.state.topics)
            assert not made.done()
            if how != "block":
                getattr(fake, how)()
        assert made.result(SOON_S).name == "t"
    assert time.monotonic() - began < SOON_S


def test_clear_wakes_waiting_consumers(fake: FakeFlotilla) -> None:
    """When a topic is deleted, not when the timeout of the poll has passed."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    with client.consumer("t") as consumer:
        assert consumer.poll(0.05) is None
        fake.clear()
        began = time.monotonic()
        with pytest.raises(TopicMissing):
            consumer.poll(10 * SOON_S)
        assert time.monotonic() - began < SOON_S


def test_records_are_decoded_outside_the_event_loop(fake: FakeFlotilla, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise sessions of group members would expire while a test reads many records."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    with client.producer() as producer:
        producer.send("t", b"one")
    threads = set()

    def decode(batch: bytes) -> list[Record]:
        threads.add(threading.current_thread())
        return list(records.decode(batch))

    monkeypatch.setattr(partition, "_open", decode)
    assert len(fake.records("t")) == 1
    assert threads == {threading.current_thread()}


# -- forked processes -------------------------------------------------------------------------------------


@pytest.fixture
def child(fake: FakeFlotilla) -> Iterator[FakeFlotilla]:
    """A fake whose sockets are copied to a child process, with an open connection."""
    fake.client(request_s=0.3).topics.list()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield fake
    finally:
        os.close(writing)
        os.waitpid(pid, 0)


def test_connections_are_refused_while_a_forked_child_has_the_sockets(child: FakeFlotilla) -> None:
    """Otherwise programs that fork workers would hang where they should fail."""
    client = child._clients[0]
    with child.unreachable():
        with pytest.raises(ServerUnreachable, match="cannot connect to"):
            client.topics.list()
        with pytest.raises(httpx.ConnectError):
            httpx.get(child.url, timeout=1)
    for _ in range(10):
        assert httpx.get(child.url, timeout=SOON_S).status_code == 200
    url = child.url
    child.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=1)


def test_forked_child_does_not_close_the_fake_of_its_parent() -> None:
    """It exits with its own exception, like a worker that was forked during a test."""
    pid, code = -1, 1
    try:
        with FakeFlotilla() as fake, fake.delay(0), fake.unreachable():
            pid = os.fork()
            if pid == 0:
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    except SystemExit as error:
        code = int(error.code or 0)
    finally:
        if pid == 0:
            os._exit(code)
