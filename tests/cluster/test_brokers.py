"""The Broker resource: reconfigure, scale, break and repair brokers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.harness.cache import CommandFailed
from flotilla import Client
from support.cluster import wait_until
from support.release import Release

from .test_topics import topic

_SET = "broker/flotilla-broker"


def phases(release: Release) -> dict[str, str]:
    """Return the phase of each broker by name."""
    return {one["name"]: one["phase"] for one in release.get(_SET)["status"]["brokers"]}


@pytest.fixture(autouse=True)
def healthy_system(release: Release) -> Iterator[None]:
    """Wait until the system is ready, before and after each test."""
    release.wait_ready()
    yield
    release.wait_ready()


def test_broker_resource_shows_the_state_of_each_broker(release: Release) -> None:
    header, line = release.kubectl("get", "brokers").splitlines()
    assert header.split() == ["NAME", "DESIRED", "READY-PODS", "UPDATED", "REPLICAS", "READY", "REASON", "AGE"]
    assert line.split()[:4] == ["flotilla-broker", "3", "3", "3"]
    assert line.split()[5:7] == ["True", "Ready"]
    shown = release.get(_SET)["status"]["brokers"]
    assert [one["name"] for one in shown] == [f"flotilla-broker-{at}" for at in range(3)]
    assert {one["phase"] for one in shown} == {"Running"}
    assert len({one["id"] for one in shown}) == 3
    assert all(one["diskBytes"] > 0 and one["node"] for one in shown)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replicas": 101}, "replicas"),
        ({"storage": {"size": "20Gi"}}, "storage.size cannot be changed"),
        ({"storage": {"storageClass": "other"}}, "storage.storageClass cannot be changed"),
        ({"cluster": "other"}, "cluster cannot be changed"),
        ({"config": {"data": "/elsewhere"}}, "set by the operator"),
        ({"config": {"Segment-Bytes": "1"}}, r"names of settings must match \^\[a-z\]"),
        ({"update": "Sometimes"}, "update"),
        ({"template": {"extraEnv": [{"name": "FLOTILLA_RACK", "value": "x"}]}}, "use config"),
        ({"template": {"spread": {"hosts": "Never"}}}, "hosts"),
    ],
)
def test_api_server_rejects_invalid_broker_spec(release: Release, change: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandFailed, match=message):
        release.patch(_SET, {"spec": change})


def test_operator_reverts_drift_of_its_objects(release: Release) -> None:
    """Fields that the operator does not manage are kept."""
    release.patch("service/flotilla-broker", {"spec": {"publishNotReadyAddresses": False}})
    release.patch("statefulset/flotilla-broker", {"spec": {"updateStrategy": {"type": "RollingUpdate"}}})
    release.patch("poddisruptionbudget/flotilla-broker", {"spec": {"maxUnavailable": 2}})
    release.patch("configmap/flotilla-broker", {"metadata": {"annotations": {"mine": "kept"}}})
    wait_until(
        "the Service to be reverted",
        lambda: release.get("service/flotilla-broker")["spec"].get("publishNotReadyAddresses") is True,
        30,
    )
    wait_until(
        "the StatefulSet to be reverted",
        lambda: release.get("statefulset/flotilla-broker")["spec"]["updateStrategy"]["type"] == "OnDelete",
        30,
    )
    wait_until(
        "the budget to be reverted",
        lambda: release.get("poddisruptionbudget/flotilla-broker")["spec"]["maxUnavailable"] == 1,
        30,
    )
    release.kubectl("delete", "service", "flotilla-broker")
    wait_until("the Service to be recreated", lambda: exists(release, "service/flotilla-broker"), 30)
    assert release.get("configmap/flotilla-broker")["metadata"]["annotations"]["mine"] == "kept"


def exists(release: Release, resource: str) -> bool:
    """Return whether a resource exists."""
    return bool(release.kubectl("get", resource, "--ignore-not-found"))


def test_operator_does_not_adopt_foreign_objects(release: Release) -> None:
    """A Broker whose Service name is taken is not accepted, and none of its objects is created."""
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "second"}, "spec": {"ports": [{"port": 80}]}}
    second = {"apiVersion": "flotilla.dev/v1", "kind": "Broker", "metadata": {"name": "second"}, "spec": {}}
    release.apply(taken, second)
    try:
        condition = release.wait_condition("broker/second", "Accepted", "False")
        assert "Service second exists and does not belong to Flotilla" in condition["message"]
        assert not exists(release, "statefulset/second")
    finally:
        release.kubectl("delete", "broker", "second")
    assert release.get("service/second")["spec"]["ports"][0]["port"] == 80
    release.kubectl("delete", "service", "second")


def test_second_disruption_budget_blocks_the_update_and_is_reported(release: Release) -> None:
    """Kubernetes rejects evictions of a pod that two disruption budgets select."""
    before = {pod: release.uid(pod) for pod in release.pods("broker")}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "another"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/component": "broker"}}},
    }
    level = release.get(_SET)["spec"].get("config", {}).get("log_level")
    release.apply(budget)
    try:
        release.patch(_SET, {"spec": {"config": {"log_level": "warning"}}})
        condition = release.wait_condition(_SET, "Accepted", "False")
        assert "more than one PodDisruptionBudget" in condition["message"]
        assert {pod: release.uid(pod) for pod in release.pods("broker")} == before
    finally:
        release.patch(_SET, {"spec": {"config": {"log_level": level}}})
        release.kubectl("delete", "poddisruptionbudget", "another")
    release.wait_condition(_SET, "Updated")


def test_operator_writes_only_the_status_of_a_broker_resource(release: Release) -> None:
    """Otherwise GitOps tools would report differences."""
    found = json.loads(release.kubectl("get", _SET, "--output=json", "--show-managed-fields"))
    (ours,) = [one for one in found["metadata"]["managedFields"] if one["manager"] == "flotilla-operator"]
    assert ours["subresource"] == "status"
    assert set(ours["fieldsV1"]) == {"f:status"}
    assert "finalizers" not in found["metadata"]


def test_scale_up_places_new_partitions_and_scale_down_waits_for_empty_brokers(release: Release) -> None:
    release.kubectl("scale", _SET, "--replicas=4")
    release.wait_condition(_SET, "Ready")
    assert phases(release)["flotilla-broker-3"] == "Running"
    release.apply(topic("scaled", partitions=8, deletionPolicy="Delete"))
    release.wait_condition("topic/scaled", "Ready")
    held = {name for one in release.get("topic", "scaled")["status"]["partitionStatus"] for name in one["replicas"]}
    assert "flotilla-broker-3" in held

    release.kubectl("scale", _SET, "--replicas=3")
    condition = release.wait_condition(_SET, "Scaled", "False")
    assert condition["reason"] == "ReplicasRemain"
    assert "The scale-down waits for flotilla-broker-3, which still holds " in condition["message"]
    assert "scaled/" in condition["message"]
    release.kubectl("delete", "topic", "scaled", "--timeout=60s")
    release.wait_condition(_SET, "Scaled")
    wait_until("the pod to be deleted", lambda: "flotilla-broker-3" not in release.pods("broker"), 90)
    assert exists(release, "pvc/data-flotilla-broker-3"), "its volume is kept"

    release.kubectl("scale", _SET, "--replicas=4")
    release.wait_condition(_SET, "Ready")  # the broker is back with its old volume, and serves again
    release.kubectl("scale", _SET, "--replicas=3")
    release.wait_condition(_SET, "Scaled")
    wait_until("the pod to be deleted", lambda: "flotilla-broker-3" not in release.pods("broker"), 90)


def test_missing_image_stops_only_one_broker_and_can_be_corrected(release: Release, token: str) -> None:
    release.apply(topic("mended", partitions=2))
    release.wait_condition("topic/mended", "Ready")
    image = release.get(_SET)["spec"]["image"]
    release.patch(_SET, {"spec": {"image": "flotilla:does-not-exist", "imagePullPolicy": "Never"}})
    condition = release.wait_condition(_SET, "Running", "False")
    wait_until("the failure to be reported", lambda: "Failed" in phases(release).values(), 90)
    condition = release.wait_condition(_SET, "Updated", "False")
    assert condition["reason"] == "Waiting"
    assert list(phases(release).values()).count("Running") == 2, "the other brokers are not replaced"
    with Client(release.url, token=token) as client, client.producer(delivery_s=60.0) as producer:
        assert producer.send("mended", b"goes on", partition=0).result(60).offset >= 0
    release.patch(_SET, {"spec": {"image": image, "imagePullPolicy": "IfNotPresent"}})
    release.wait_condition(_SET, "Updated")
    release.wait_condition(_SET, "Ready")


def test_rack_comes_from_the_node_label(release: Release) -> None:
    """Managers learn the failure domain of each broker, and spread replicas over racks."""
    if not release.cluster.is_ours:
        pytest.skip("the tests do not label nodes of a cluster that they did not start")
    label = "topology.kubernetes.io/zone"
    (node,) = [one["metadata"]["name"] for one in release.cluster.get("nodes")["items"]]
    release.cluster.kubectl("label", "node", node, f"{label}=here")
    try:
        wait_until(
            "brokers to report the rack",
            lambda: {one.get("rack") for one in release.get(_SET)["status"]["brokers"]} == {"here"},
            120,
        )
    finally:
        release.cluster.kubectl("label", "node", node, f"{label}-")
