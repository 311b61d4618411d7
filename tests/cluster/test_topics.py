"""Topics as resources: `kubectl apply` makes them, `kubectl get` tells how they are."""

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
    """Write a Topic."""
    return {"apiVersion": "flotilla.dev/v1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(scope="module")
def api(release: Release, token: str) -> Iterator[httpx.Client]:
    """The API, from outside, through the ingress."""
    with httpx.Client(base_url=release.url, headers=bearer(token), timeout=60) as client:
        wait_until("the ingress to know the way", lambda: client.get("/readyz").status_code == 200)
        yield client


def topics_of(api: httpx.Client) -> list[str]:
    """Name the topics that there are, whatever resources say."""
    found: list[str] = api.get("/topics").json()["topics"]
    return found


def test_a_topic_that_is_applied_can_be_used(release: Release, token: str, name: str) -> None:
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
    assert header.split() == ["NAME", "PARTITIONS", "REPLICATION", "MESSAGES", "READY", "REASON", "AGE"]
    assert line.split()[:6] == [name, "3", "3", "300", "True", "Ready"]
    assert "records can be written and read" in release.kubectl("describe", "topic", name)


def test_a_topic_that_a_resource_owns_is_not_deleted_over_http(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    refused = api.delete(f"/topics/{name}")
    assert refused.status_code == 400
    assert (
        refused.json()["message"] == f"Topic '{name}' belongs to Topic flotilla/{name}; change or delete that instead."
    )


def test_partitions_grow_while_records_flow(release: Release, token: str, name: str) -> None:
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
        ({"partitions": 4}, {"partitions": 3}, "there can only be more partitions"),
        ({"partitions": 4}, {"partitions": None}, "there can only be more partitions"),
        ({"replication": 3}, {"replication": 1}, "replication cannot be changed"),
        ({"topicName": "One"}, {"topicName": "Two"}, "topicName cannot be changed"),
        ({"topicName": "One"}, {"topicName": None}, "topicName cannot be changed"),
        ({}, {"topicName": "Two"}, "topicName cannot be changed"),
        ({}, {"cluster": "other"}, "cluster cannot be changed"),
    ],
)
def test_what_cannot_be_changed_is_refused_by_the_api_server(
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
def test_what_makes_no_sense_is_refused_by_the_api_server(release: Release, name: str, spec: dict[str, Any]) -> None:
    with pytest.raises(CommandFailed, match=r"is invalid|ValidationError"):
        release.apply(topic(name, **spec))


def test_a_name_that_is_none_for_a_resource(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, topicName=f"{name}.Eu_West", partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    assert f"{name}.Eu_West" in topics_of(api)


def test_the_second_resource_for_a_topic_says_who_was_first(release: Release, name: str) -> None:
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    release.apply(topic(f"{name}-late", topicName=name, partitions=9))
    told = release.wait_condition(f"topic/{name}-late", "Ready", "False")
    assert told["reason"] == "NameTaken"
    assert f"Topic {name} is older" in told["message"]
    assert release.get("topic", name)["status"]["partitions"] == 1


def test_what_cannot_be_is_told(release: Release, name: str) -> None:
    """Replication was not said, so that the API server lets it be said; a topic that is there keeps its own."""
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    release.patch(f"topic/{name}", {"spec": {"replication": 1}})
    told = release.wait_condition(f"topic/{name}", "Ready", "False")
    assert told["reason"] == "ReplicationFixed"
    assert release.get("topic", name)["status"]["replication"] == 3


def test_a_topic_waits_for_brokers_that_are_not_there(release: Release, api: httpx.Client, name: str) -> None:
    """On how many brokers a partition is stays as it was made: so it is not made on fewer."""
    release.apply(topic(name, partitions=1, replication=5))
    told = release.wait_condition(f"topic/{name}", "Ready", "False")
    assert told["reason"] == "TooFewBrokers"
    assert told["message"] == "each partition is to be on 5 brokers; 3 brokers registered so far"
    assert name not in topics_of(api)
    release.patch(f"topic/{name}", {"spec": {"replication": None}})  # it can be taken back
    release.wait_condition(f"topic/{name}", "Ready")
    assert release.get("topic", name)["status"]["replication"] == 3


# -- deletion ---------------------------------------------------------------------------------------------


def test_records_stay_when_a_resource_is_deleted_and_come_back_with_it(
    release: Release, token: str, api: httpx.Client, name: str
) -> None:
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    before = release.get("topic", name)
    assert "finalizers" not in before["metadata"], "nothing has to be waited for"
    with Client(release.url, token=token) as client, client.producer() as producer:
        producer.send(name, b"kept", partition=0).result(30)
    release.kubectl("delete", "topic", name, "--timeout=30s")
    assert name in topics_of(api)

    def mirror() -> Any:  # noqa: ANN401 - what kubectl shows
        try:
            return release.get("topic", name)["metadata"].get("labels", {}).get("flotilla.dev/mirrored")
        except CommandFailed:
            return None

    wait_until("it to show up as one that nobody owns", mirror, 60)
    release.apply(topic(name, partitions=1))
    release.wait_condition(f"topic/{name}", "Ready")
    assert release.get("topic", name)["status"]["topicId"] == before["status"]["topicId"]
    with Client(release.url, token=token) as client:
        assert [record.value for record in client.consumer(name).records(until="end")] == [b"kept"]


def test_records_go_with_a_resource_that_says_so(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, partitions=1, deletionPolicy="Delete"))
    release.wait_condition(f"topic/{name}", "Ready")
    assert release.get("topic", name)["metadata"]["finalizers"] == ["flotilla.dev/topic"]
    release.kubectl("delete", "topic", name, "--timeout=60s")
    assert name not in topics_of(api)


def test_a_policy_that_is_changed_counts(release: Release, api: httpx.Client, name: str) -> None:
    release.apply(topic(name, partitions=1, deletionPolicy="Delete"))
    release.wait_condition(f"topic/{name}", "Ready")
    release.patch(f"topic/{name}", {"spec": {"deletionPolicy": "Retain"}})
    wait_until("the finalizer to go", lambda: "finalizers" not in release.get("topic", name)["metadata"])
    release.kubectl("delete", "topic", name, "--timeout=30s")
    assert name in topics_of(api)


# -- topics that were made over HTTP ----------------------------------------------------------------------


def test_topics_that_were_made_over_http_show_up_and_go_with_them(
    release: Release, api: httpx.Client, name: str
) -> None:
    for called in (name, f"{name}_X"):
        assert api.post("/topics", json={"name": called, "number_of_partitions": 2}).status_code == 200

    def mirrors() -> dict[str, Any]:
        found = release.get("topics", "--selector=flotilla.dev/mirrored")["items"]
        return {one["spec"]["topicName"]: one for one in found if one["spec"]["topicName"].startswith(name)}

    wait_until("both to show up", lambda: len(mirrors()) == 2, 60)
    assert mirrors()[name]["metadata"]["name"] == name
    assert mirrors()[name]["spec"] == {"topicName": name, "cluster": "flotilla", "deletionPolicy": "Retain"}
    release.wait_condition(f"topic/{name}", "Ready")
    for called in (name, f"{name}_X"):
        assert api.delete(f"/topics/{called}").status_code == 200, "nobody owns it"
    wait_until("both to go", lambda: not mirrors(), 60)


def test_many_topics_at_once(release: Release, api: httpx.Client) -> None:
    """Fifty, applied in one go; how long it took is printed."""
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

    wait_until("all to be ready", lambda: ready() == len(names), 180)
    print(f"50 topics were ready after {time.monotonic() - began:.1f} s")  # noqa: T201 - a figure
    release.kubectl("delete", "topics", *names, "--timeout=120s", seconds=150)
    assert not set(names) & set(topics_of(api))


def test_explain_tells_what_can_be_said(release: Release) -> None:
    said = release.kubectl("explain", "topic.spec")
    for field in ("topicName", "partitions", "retention", "deletionPolicy"):
        assert field in said
    resources = release.kubectl("api-resources", "--api-group=flotilla.dev", "--output=wide")
    assert "ft" in resources
    assert json.loads(release.kubectl("get", "flotilla", "--output=json"))["items"], "all of ours, by their category"
