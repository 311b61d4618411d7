"""The operator: its permissions, crashes at any point, and a system that works without it."""

import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from flotilla import Client
from support.cluster import wait_until
from support.operator_crashes import crashing_operators
from support.release import Release

from .test_brokers import phases
from .test_topics import topic

logger = logging.getLogger(__name__)

_DEPLOYMENT = "deployment/flotilla-operator"
_SET = "broker/flotilla-broker"
_ACCOUNT = "system:serviceaccount:flotilla:flotilla-operator"
_KINDS = 8  # minimal number of kinds of changes after which the operator was killed; there are fourteen
# Permissions of every authenticated user: API discovery and reviews of their own access.
_EVERY_USER = re.compile(r"selfsubject|\[/|^Resources")


def test_operator_has_exactly_the_permissions_that_it_needs(release: Release) -> None:
    """As listed by `kubectl auth can-i`."""
    output = release.kubectl("auth", "can-i", "--list", f"--as={_ACCOUNT}")
    permissions = {}
    for line in output.splitlines():
        found = re.fullmatch(r"(\S+)\s+\[(.*?)\]\s+\[(.*?)\]\s+\[(.*?)\]", line.strip())
        if found is not None and not _EVERY_USER.search(line):
            permissions[found[1]] = found[4].split()
    assert permissions == {
        "topics.flotilla.dev": ["get", "list", "watch", "create", "patch", "delete"],
        "brokers.flotilla.dev": ["list", "watch"],
        "topics.flotilla.dev/status": ["patch"],
        "brokers.flotilla.dev/status": ["patch"],
        "statefulsets.apps": ["get", "list", "watch", "create", "patch", "delete"],
        "services": ["get", "list", "watch", "create", "patch"],
        "configmaps": ["get", "list", "watch", "create", "patch"],
        "serviceaccounts": ["get", "list", "watch", "create", "patch"],
        "poddisruptionbudgets.policy": ["get", "list", "watch", "create", "patch"],
        "pipelines.flotilla.dev": ["get", "list", "watch", "delete"],
        "pipelines.flotilla.dev/status": ["patch"],
        "persistentvolumeclaims": ["get", "patch", "create"],
        "pods": ["list", "watch", "patch", "get", "delete", "create"],
        "pods/eviction": ["create"],
        "events": ["get", "list", "create", "patch"],
        "namespaces": ["get"],
        "nodes": ["list"],
    }


def test_operator_serves_health_and_metrics(release: Release) -> None:
    """It is alive while its reconcile loop makes progress; metrics count its actions."""
    with release.forward(f"pod/{release.pods('operator')[0]}", 8080) as url:
        health = httpx.get(f"{url}/healthz", timeout=30)
        assert (health.status_code, health.json()["status"]) == (200, "alive")
        assert health.json()["last_reconcile_seconds_ago"] < 30
        text = httpx.get(f"{url}/metrics", timeout=30).text
    assert "flotilla_operator_reconcile_seconds_count" in text
    assert 'flotilla_operator_actions_total{action="Apply"}' in text


def test_records_flow_without_operator_and_it_catches_up(release: Release, token: str) -> None:
    stop_operator(release)
    try:
        with Client(release.url, token=token) as client, client.producer() as producer:
            client.topics.create("unwatched", partitions=1)
            assert producer.send("unwatched", b"x", partition=0).result(30).offset == 0
        release.apply(topic("later", partitions=1))
        release.destroy("flotilla-broker-0")
        wait_until("the broker to be ready again", lambda: release.is_ready("flotilla-broker-0"), 90)
        assert "status" not in release.get("topic", "later")
    finally:
        release.kubectl("scale", _DEPLOYMENT, "--replicas=1")
    release.wait_condition("topic/later", "Ready")
    release.wait_condition("topic/unwatched", "Ready")
    release.wait_ready()


def test_operator_resumes_after_a_crash_behind_each_change(release: Release, token: str, tmp_path: Path) -> None:
    """The next process knows nothing of the change, and continues: topics, brokers, StatefulSet, Pipeline."""
    stop_operator(release)
    try:
        with crashing_operators(release, tmp_path) as runs:
            release.apply(topic("mortal", partitions=1, deletionPolicy="Delete"))
            release.wait_condition("topic/mortal", "Ready")
            with Client(release.url, token=token) as client, client.producer() as producer:
                producer.send("mortal", b"x", partition=0).result(30)
            release.patch("topic/mortal", {"spec": {"partitions": 2}})
            release.wait_condition("topic/mortal", "Ready")
            release.apply(topic("mortal-kept", partitions=1))
            release.wait_condition("topic/mortal-kept", "Ready")
            release.kubectl("delete", "topic", "mortal-kept", "--timeout=30s")
            wait_until("the topic to be mirrored", lambda: is_mirror(release, "mortal-kept"), 120)
            release.apply(waiting_pipeline("mortal"))
            wait_until("its driver to be created", lambda: "mortal-driver" in release.pods("spark-driver"), 60)
            release.patch("pipeline/mortal", {"spec": {"suspend": True}})
            wait_until("its driver to be deleted", lambda: "mortal-driver" not in release.pods("spark-driver"), 60)
            release.patch(_SET, {"spec": {"replicas": 4, "config": {"log_level": "warning"}}})
            release.wait_condition(_SET, "Ready")
            shown = release.get("pipeline/mortal")["status"]
            assert (shown["run"], shown["attempt"], shown["failures"]) == (1, 1, 0), (
                "each run and attempt is counted once"
            )
            assert shown["phase"] == "Suspended"
            release.kubectl("delete", "pipeline", "mortal")
            disown(release)
            wait_until("the StatefulSet to be recreated", lambda: owners(release) == ["Broker"], 120)
            release.patch(_SET, {"spec": {"replicas": 3}})
            release.wait_condition(_SET, "Scaled")
            with Client(release.url, token=token) as client:
                assert [one.value for one in client.consumer("mortal").records(until="end")] == [b"x"]
            release.kubectl("delete", "topic", "mortal", "--timeout=120s", seconds=150)
            release.wait_condition(_SET, "Ready")
        assert runs.errors == []
        logger.info("crashes of the operator after: %s", dict(runs.crashes))
        # Resources are reconciled concurrently: a change is not counted if the crash after another one came first.
        status_updates = {f"set_status {kind}" for kind in ("Broker", "Pipeline", "Topic")}
        assert runs.crashes.keys() >= {"evict", "put_topic", *status_updates}
        assert len(runs.crashes) >= _KINDS
        assert runs.crashes["evict"] >= 2
    finally:
        release.patch(_SET, {"spec": {"replicas": 3}})
        release.kubectl("scale", _DEPLOYMENT, "--replicas=1")
    release.wait_ready()


def waiting_pipeline(name: str) -> dict[str, Any]:
    """Return a Pipeline whose driver waits forever, because the ConfigMap of its application does not exist."""
    spec = {"application": {"configMap": {"name": f"{name}-missing"}}, "checkpoint": {"volume": {"size": "1Gi"}}}
    return {"apiVersion": "flotilla.dev/v1", "kind": "Pipeline", "metadata": {"name": name}, "spec": spec}


def stop_operator(release: Release) -> None:
    """Scale the operator to 0, and wait until its pods are gone."""
    release.kubectl("scale", _DEPLOYMENT, "--replicas=0")
    wait_until("the operator to be gone", lambda: not release.pods("operator"), 60)


def disown(release: Release) -> None:
    """Remove the owner of the StatefulSet and the label of a pod, as an older chart created them."""
    release.patch("statefulset/flotilla-broker", {"metadata": {"ownerReferences": None}})
    release.patch("pod/flotilla-broker-0", {"metadata": {"labels": {"flotilla.dev/broker": None}}})


def is_mirror(release: Release, name: str) -> bool:
    """Return whether the operator created the Topic resource for an existing topic."""
    shown = release.kubectl("get", "topics", "--selector=flotilla.dev/mirrored", "--output=name").split()
    return f"topic.flotilla.dev/{name}" in shown


def owners(release: Release) -> list[str]:
    """Return the kinds of the owners of the StatefulSet; empty if it does not exist."""
    found = release.kubectl("get", "statefulset/flotilla-broker", "--ignore-not-found", "--output=json")
    return [one["kind"] for one in json.loads(found or "{}").get("metadata", {}).get("ownerReferences", [])]


def test_operator_that_is_killed_repeatedly_completes_all_changes(release: Release) -> None:
    """While it creates, grows and deletes topics, and replaces brokers."""
    names = [f"killed-{number}" for number in range(12)]
    before = {pod: release.uid(pod) for pod in release.pods("broker")}
    with killing_operator(release):
        release.apply(*(topic(one, partitions=2, deletionPolicy="Delete") for one in names))
        release.patch(_SET, {"spec": {"config": {"log_level": "info"}}})
        for one in names:
            release.wait_condition(f"topic/{one}", "Ready")
        release.apply(*(topic(one, partitions=3, deletionPolicy="Delete") for one in names))
        wait_until("all topics to have 3 partitions", lambda: all(partitions(release, one) == 3 for one in names), 120)
        release.kubectl("delete", "topics", *names[:6], "--timeout=120s", seconds=150)
        release.wait_condition(_SET, "Updated")
    release.kubectl("delete", "topics", *names[6:], "--timeout=120s", seconds=150)
    release.wait_ready()
    assert not {release.uid(pod) for pod in before} & set(before.values()), "all brokers were replaced"


def partitions(release: Release, name: str) -> int:
    """Return the number of partitions in the status of a Topic."""
    return int(release.get("topic", name).get("status", {}).get("partitions", 0))


@contextmanager
def killing_operator(release: Release, pause_s: float = 4.0) -> Iterator[None]:
    """Delete the operator's pod every few seconds. A killed container would be restarted later each time."""
    stop, killed = threading.Event(), 0

    def kill() -> None:
        nonlocal killed
        while not stop.wait(pause_s):
            for pod in filter(release.is_ready, release.pods("operator")):
                release.destroy(pod)
                killed += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert killed > 1


def test_two_operators_never_replace_two_brokers_at_once(release: Release) -> None:
    """Both evict brokers; Kubernetes checks the disruption budget for each eviction."""
    release.kubectl("scale", _DEPLOYMENT, "--replicas=2")
    wait_until("both operators to be ready", lambda: sum(map(release.is_ready, release.pods("operator"))) == 2, 90)
    unready: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            unready.append(3 - sum(map(release.is_ready, release.pods("broker"))))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        release.patch(_SET, {"spec": {"config": {"log_level": "error"}}})
        release.wait_condition(_SET, "Updated")
        release.wait_condition(_SET, "Ready")
    finally:
        stop.set()
        watching.join()
        release.kubectl("scale", _DEPLOYMENT, "--replicas=1")
    assert max(unready) == 1
    assert set(phases(release).values()) == {"Running"}


def test_operator_keeps_topics_whose_resources_were_deleted_while_it_was_down(release: Release, token: str) -> None:
    """Without a finalizer a missing resource is no reason to delete a topic."""
    release.apply(topic("stays", partitions=1))
    release.wait_condition("topic/stays", "Ready")
    with Client(release.url, token=token) as client, client.producer() as producer:
        producer.send("stays", b"x", partition=0).result(30)
    stop_operator(release)
    release.kubectl("delete", "topic", "stays", "--timeout=30s")
    release.kubectl("scale", _DEPLOYMENT, "--replicas=1")
    release.wait_condition("topic/stays", "Ready")  # as a mirror without an owner
    with Client(release.url, token=token) as client:
        assert [record.value for record in client.consumer("stays").records(until="end")] == [b"x"]
    release.apply(topic("stays", partitions=1))
    release.wait_condition("topic/stays", "Ready")
