"""A disk is lost, and in the end everything: a system of its own, since it does not get well again."""

from collections.abc import Iterator

import pytest

from cluster.harness.cluster import Cluster
from flotilla import Client
from support.cluster import wait_until
from support.release import Release
from support.small import small_release

from .test_topics import topic

_NAMESPACE = "doomed"
_SET = "broker/flotilla-broker"


@pytest.fixture(scope="module")
def doomed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A system that nobody will miss."""
    made = small_release(cluster, tmp_path_factory.mktemp(_NAMESPACE), _NAMESPACE)
    made.install()
    made.wait_ready()
    yield made
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--ignore-not-found", seconds=180)


def brokers(release: Release, phase: str = "Running") -> dict[str, str]:
    """Tell the ids of brokers in a phase, by name."""
    shown = release.get(_SET)["status"]["brokers"]
    return {one["name"]: one["id"] for one in shown if one["phase"] == phase and "id" in one}


def test_a_broker_without_its_disk_is_a_new_one_and_the_rest_serves(doomed: Release) -> None:
    """Guarantee 5: a disk is lost, reads and writes go on, and conditions say what is missing."""
    doomed.apply(topic("survives", partitions=2, deletionPolicy="Delete"))
    doomed.wait_condition("topic/survives", "Ready")
    before = brokers(doomed)
    token = doomed.token()
    with (
        doomed.forward("service/flotilla", 80) as url,
        Client(url, token=token, route="gateway") as client,
        client.producer(delivery_s=90.0) as producer,
    ):
        for number in range(100):
            producer.send("survives", f"{number}".encode(), partition=0).result(60)
        doomed.kubectl("delete", "pvc", "data-flotilla-broker-1", "--wait=false")
        doomed.destroy("flotilla-broker-1")
        producer.send("survives", b"100", partition=0).result(90)

        told = doomed.wait_condition(_SET, "FullyReplicated", "False")
        assert told["reason"] == "DiskLost"
        assert "flotilla-broker-1 came back with an empty disk" in told["message"]
        wait_until("the new broker to run", lambda: len(brokers(doomed)) == 3, 120)
        assert brokers(doomed)["flotilla-broker-1"] != before["flotilla-broker-1"]
        assert brokers(doomed, "DiskLost") == {"flotilla-broker-1": before["flotilla-broker-1"]}
        doomed.wait_condition("topic/survives", "Ready")
        doomed.wait_condition("topic/survives", "FullyReplicated", "False")
        values = [record.value for record in client.consumer("survives").records(until="end")]
    assert sorted(values, key=int) == [f"{number}".encode() for number in range(101)]

    doomed.apply(topic("new", partitions=2, deletionPolicy="Delete"))
    doomed.wait_condition("topic/new", "FullyReplicated")  # the new broker takes part


def test_an_update_waits_for_replicas_that_are_missing(doomed: Release) -> None:
    """With one of three lost, the next one away would be one too many: the condition says for what it waits."""
    doomed.patch(_SET, {"spec": {"config": {"log_level": "debug"}}})
    told = doomed.wait_condition(_SET, "Updated", "False")
    wait_until("it to be told", lambda: "survives/" in waiting(doomed), 60)
    assert told["status"] == "False"
    assert len(brokers(doomed)) == 3


def waiting(release: Release) -> str:
    """Tell what an update waits for."""
    conditions = release.get(_SET)["status"]["conditions"]
    return next(str(one["message"]) for one in conditions if one["type"] == "Updated")


def test_a_namespace_goes_with_everything_in_it(cluster: Cluster, doomed: Release) -> None:
    """Topics that wait for their records to be deleted do not hang it: nobody is left to wait for."""
    assert doomed.get("topic", "new")["metadata"]["finalizers"] == ["flotilla.dev/topic"]
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--timeout=150s", seconds=180)
    assert not cluster.kubectl("get", "namespace", _NAMESPACE, "--ignore-not-found")
