"""The Topic resource: `kubectl apply` creates a topic, `kubectl get` shows its state."""

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cluster.harness.cache import CommandFailed
from flotilla import Client
from support.access import bearer
from support.cluster import wait_until
from support.release import Release

_numbers = itertools.count()


def topic(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """Return a Topic manifest."""
    return {"apiVersion": "flotilla.dev/v1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(scope="module")
def api(release: Release, token: str) -> Iterator[httpx.Client]:
    """HTTP client of the API, through the ingress."""
    with httpx.Client(base_url=release.url, headers=bearer(token), timeout=60) as client:
        wait_until("the ingress to route to the API", lambda: client.get("/readyz").status_code == 200)
        yield client


def topic_names(api: httpx.Client) -> list[str]:
    """Return the topics of the system, with or without a resource."""
    found: list[str] = api.get("/topics").json()["topics"]
    return found


def test_applied_topic_can_be_produced_to_and_consumed(release: Release, token: str, name: str) -> None:
    release.apply(topic(name, partitions=3, retention={"time": "2d", "size": "1GiB"}, config={"compression": "zstd"}))
    release.wait_condition(f"topic/{name}", "Ready")
    release.wait_condition(f"topic/{name}", "FullyReplicated")
    with Client(release.url, token=token) as client:
        with client.producer() as producer:
            sent = [producer.send(name, f"{number}".encode(), partition=number % 3) for number in range(300)]
            assert [one.result(30).offset for one in sent] == [number // 3 for number in range(300)]
        described = client.topics.describe(name)
        assert len(described.partitions) == 3
        assert described.retention_ms == 2 * 24 * 3600 * 1000
        assert described.retention_bytes == 1 << 30

    def messages() -> int:
        return int(release.get("topic", name)["status"]["messages"])

    wait_until("the messages to be counted", lambda: messages() == 300, 60)
    shown = release.get("topic", name)["status"]
    assert {one["leader"] for one in shown["partitionStatus"]} <= set(release.pods("broker"))
    assert all(len(one["replicas"]) == 3 for one in shown["partitionStatus"])
    header, line = release.kubectl("get", "topic", name).splitlines()
    assert header.split() == ["NAME", "PARTITIONS", "REPLICATION", "RECORDS", "READY", "REASON", "AGE"]
    assert line.split()[:6] == [name, "3", "3", "300", "True", "Ready"]
    assert "Records can be produced and consumed" in release.kubectl("describe", "topic", name)


def test_topic_of_a_resource_cannot_be_deleted_over_http(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    rejected = api.delete(f"/topics/{name}")
    assert rejected.status_code == 400
    assert (
        rejected.json()["message"]
        == f"Topic '{name}' is owned by Topic flotilla/{name}; change or delete the owner instead."
    )


def test_partitions_can_be_increased_while_records_flow(release: Release, token: str, name: str) -> None:
    release.apply(topic(name, partitions=2))
    release.wait_condition(f"topic/{name}", "Ready")
    with Client(release.url, token=token) as client, client.producer() as producer:
        producer.send(name, b"before", partition=1).result(30)
        release.patch(f"topic/{name}", {"spec": {"partitions": 6}})
        release.wait_condition(f"topic/{name}", "Ready")
        assert release.get("topic", name)["status"]["partitions"] == 6
        assert producer.send(name, b"after", partition=1).result(30).offset == 1
        assert producer.send(name, b"new", partition=5).result(30).offset == 0


@pytest.mark.parametrize(
    ("before", "change", "message"),
    [
        ({"partitions": 4}, {"partitions": 3}, "partitions cannot be decreased"),
        ({"partitions": 4}, {"partitions": None}, "partitions cannot be decreased"),
        ({"replication": 3}, {"replication": 1}, "replication cannot be changed"),
        ({"topicName": "One"}, {"topicName": "Two"}, "topicName cannot be changed"),
        ({"topicName": "One"}, {"topicName": None}, "topicName cannot be changed"),
        ({}, {"topicName": "Two"}, "topicName cannot be changed"),
        ({}, {"cluster": "other"}, "cluster cannot be changed"),
    ],
)
def test_api_server_rejects_change_of_immutable_field(
    release: Release, name: str, before: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    release.apply(
        topic(name, **{key: f"{name}-{value}" if key == "topicName" else value for key, value in before.items()})
    )
    with pytest.raises(CommandFailed, match=message):
        release.patch(f"topic/{name}", {"spec": change})


@pytest.mark.parametrize(
    "spec",
    [
        {"partitions": 0},
        {"partitions": 1001},
        {"partitions": "two"},
        {"replication": 8},
        {"topicName": "-x"},
        {"topicName": "a b"},
        {"topicName": "x" * 201},
        {"retention": {"time": "soon"}},
        {"retention": {"time": "0d"}},
        {"retention": {"size": "1GB"}},
        {"config": {"compression": "gzip"}},
        {"config": {"batchBytesMax": 1}},
        {"deletionPolicy": "Keep"},
        {"cluster": ""},
    ],
)
def test_api_server_rejects_invalid_topic_spec(release: Release, name: str, spec: dict[str, Any]) -> None:
    with pytest.raises(CommandFailed, match=r"is invalid|ValidationError"):
        release.apply(topic(name, **spec))


def test_topic_name_may_differ_from_the_resource_name(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, topicName=f"{name}.Eu_West", partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    assert f"{name}.Eu_West" in topic_names(api)


def test_second_resource_of_a_topic_reports_the_conflict(release: Release, name: str) -> None:
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    release.apply(topic(f"{name}-late", topicName=name, partitions=9))
    condition = release.wait_condition(f"topic/{name}-late", "Ready", "False")
    assert condition["reason"] == "NameConflict"
    assert f"is managed by Topic {name}" in condition["message"]
    assert release.get("topic", name)["status"]["partitions"] == 1


def test_change_of_replication_is_reported_as_impossible(release: Release, name: str) -> None:
    """The API server accepts it, because the spec had no replication. The topic keeps its own."""
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    release.patch(f"topic/{name}", {"spec": {"replication": 1}})
    condition = release.wait_condition(f"topic/{name}", "Ready", "False")
    assert condition["reason"] == "CannotChangeReplication"
    assert release.get("topic", name)["status"]["replication"] == 3


def test_topic_is_not_created_with_fewer_brokers_than_replicas(release: Release, api: httpx.Client, name: str) -> None:
    """The replication of a topic cannot change later."""
    release.apply(topic(name, partitions=1, replication=5))
    condition = release.wait_condition(f"topic/{name}", "Ready", "False")
    assert condition["reason"] == "TooFewBrokers"
    text = "Replication 5 needs 5 brokers, but 3 are registered; add brokers, or remove spec.replication"
    assert condition["message"] == text
    assert name not in topic_names(api)
    release.patch(f"topic/{name}", {"spec": {"replication": None}})  # the spec can be corrected
    release.wait_condition(f"topic/{name}", "Ready")
    assert release.get("topic", name)["status"]["replication"] == 3


# -- deletion ---------------------------------------------------------------------------------------------


def test_records_outlive_a_deleted_resource_and_a_new_one_adopts_them(
    release: Release, token: str, api: httpx.Client, name: str
) -> None:
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    before = release.get("topic", name)
    assert "finalizers" not in before["metadata"], "a retained topic needs no finalizer"
    with Client(release.url, token=token) as client, client.producer() as producer:
        producer.send(name, b"kept", partition=0).result(30)
    release.kubectl("delete", "topic", name, "--timeout=30s")
    assert name in topic_names(api)

    def mirror() -> Any:  # noqa: ANN401 - what kubectl shows
        try:
            return release.get("topic", name)["metadata"].get("labels", {}).get("flotilla.dev/mirrored")
        except CommandFailed:
            return None

    wait_until("the topic to be mirrored", mirror, 60)
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    assert release.get("topic", name)["status"]["topicId"] == before["status"]["topicId"]
    with Client(release.url, token=token) as client:
        assert [record.value for record in client.consumer(name).records(until="end")] == [b"kept"]


def test_deletion_policy_delete_removes_the_records(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, partitions=1, deletionPolicy="Delete"))
    release.wait_condition(f"topic/{name}", "Ready")
    assert release.get("topic", name)["metadata"]["finalizers"] == ["flotilla.dev/topic"]
    release.kubectl("delete", "topic", name, "--timeout=60s")
    assert name not in topic_names(api)


def test_deletion_policy_can_be_changed(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, partitions=1, deletionPolicy="Delete"))
    release.wait_condition(f"topic/{name}", "Ready")
    release.patch(f"topic/{name}", {"spec": {"deletionPolicy": "Retain"}})
    wait_until("the finalizer to be removed", lambda: "finalizers" not in release.get("topic", name)["metadata"])
    release.kubectl("delete", "topic", name, "--timeout=30s")
    assert name in topic_names(api)


# -- topics created over HTTP -----------------------------------------------------------------------------


def test_topics_created_over_http_are_mirrored_until_they_are_deleted(
    release: Release, api: httpx.Client, name: str
) -> None:
    for topic_name in (name, f"{name}_X"):
        assert api.post("/topics", json={"name": topic_name, "number_of_partitions": 2}).status_code == 200

    def mirrors() -> dict[str, Any]:
        found = release.get("topics", "--selector=flotilla.dev/mirrored")["items"]
        return {one["spec"]["topicName"]: one for one in found if one["spec"]["topicName"].startswith(name)}

    wait_until("both topics to be mirrored", lambda: len(mirrors()) == 2, 60)
    assert mirrors()[name]["metadata"]["name"] == name
    assert mirrors()[name]["spec"] == {"topicName": name, "cluster": "flotilla", "deletionPolicy": "Retain"}
    release.wait_condition(f"topic/{name}", "Ready")
    for topic_name in (name, f"{name}_X"):
        assert api.delete(f"/topics/{topic_name}").status_code == 200, "no resource owns it"
    wait_until("both mirrors to be deleted", lambda: not mirrors(), 60)


def test_fifty_topics_applied_at_once_become_ready(release: Release, api: httpx.Client) -> None:
    """Prints how long it took."""
    names = [f"many-{number}" for number in range(50)]
    began = time.monotonic()
    release.apply(*(topic(one, partitions=2, deletionPolicy="Delete") for one in names))

    def ready() -> int:
        found = release.get("topics")["items"]
        conditions = [
            each["status"]
            for one in found
            if one["metadata"]["name"] in names
            for each in one.get("status", {}).get("conditions", [])
            if each["type"] == "Ready"
        ]
        return conditions.count("True")

    wait_until("all topics to be ready", lambda: ready() == len(names), 180)
    print(f"50 topics were ready after {time.monotonic() - began:.1f} s")  # noqa: T201 - a figure
    release.kubectl("delete", "topics", *names, "--timeout=120s", seconds=150)
    assert not set(names) & set(topic_names(api))


def test_kubectl_explain_describes_the_fields(release: Release) -> None:
    output = release.kubectl("explain", "topic.spec")
    for field in ("topicName", "partitions", "retention", "deletionPolicy"):
        assert field in output
    resources = release.kubectl("api-resources", "--api-group=flotilla.dev", "--output=wide")
    assert "ft" in resources
    assert json.loads(release.kubectl("get", "flotilla", "--output=json"))["items"], (
        "all resources of Flotilla, by category"
    )
