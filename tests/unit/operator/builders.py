"""Builders for tests of the operator: cluster states of managers, and resources of Kubernetes."""

from collections.abc import Mapping
from typing import Any

from flotilla_operator.brokers.spec import BrokerInstallation
from flotilla_operator.cluster_state import Broker, ClusterState, Disk, Partition, Replica, Report, Topic
from flotilla_operator.names import API_VERSION

NOW = "2026-01-31T12:00:00Z"
NAMESPACE = "q"
CLUSTER = BrokerInstallation(
    name="flotilla",
    namespace=NAMESPACE,
    image="flotilla:1",
    instance="flotilla",
    app="flotilla",
    image_pull_policy="IfNotPresent",
    image_pull_secrets=(),
    auth="on",
    secret="flotilla-secret",  # noqa: S106 - the name of a Secret
    secret_key="secret",  # noqa: S106 - the name of its key
    tls_secret=None,
    tls_peers=True,
    managers=("http://flotilla-writer.q.svc:8080", "http://flotilla-reader.q.svc:8080"),
)


def broker_id(number: int) -> str:
    """Make a readable id."""
    return f"{number:x}" * 32


def broker(number: int, ordinal: int | None = None, **options: Any) -> Broker:  # noqa: ANN401 - any field
    """A broker in a pod of the set `flotilla-broker`."""
    host = f"flotilla-broker-{number if ordinal is None else ordinal}.flotilla-broker.{NAMESPACE}.svc"
    return Broker(id=broker_id(number), host=host, port=8090, **options)


def topic(name: str, *members: tuple[int, ...], **options: Any) -> Topic:  # noqa: ANN401 - any field
    """A topic whose partitions are on these brokers, by number."""
    partitions = tuple(
        Partition(index=at, epoch=1, members=tuple(broker_id(one) for one in of)) for at, of in enumerate(members)
    )
    options = {"state": "ready", "retention_ms": 604_800_000, **options}
    return Topic(id=name.encode().hex().ljust(32, "0")[:32], name=name, partitions=partitions, **options)


def cluster_state(
    topics: tuple[Topic, ...] = (),
    brokers: tuple[Broker, ...] = (broker(0), broker(1), broker(2)),
    *,
    silent: tuple[int, ...] = (),
    lag: Mapping[int, int] | None = None,
    leaderless: bool = False,
    messages: int = 10,
) -> ClusterState:
    """A healthy state, except for silent or lagging brokers. The first member of a partition leads."""
    reports = {}
    for one in brokers:
        number = int(one.id[0], 16)
        held = [
            Replica(
                topic_id=of.id,
                partition=part.index,
                epoch=part.epoch,
                leader=None if leaderless else part.members[0],
                leads=part.members[0] == one.id and not leaderless,
                settled=part.members[0] == one.id and not leaderless,
                next_offset=messages,
                size_bytes=messages * 100,
                lag=(lag or {}).get(number, 0),
            )
            for of in topics
            for part in of.partitions
            if one.id in part.members
        ]
        seconds = 60.0 if number in silent or not one.active else 0.5
        reports[one.id] = Report(seconds_ago=seconds, disk=Disk(used_bytes=1 << 20), replicas=tuple(held))
    return ClusterState(version=7, cluster_id="c" * 32, topics=topics, brokers=brokers, reports=reports)


def topic_resource(name: str = "orders", status: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    """A Topic resource, with the fields that the API server adds."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Topic",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "generation": 3,
            "resourceVersion": "5",
            "creationTimestamp": "2026-01-31T11:00:00Z",
        },
        "spec": {"cluster": "flotilla", "deletionPolicy": "Retain", **spec},
        **({"status": dict(status)} if status is not None else {}),
    }


def broker_resource(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """A Broker resource, with the fields that the API server adds."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Broker",
        "metadata": {"name": "flotilla-broker", "namespace": NAMESPACE, "uid": "uid-set", "generation": 2},
        "spec": {"cluster": "flotilla", "replicas": 3, "storage": {"size": "10Gi"}, **spec},
    }


def pod(ordinal: int, revision: str = "new", *, ready: bool = True, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """A pod of the set `flotilla-broker`."""
    failure = options.get("failure")
    waiting = {"waiting": {"reason": failure, "message": "no such image"}} if failure else {"running": {}}
    metadata: dict[str, Any] = {
        "name": f"flotilla-broker-{ordinal}",
        "uid": f"uid-{ordinal}",
        "labels": {
            **CLUSTER.labels,
            **({} if options.get("is_old") else {"flotilla.dev/broker": "flotilla-broker"}),
            "controller-revision-hash": revision,
        },
    }
    if options.get("leaving"):
        metadata["deletionTimestamp"] = NOW
    scheduled = {"type": "PodScheduled", "status": "False" if options.get("waits") else "True", "message": "no room"}
    return {
        "metadata": metadata,
        "spec": {"nodeName": f"node-{ordinal}"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}, scheduled],
            "containerStatuses": [{"state": waiting}],
        },
    }
