"""Pods die while people work: nothing that was acknowledged is lost, doubled or reordered."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from flotilla import Client
from support.clientload import Sender, broken_promises, open_producer, run_while, wait_progress
from support.cluster import wait_until
from support.history import Read
from support.load import read_name
from support.release import Release

logger = logging.getLogger(__name__)

_FEW_S = 15.0  # on a machine that does much besides; the log has what it was
_PARTITIONS = 2
_DEADLINE_S = 120.0
_PAUSE_S = 0.05  # some hundred records a second: faults take minutes here, and the history is checked record by record


@dataclass
class Reader:
    """A consumer, from outside, that reads all the time; and what it read."""

    release: Release
    token: str
    topic: str
    reads: list[Read] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Read until told to stop, and then to the end."""
        try:
            with Client(self.release.url, token=self.token) as client, client.consumer(self.topic) as consumer:
                while not stop.is_set():
                    record = consumer.poll(0.5)
                    if record is not None:
                        self.reads.append(Read("reader", record.partition, record.offset, read_name(record.value)))
                for record in consumer.records(until="end"):
                    self.reads.append(Read("reader", record.partition, record.offset, read_name(record.value)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test is told
            self.trouble.append(error)


@contextmanager
def load(release: Release, token: str, topic: str) -> Iterator[tuple[list[Sender], Reader]]:
    """Two producers and a consumer, from outside, through the ingress."""
    with Client(release.url, token=token) as client:
        client.topics.create(topic, partitions=_PARTITIONS, replication=3)
    stop, reader = threading.Event(), Reader(release, token, topic)
    reading = threading.Thread(target=reader.run, args=(stop,))
    with (
        open_producer(release.url, token=token, delivery_s=_DEADLINE_S) as one,
        open_producer(release.url, token=token, delivery_s=_DEADLINE_S) as two,
    ):
        senders = [
            Sender(f"p{at}", producer, topic, _PARTITIONS, pause_s=_PAUSE_S) for at, producer in enumerate((one, two))
        ]
        reading.start()
        try:
            yield senders, reader
        finally:
            stop.set()
            reading.join()


def check(release: Release, token: str, topic: str, disturb: Callable[[list[Sender]], None]) -> list[Sender]:
    """Disturb a system at work; then have the history judged. Return those who sent records."""
    with load(release, token, topic) as (senders, reader):
        wait_progress(senders, 50)
        run_while(senders, lambda: disturb(senders))
    release.wait_ready()
    assert reader.trouble == []
    with release.brokers() as brokers:
        assert broken_promises(senders, brokers, topic, _PARTITIONS, reader.reads) == []
    assert all(send.outcome == "ok" for sender in senders for send in sender.sends), "all of it was in time"
    assert len(reader.reads) == sum(len(sender.sent) for sender in senders)
    return senders


@pytest.mark.parametrize("component", ["broker", "writer", "reader", "postgresql"])
def test_a_pod_is_killed_at_once_under_load(release: Release, token: str, component: str) -> None:
    """Guarantees 1 to 5: a pod is gone without a warning, and comes back."""

    def disturb(senders: list[Sender]) -> None:
        for _ in range(2):
            release.destroy(release.pods(component)[0])
            wait_progress(senders, 100)
            release.wait_ready()

    check(release, token, f"killed-{component}", disturb)


@pytest.mark.parametrize("component", ["broker", "writer", "reader"])
def test_a_server_is_killed_inside_its_pod_under_load(release: Release, token: str, component: str) -> None:
    """Guarantees 1 to 5: kill -9 of the server; its container is started again in the same pod."""

    def disturb(senders: list[Sender]) -> None:
        pod = release.pods(component)[-1]
        before = release.restarts(pod)
        release.signal(pod, signal.SIGKILL)
        wait_until("the container to be started again", lambda: release.restarts(pod) > before, 60)
        wait_progress(senders, 100)
        release.wait_ready()

    check(release, token, f"shot-{component}", disturb)


def test_a_hung_broker_is_started_again(release: Release, token: str) -> None:
    """Guarantee 5: a broker that is stopped is found by its liveness probe; the others go on meanwhile."""

    def disturb(senders: list[Sender]) -> None:
        pod = min(release.pods("broker"))
        before = release.restarts(pod)
        release.signal(pod, signal.SIGSTOP)
        wait_until("it to be unready", lambda: not release.is_ready(pod), 60)
        wait_progress(senders, 100)
        wait_until("the liveness probe to find it", lambda: release.restarts(pod) > before, 180)
        wait_progress(senders, 50)

    check(release, token, "hung", disturb)


def test_an_upgrade_under_load_costs_nothing(release: Release, token: str) -> None:
    """Changed values replace brokers one at a time, and managers, while records go in and out.

    No partition is without a leader for longer than a few seconds: no record waits longer than that.
    """

    def disturb(senders: list[Sender]) -> None:
        servers = "--selector=app.kubernetes.io/component in (broker,postgresql,reader,writer)"
        before = {pod["metadata"]["uid"] for pod in release.get("pods", servers)["items"]}
        flags = ["--set=brokers.config.log_level=debug", "--set=managers.config.log_level=debug"]
        release.upgrade(*flags, "--set=readers.replicas=3")
        release.wait_condition("broker/flotilla-broker", "Updated")
        release.wait_ready()
        after = {
            pod["metadata"]["uid"]: pod["metadata"]["name"]
            for pod in release.get("pods", servers)["items"]
            if "deletionTimestamp" not in pod["metadata"]
        }
        stayed = {name for uid, name in after.items() if uid in before}
        assert stayed == {"flotilla-postgresql-0"}
        wait_progress(senders, 50)

    senders = check(release, token, "upgraded", disturb)
    longest_s = max(sender.longest_s for sender in senders)
    logger.info("the longest that a record took while all brokers were replaced: %.1f s", longest_s)
    assert longest_s < _FEW_S


def test_what_was_uninstalled_is_found_again(release: Release, token: str) -> None:
    """Uninstalling keeps volumes and secrets: whoever installs again finds topics, records and tokens."""
    with Client(release.url, token=token) as client, client.producer() as producer:
        client.topics.create("kept", partitions=1)
        delivered = [producer.send("kept", f"{number}".encode(), partition=0) for number in range(100)]
        assert [one.result(30).offset for one in delivered] == list(range(100))
    secret = release.secret()
    release.uninstall()
    release.install()
    assert release.secret() == secret
    release.wait_reachable()
    with Client(release.url, token=token) as client:
        assert "kept" in [topic.name for topic in client.topics.list()]
        values = [record.value for record in client.consumer("kept").records(until="end")]
    assert values == [f"{number}".encode() for number in range(100)]
