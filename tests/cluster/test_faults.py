"""Kill pods under load: no acknowledged record is lost, duplicated or reordered."""

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

_DELAY_S_MAX = 15.0  # limit on a busy machine; the measured time is in the log
_PARTITIONS = 2
_DEADLINE_S = 120.0
_PAUSE_S = (
    0.05  # some hundred records per second: faults take minutes here, and the history is checked record by record
)


@dataclass
class Reader:
    """A consumer outside of the cluster that polls continuously, and the records that it has read."""

    release: Release
    token: str
    topic: str
    reads: list[Read] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Poll until the event is set, and then read to the end of the log."""
        try:
            with Client(self.release.url, token=self.token) as client, client.consumer(self.topic) as consumer:
                while not stop.is_set():
                    record = consumer.poll(0.5)
                    if record is not None:
                        self.reads.append(Read("reader", record.partition, record.offset, read_name(record.value)))
                for record in consumer.records(until="end"):
                    self.reads.append(Read("reader", record.partition, record.offset, read_name(record.value)))
        except Exception as error:  # noqa: BLE001 - the test reports it
            self.errors.append(error)


@contextmanager
def load(release: Release, token: str, topic: str) -> Iterator[tuple[list[Sender], Reader]]:
    """Run two producers and a consumer outside of the cluster, through the ingress."""
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


def check_under_load(release: Release, token: str, topic: str, disturb: Callable[[list[Sender]], None]) -> list[Sender]:
    """Inject a fault under load, then check the history of records. Return the senders."""
    with load(release, token, topic) as (senders, reader):
        wait_progress(senders, 50)
        run_while(senders, lambda: disturb(senders))
    release.wait_ready()
    assert reader.errors == []
    with release.brokers() as brokers:
        assert broken_promises(senders, brokers, topic, _PARTITIONS, reader.reads) == []
    assert all(send.outcome == "ok" for sender in senders for send in sender.sends), (
        "every record was acknowledged in time"
    )
    assert len(reader.reads) == sum(len(sender.sent) for sender in senders)
    return senders


@pytest.mark.parametrize("component", ["broker", "writer", "reader", "postgresql"])
def test_guarantees_hold_when_a_pod_is_killed_under_load(release: Release, token: str, component: str) -> None:
    """Guarantees 1 to 5: a pod is deleted without grace period, and replaced."""

    def disturb(senders: list[Sender]) -> None:
        for _ in range(2):
            release.destroy(release.pods(component)[0])
            wait_progress(senders, 100)
            release.wait_ready()

    check_under_load(release, token, f"killed-{component}", disturb)


@pytest.mark.parametrize("component", ["broker", "writer", "reader"])
def test_guarantees_hold_when_a_server_process_is_killed_under_load(
    release: Release, token: str, component: str
) -> None:
    """Guarantees 1 to 5: SIGKILL of the server; kubelet restarts its container in the same pod."""

    def disturb(senders: list[Sender]) -> None:
        pod = release.pods(component)[-1]
        before = release.restarts(pod)
        release.signal(pod, signal.SIGKILL)
        wait_until("the container to be restarted", lambda: release.restarts(pod) > before, 60)
        wait_progress(senders, 100)
        release.wait_ready()

    check_under_load(release, token, f"shot-{component}", disturb)


def test_liveness_probe_restarts_a_hung_broker(release: Release, token: str) -> None:
    """Guarantee 5: the liveness probe detects a stopped broker; the other brokers serve in the meantime."""

    def disturb(senders: list[Sender]) -> None:
        pod = min(release.pods("broker"))
        before = release.restarts(pod)
        release.signal(pod, signal.SIGSTOP)
        wait_until("the broker to be unready", lambda: not release.is_ready(pod), 60)
        wait_progress(senders, 100)
        wait_until("the liveness probe to restart it", lambda: release.restarts(pod) > before, 180)
        wait_progress(senders, 50)

    check_under_load(release, token, "hung", disturb)


def test_upgrade_under_load_loses_no_record_and_delays_none_for_long(release: Release, token: str) -> None:
    """Changed values replace managers, and brokers one at a time, while records are produced and consumed.

    No partition is without a leader for more than a few seconds, so no record is delayed longer than that.
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

    senders = check_under_load(release, token, "upgraded", disturb)
    longest_s = max(sender.longest_s for sender in senders)
    logger.info("longest delivery while all brokers were replaced: %.1f s", longest_s)
    assert longest_s < _DELAY_S_MAX


def test_reinstalled_release_has_the_topics_records_and_tokens_of_before(release: Release, token: str) -> None:
    """`helm uninstall` keeps volumes and secrets."""
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
