"""The operator itself: it may do little, can die at any moment, and nothing waits for it."""

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
from support.lives import short_lives
from support.release import Release

from .test_brokers import phases
from .test_topics import topic

logger = logging.getLogger(__name__)

_DEPLOYMENT = "deployment/flotilla-operator"
_SET = "broker/flotilla-broker"
_ACCOUNT = "system:serviceaccount:flotilla:flotilla-operator"
_KINDS = 8  # of changes after which a life ended, at least; there are fourteen
# What anybody who is known to Kubernetes may do: ask what there is, and about oneself.
_ANYBODY = re.compile(r"selfsubject|\[/|^Resources")


def test_the_operator_may_do_what_it_does_and_nothing_else(release: Release) -> None:
    """As Kubernetes itself tells it."""
    said = release.kubectl("auth", "can-i", "--list", f"--as={_ACCOUNT}")
    rights = {}
    for line in said.splitlines():
        found = re.fullmatch(r"(\S+)\s+\[(.*?)\]\s+\[(.*?)\]\s+\[(.*?)\]", line.strip())
        if found is not None and not _ANYBODY.search(line):
            rights[found[1]] = found[4].split()
    assert rights == {
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


def test_it_tells_of_itself(release: Release) -> None:
    """Alive means that its turns end; and it counts what it does."""
    with release.forward(f"pod/{release.pods('operator')[0]}", 8080) as url:
        health = httpx.get(f"{url}/healthz", timeout=30)
        assert (health.status_code, health.json()["status"]) == (200, "alive")
        assert health.json()["last_turn_seconds_ago"] < 30
        text = httpx.get(f"{url}/metrics", timeout=30).text
    assert "flotilla_operator_turn_seconds_count" in text
    assert 'flotilla_operator_steps_total{step="Apply"}' in text


def test_records_flow_while_the_operator_is_away_and_it_catches_up(release: Release, token: str) -> None:
    away(release)
    try:
        with Client(release.url, token=token) as client, client.producer() as producer:
            client.topics.create("unwatched", partitions=1)
            assert producer.send("unwatched", b"x", partition=0).result(30).offset == 0
        release.apply(topic("later", partitions=1))
        release.destroy("flotilla-broker-0")
        wait_until("the broker to be back by itself", lambda: release.is_ready("flotilla-broker-0"), 90)
        assert "status" not in release.get("topic", "later")
    finally:
        release.kubectl("scale", _DEPLOYMENT, "--replicas=1")
    release.wait_condition("topic/later", "Ready")
    release.wait_condition("topic/unwatched", "Ready")
    release.wait_ready()


def test_the_operator_dies_right_after_everything_that_it_changes(release: Release, token: str, tmp_path: Path) -> None:
    """Whoever comes next knows nothing of it, and goes on: with topics, with brokers, with a set that is made anew."""
    away(release)
    try:
        with short_lives(release, tmp_path) as lives:
            release.apply(topic("mortal", partitions=1, deletionPolicy="Delete"))
            release.wait_condition("topic/mortal", "Ready")
            with Client(release.url, token=token) as client, client.producer() as producer:
                producer.send("mortal", b"x", partition=0).result(30)
            release.patch("topic/mortal", {"spec": {"partitions": 2}})
            release.wait_condition("topic/mortal", "Ready")
            release.apply(topic("mortal-kept", partitions=1))
            release.wait_condition("topic/mortal-kept", "Ready")
            release.kubectl("delete", "topic", "mortal-kept", "--timeout=30s")
            wait_until("it to show up as nobody's", lambda: is_mirror(release, "mortal-kept"), 120)
            release.apply(waiting_pipeline("mortal"))
            wait_until("its driver to be made", lambda: "mortal-driver" in release.pods("spark-driver"), 60)
            release.patch("pipeline/mortal", {"spec": {"suspend": True}})
            wait_until("its driver to be ended", lambda: "mortal-driver" not in release.pods("spark-driver"), 60)
            release.patch(_SET, {"spec": {"replicas": 4, "config": {"log_level": "warning"}}})
            release.wait_condition(_SET, "Ready")
            shown = release.get("pipeline/mortal")["status"]
            assert (shown["run"], shown["attempt"], shown["failures"]) == (1, 1, 0), "each is counted once"
            assert shown["phase"] == "Suspended"
            release.kubectl("delete", "pipeline", "mortal")
            disown(release)
            wait_until("the set to be made anew", lambda: owners(release) == ["Broker"], 120)
            release.patch(_SET, {"spec": {"replicas": 3}})
            release.wait_condition(_SET, "Scaled")
            with Client(release.url, token=token) as client:
                assert [one.value for one in client.consumer("mortal").records(until="end")] == [b"x"]
            release.kubectl("delete", "topic", "mortal", "--timeout=120s", seconds=150)
            release.wait_condition(_SET, "Ready")
        assert lives.trouble == []
        logger.info("lives ended after: %s", dict(lives.ended))
        # Resources are looked after side by side: what one of them had just changed is not counted if another ends it.
        shown_kinds = {f"set_status {kind}" for kind in ("Broker", "Pipeline", "Topic")}
        assert lives.ended.keys() >= {"evict", "put_topic", *shown_kinds}
        assert len(lives.ended) >= _KINDS
        assert lives.ended["evict"] >= 2
    finally:
        release.patch(_SET, {"spec": {"replicas": 3}})
        release.kubectl("scale", _DEPLOYMENT, "--replicas=1")
    release.wait_ready()


def waiting_pipeline(name: str) -> dict[str, Any]:
    """Write a Pipeline whose driver has to wait for ever: what it should run is not there."""
    spec = {"application": {"configMap": {"name": f"{name}-is-not-there"}}, "checkpoint": {"volume": {"size": "1Gi"}}}
    return {"apiVersion": "flotilla.dev/v1", "kind": "Pipeline", "metadata": {"name": name}, "spec": spec}


def away(release: Release) -> None:
    """Have no operator."""
    release.kubectl("scale", _DEPLOYMENT, "--replicas=0")
    wait_until("the operator to be gone", lambda: not release.pods("operator"), 60)


def disown(release: Release) -> None:
    """Have the set be nobody's, and a pod without the mark of a set, as an older chart made them."""
    release.patch("statefulset/flotilla-broker", {"metadata": {"ownerReferences": None}})
    release.patch("pod/flotilla-broker-0", {"metadata": {"labels": {"flotilla.dev/broker": None}}})


def is_mirror(release: Release, name: str) -> bool:
    """Tell whether a Topic only tells of a topic."""
    shown = release.kubectl("get", "topics", "--selector=flotilla.dev/mirrored", "--output=name").split()
    return f"topic.flotilla.dev/{name}" in shown


def owners(release: Release) -> list[str]:
    """Tell whose the set is; nobody's, while there is none."""
    found = release.kubectl("get", "statefulset/flotilla-broker", "--ignore-not-found", "--output=json")
    return [one["kind"] for one in json.loads(found or "{}").get("metadata", {}).get("ownerReferences", [])]


def test_the_operator_is_killed_again_and_again_and_all_comes_to_be(release: Release) -> None:
    """In the middle of whatever it does: topics made, grown and deleted, and brokers replaced."""
    names = [f"killed-{number}" for number in range(12)]
    before = {pod: release.uid(pod) for pod in release.pods("broker")}
    with killing(release):
        release.apply(*(topic(one, partitions=2, deletionPolicy="Delete") for one in names))
        release.patch(_SET, {"spec": {"config": {"log_level": "info"}}})
        for one in names:
            release.wait_condition(f"topic/{one}", "Ready")
        release.apply(*(topic(one, partitions=3, deletionPolicy="Delete") for one in names))
        wait_until("all to have grown", lambda: all(partitions(release, one) == 3 for one in names), 120)
        release.kubectl("delete", "topics", *names[:6], "--timeout=120s", seconds=150)
        release.wait_condition(_SET, "Updated")
    release.kubectl("delete", "topics", *names[6:], "--timeout=120s", seconds=150)
    release.wait_ready()
    assert not {release.uid(pod) for pod in before} & set(before.values()), "all brokers were replaced"


def partitions(release: Release, name: str) -> int:
    """Count the partitions of a topic, as its resource shows them."""
    return int(release.get("topic", name).get("status", {}).get("partitions", 0))


@contextmanager
def killing(release: Release, pause_s: float = 4.0) -> Iterator[None]:
    """Kill the operator every few seconds. A new pod comes at once; a container would be started later each time."""
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


def test_two_operators_at_once_do_no_harm(release: Release) -> None:
    """Both replace brokers, and never two at a time: Kubernetes asks the disruption budget for each."""
    release.kubectl("scale", _DEPLOYMENT, "--replicas=2")
    wait_until("both to run", lambda: sum(map(release.is_ready, release.pods("operator"))) == 2, 90)
    away: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            away.append(3 - sum(map(release.is_ready, release.pods("broker"))))

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
    assert max(away) == 1
    assert set(phases(release).values()) == {"Running"}


def test_an_operator_that_finds_resources_gone_deletes_nothing(release: Release, token: str) -> None:
    """What went while it was away is no reason to delete topics."""
    release.apply(topic("stays", partitions=1))
    release.wait_condition("topic/stays", "Ready")
    with Client(release.url, token=token) as client, client.producer() as producer:
        producer.send("stays", b"x", partition=0).result(30)
    away(release)
    release.kubectl("delete", "topic", "stays", "--timeout=30s")
    release.kubectl("scale", _DEPLOYMENT, "--replicas=1")
    release.wait_condition("topic/stays", "Ready")  # as one that nobody owns
    with Client(release.url, token=token) as client:
        assert [record.value for record in client.consumer("stays").records(until="end")] == [b"x"]
    release.apply(topic("stays", partitions=1))
    release.wait_condition("topic/stays", "Ready")
