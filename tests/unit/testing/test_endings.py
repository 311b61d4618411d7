"""Faults end when they are said to, and a fake ends at once, whatever goes wrong and whoever waits."""

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


def test_a_fake_ends_at_once_though_a_producer_waits_for_its_answers() -> None:
    """A test that has seen enough is not held up for as long as a record may take."""
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
        assert delivery.result(0).offset == 0, "what went wrong is over before clients end"
    assert time.monotonic() - began < SOON_S


def test_faults_that_outlive_their_fake_end_quietly() -> None:
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
    with pytest.raises(RuntimeError, match="does not run"):
        _ = fake.url


def test_a_server_is_reached_again_when_the_last_who_keeps_it_away_ends(fake: FakeFlotilla) -> None:
    with fake.unreachable("managers"):
        with fake.unreachable():
            pass
        with pytest.raises(ServerUnreachable):
            fake.client(request_s=0.2).topics.list()
    assert fake.client().topics.list() == ()


@pytest.mark.parametrize("how", ["block", "heal", "clear"])
def test_answers_that_are_late_come_when_the_delay_is_over(how: str) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool, FakeFlotilla() as fake:
        client = fake.client(request_s=LONG_S)
        with fake.delay(LONG_S, "/v1/topics"):
            made = pool.submit(client.topics.create, "t")
            wait_until("it is done", lambda: "t" in fake._system.world.topics)
            assert not made.done()
            if how != "block":
                getattr(fake, how)()
        assert made.result(SOON_S).name == "t"
    assert time.monotonic() - began < SOON_S


def test_who_waits_for_records_is_told_when_all_is_forgotten(fake: FakeFlotilla) -> None:
    """As soon as a topic is deleted, and not when the time is over for which a consumer asks."""
    client = fake.client()
    client.topics.create("t", partitions=1)
    with client.consumer("t") as consumer:
        assert consumer.poll(0.05) is None
        fake.clear()
        began = time.monotonic()
        with pytest.raises(TopicMissing):
            consumer.poll(SOON_S)
        assert time.monotonic() - began < 2


def test_records_are_opened_while_the_fake_goes_on(fake: FakeFlotilla, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or members of groups would fall silent while a test looks at many."""
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


# -- processes that were forked ---------------------------------------------------------------------------


@pytest.fixture
def child(fake: FakeFlotilla) -> Iterator[FakeFlotilla]:
    """A fake whose sockets, and a connection to it, a child has copies of."""
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


def test_connections_are_refused_though_a_child_has_copies_of_sockets(child: FakeFlotilla) -> None:
    """Or programs that fork workers would wait where they should fail, and for ever after the fake has ended."""
    client = child._clients[0]
    with child.unreachable():
        with pytest.raises(ServerUnreachable, match="cannot be connected to"):
            client.topics.list()
        with pytest.raises(httpx.ConnectError):
            httpx.get(child.url, timeout=1)
    for _ in range(10):
        assert httpx.get(child.url, timeout=SOON_S).status_code == 200
    url = child.url
    child.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=1)


def test_a_child_that_leaves_the_blocks_leaves_the_fake_to_its_parent() -> None:
    """It ends with its own exception, as a worker that was forked in the middle of a test does."""
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
