"""Brokers as a resource: changed, scaled, broken and mended, while records flow."""

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
    """Tell how brokers are, by name."""
    return {one["name"]: one["phase"] for one in release.get(_SET)["status"]["brokers"]}


@pytest.fixture(autouse=True)
def as_before(release: Release) -> Iterator[None]:
    """Begin, and end, with a system that is well."""
    release.wait_ready()
    yield
    release.wait_ready()


def test_brokers_are_a_resource_that_tells_how_they_are(release: Release) -> None:
    header, line = release.kubectl("get", "brokers").splitlines()
    assert header.split() == ["NAME", "DESIRED", "RUNNING", "UPDATED", "PARTITIONS", "READY", "REASON", "AGE"]
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
        ({"storage": {"size": "20Gi"}}, "size of volumes cannot be changed"),
        ({"storage": {"storageClass": "other"}}, "class of volumes cannot be changed"),
        ({"cluster": "other"}, "cluster cannot be changed"),
        ({"config": {"data": "/elsewhere"}}, "the operator's to set"),
        ({"config": {"Segment-Bytes": "1"}}, "settings are written as in segment_bytes"),
        ({"update": "Sometimes"}, "update"),
        ({"template": {"extraEnv": [{"name": "FLOTILLA_RACK", "value": "x"}]}}, "settings are given in config"),
        ({"template": {"spread": {"hosts": "Never"}}}, "hosts"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_api_server(
    release: Release, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommandFailed, match=message):
        release.patch(_SET, {"spec": change})


def test_what_others_change_is_put_right(release: Release) -> None:
    """Drift is repaired; fields that are nobody's stay."""
    release.patch("service/flotilla-broker", {"spec": {"publishNotReadyAddresses": False}})
    release.patch("statefulset/flotilla-broker", {"spec": {"updateStrategy": {"type": "RollingUpdate"}}})
    release.patch("poddisruptionbudget/flotilla-broker", {"spec": {"maxUnavailable": 2}})
    release.patch("configmap/flotilla-broker", {"metadata": {"annotations": {"mine": "stays"}}})
    wait_until(
        "the Service to be as it was",
        lambda: release.get("service/flotilla-broker")["spec"].get("publishNotReadyAddresses") is True,
        30,
    )
    wait_until(
        "the StatefulSet to be as it was",
        lambda: release.get("statefulset/flotilla-broker")["spec"]["updateStrategy"]["type"] == "OnDelete",
        30,
    )
    wait_until(
        "the budget to be as it was",
        lambda: release.get("poddisruptionbudget/flotilla-broker")["spec"]["maxUnavailable"] == 1,
        30,
    )
    release.kubectl("delete", "service", "flotilla-broker")
    wait_until("the Service to be there again", lambda: has(release, "service/flotilla-broker"), 30)
    assert release.get("configmap/flotilla-broker")["metadata"]["annotations"]["mine"] == "stays"


def has(release: Release, resource: str) -> bool:
    """Tell whether something is there."""
    return bool(release.kubectl("get", resource, "--ignore-not-found"))


def test_what_is_somebody_elses_is_left_alone(release: Release) -> None:
    """A resource that would need a name that is taken says so, and takes nothing."""
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "second"}, "spec": {"ports": [{"port": 80}]}}
    second = {"apiVersion": "flotilla.dev/v1", "kind": "Broker", "metadata": {"name": "second"}, "spec": {}}
    release.apply(taken, second)
    try:
        told = release.wait_condition("broker/second", "Accepted", "False")
        assert "there is a Service second that is not ours" in told["message"]
        assert not has(release, "statefulset/second")
    finally:
        release.kubectl("delete", "broker", "second")
    assert release.get("service/second")["spec"]["ports"][0]["port"] == 80
    release.kubectl("delete", "service", "second")


def test_with_a_second_budget_brokers_stay_and_that_is_told(release: Release) -> None:
    """Kubernetes does not ask two of them, and evicts nothing."""
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
        told = release.wait_condition(_SET, "Accepted", "False")
        assert "more than one PodDisruptionBudget" in told["message"]
        assert {pod: release.uid(pod) for pod in release.pods("broker")} == before
    finally:
        release.patch(_SET, {"spec": {"config": {"log_level": level}}})
        release.kubectl("delete", "poddisruptionbudget", "another")
    release.wait_condition(_SET, "Updated")


def test_nothing_is_written_into_what_users_say(release: Release) -> None:
    """Who keeps resources in Git finds no difference."""
    found = json.loads(release.kubectl("get", _SET, "--output=json", "--show-managed-fields"))
    (ours,) = [one for one in found["metadata"]["managedFields"] if one["manager"] == "flotilla-operator"]
    assert ours["subresource"] == "status"
    assert set(ours["fieldsV1"]) == {"f:status"}
    assert "finalizers" not in found["metadata"]


def test_more_brokers_take_new_partitions_and_fewer_wait_until_they_hold_nothing(release: Release) -> None:
    release.kubectl("scale", _SET, "--replicas=4")
    release.wait_condition(_SET, "Ready")
    assert phases(release)["flotilla-broker-3"] == "Running"
    release.apply(topic("scaled", partitions=8, deletionPolicy="Delete"))
    release.wait_condition("topic/scaled", "Ready")
    held = {name for one in release.get("topic", "scaled")["status"]["partitionStatus"] for name in one["replicas"]}
    assert "flotilla-broker-3" in held

    release.kubectl("scale", _SET, "--replicas=3")
    told = release.wait_condition(_SET, "Scaled", "False")
    assert told["reason"] == "ReplicasRemain"
    assert "flotilla-broker-3 holds" in told["message"]
    assert "scaled/" in told["message"]
    release.kubectl("delete", "topic", "scaled", "--timeout=60s")
    release.wait_condition(_SET, "Scaled")
    wait_until("the pod to go", lambda: "flotilla-broker-3" not in release.pods("broker"), 90)
    assert has(release, "pvc/data-flotilla-broker-3"), "its volume stays"

    release.kubectl("scale", _SET, "--replicas=4")
    release.wait_condition(_SET, "Ready")  # the broker of before is back, with its volume, and takes part again
    release.kubectl("scale", _SET, "--replicas=3")
    release.wait_condition(_SET, "Scaled")
    wait_until("the pod to go", lambda: "flotilla-broker-3" not in release.pods("broker"), 90)


def test_an_image_that_does_not_exist_costs_one_broker_and_is_mended(release: Release, token: str) -> None:
    release.apply(topic("mended", partitions=2))
    release.wait_condition("topic/mended", "Ready")
    image = release.get(_SET)["spec"]["image"]
    release.patch(_SET, {"spec": {"image": "flotilla:does-not-exist", "imagePullPolicy": "Never"}})
    told = release.wait_condition(_SET, "Running", "False")
    wait_until("it to be told why", lambda: "Failed" in phases(release).values(), 90)
    told = release.wait_condition(_SET, "Updated", "False")
    assert told["reason"] == "Waiting"
    assert list(phases(release).values()).count("Running") == 2, "no other one goes"
    with Client(release.url, token=token) as client, client.producer(delivery_s=60.0) as producer:
        assert producer.send("mended", b"goes on", partition=0).result(60).offset >= 0
    release.patch(_SET, {"spec": {"image": image, "imagePullPolicy": "IfNotPresent"}})
    release.wait_condition(_SET, "Updated")
    release.wait_condition(_SET, "Ready")


def test_racks_are_labels_of_nodes(release: Release) -> None:
    """What a broker fails together with is known to managers, which spread replicas over it."""
    if not release.cluster.is_ours:
        pytest.skip("nodes of a cluster that is not ours are left as they are")
    label = "topology.kubernetes.io/zone"
    (node,) = [one["metadata"]["name"] for one in release.cluster.get("nodes")["items"]]
    release.cluster.kubectl("label", "node", node, f"{label}=here")
    try:
        wait_until(
            "brokers to be in that rack",
            lambda: {one.get("rack") for one in release.get(_SET)["status"]["brokers"]} == {"here"},
            120,
        )
    finally:
        release.cluster.kubectl("label", "node", node, f"{label}-")
