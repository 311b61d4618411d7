"""Loss of a disk, and of the namespace: on an installation of their own, which does not recover."""

from collections.abc import Iterator

import pytest

from cluster.harness.cluster import Cluster
from flotilla import Client
from support.cluster import wait_until
from support.release import Release
from support.small import small_release

from .test_topics import topic

_NAMESPACE = "expendable"
_SET = "broker/flotilla-broker"


@pytest.fixture(scope="module")
def expendable(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """An installation that these tests may destroy."""
    made = small_release(cluster, tmp_path_factory.mktemp(_NAMESPACE), _NAMESPACE)
    made.install()
    made.wait_ready()
    yield made
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--ignore-not-found", seconds=180)


def broker_ids(release: Release, phase: str = "Running") -> dict[str, str]:
    """Return the ids of the brokers in a phase by broker name."""
    shown = release.get(_SET)["status"]["brokers"]
    return {one["name"]: one["id"] for one in shown if one["phase"] == phase and "id" in one}


def test_broker_that_lost_its_disk_gets_a_new_id_and_the_others_serve(expendable: Release) -> None:
    """Guarantee 5: a disk is lost, produce and consume continue, and conditions report the loss."""
    expendable.apply(topic("survives", partitions=2, deletionPolicy="Delete"))
    expendable.wait_condition("topic/survives", "Ready")
    before = broker_ids(expendable)
    token = expendable.token()
    with (
        expendable.forward("service/flotilla", 80) as url,
        Client(url, token=token, route="gateway") as client,
        client.producer(delivery_s=90.0) as producer,
    ):
        for number in range(100):
            producer.send("survives", f"{number}".encode(), partition=0).result(60)
        expendable.kubectl("delete", "pvc", "data-flotilla-broker-1", "--wait=false")
        expendable.destroy("flotilla-broker-1")
        producer.send("survives", b"100", partition=0).result(90)

        condition = expendable.wait_condition(_SET, "FullyReplicated", "False")
        assert condition["reason"] == "DiskLost"
        assert "The disk of flotilla-broker-1 was lost" in condition["message"]
        wait_until("the new broker to run", lambda: len(broker_ids(expendable)) == 3, 120)
        assert broker_ids(expendable)["flotilla-broker-1"] != before["flotilla-broker-1"]
        assert broker_ids(expendable, "DiskLost") == {"flotilla-broker-1": before["flotilla-broker-1"]}
        expendable.wait_condition("topic/survives", "Ready")
        expendable.wait_condition("topic/survives", "FullyReplicated", "False")
        values = [record.value for record in client.consumer("survives").records(until="end")]
    assert sorted(values, key=int) == [f"{number}".encode() for number in range(101)]

    expendable.apply(topic("new", partitions=2, deletionPolicy="Delete"))
    expendable.wait_condition("topic/new", "FullyReplicated")  # the new broker holds replicas


def test_update_waits_for_under_replicated_partitions(expendable: Release) -> None:
    """With one of three replicas lost, a restart would make partitions unavailable. The condition names them."""
    expendable.patch(_SET, {"spec": {"config": {"log_level": "debug"}}})
    condition = expendable.wait_condition(_SET, "Updated", "False")
    wait_until("the message to name the partitions", lambda: "survives/" in updated_message(expendable), 60)
    assert condition["status"] == "False"
    assert len(broker_ids(expendable)) == 3


def updated_message(release: Release) -> str:
    """Return the message of the condition Updated."""
    conditions = release.get(_SET)["status"]["conditions"]
    return next(str(one["message"]) for one in conditions if one["type"] == "Updated")


def test_namespace_with_topics_can_be_deleted(cluster: Cluster, expendable: Release) -> None:
    """Finalizers of topics do not block the deletion: no process is left that could delete their records."""
    assert expendable.get("topic", "new")["metadata"]["finalizers"] == ["flotilla.dev/topic"]
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--timeout=150s", seconds=180)
    assert not cluster.kubectl("get", "namespace", _NAMESPACE, "--ignore-not-found")
