"""Messages of the operator as golden text: conditions, other texts of statuses, and events.

To rewrite the text: FLOTILLA_GOLDEN=write pytest tests/unit/operator/test_messages.py
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from flotilla_operator.brokers.ownership import describe_foreign_owner
from flotilla_operator.brokers.plan import BrokerSetObservation, plan_broker_set
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.names import MIRRORED
from flotilla_operator.plans import EmitEvent, Plan
from flotilla_operator.topics.plan import TopicObservation, plan_topic

from .builders import CLUSTER, NOW, broker, broker_resource, cluster_state, pod, topic, topic_resource
from .pipeline_cluster import CHECKPOINT, INSTALLATION, Kubernetes, kubernetes, pipeline
from .test_broker_plan import ALL, FIVE, ORDERS, found_set, plan
from .test_pipeline_plan import executor
from .test_topic_plan import OWNER, deleted

_GOLDEN = Path(__file__).parent / "testdata" / "messages.txt"
_ERROR = "The writer is unavailable at http://writer: refused"
_NO_CPU = [{"type": "PodScheduled", "status": "False", "message": "Insufficient cpu."}]
_INVALID: tuple[dict[str, Any], ...] = (
    {"schedule": "every day"}, {"schedule": "0 0 31 2 *"}, {"driver": {"memory": "512Mi"}}, {"sparkConf": {"a": "1"}},
    {"sparkConf": {"spark.master": "local"}}, {"env": [{"name": "FLOTILLA_URL", "value": "http://elsewhere"}]},
    {"arguments": ["--once"]}, {"arguments": ["--to-topic", "counts"]},
)  # fmt: skip


def messages(planned: Plan) -> Iterator[tuple[str, str, str, str]]:
    """Yield all texts of a plan: type, status, reason and message."""
    status = planned.status or {}
    conditions = sorted(status.get("conditions", ()), key=lambda one: str(one["type"]) == "Ready")
    yield from ((one["type"], one["status"], one["reason"], one["message"]) for one in conditions)
    for one in status.get("brokers", ()):
        yield "status.brokers", "-", one["phase"], one.get("message", "")
    yield from ((f"status.{name}", "-", "-", status.get(name, "")) for name in ("failure", "stopping"))
    for action in planned.actions:
        if isinstance(action, EmitEvent):
            yield "event", "Warning" if action.is_warning else "Normal", action.reason, action.message


def broker_plans() -> Iterator[Plan]:
    resource, old = broker_resource(), tuple(pod(at, "old") for at in range(3))
    five, foreign = found_set(resource, replicas=5), found_set(resource, ownerReferences=[], labels={})
    ended = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3}}}
    crashing = {**pod(2, ready=False), "status": {"containerStatuses": [ended]}}
    lost = cluster_state((ORDERS,), (broker(0), broker(1), broker(2, active=False), broker(3, ordinal=2)))
    more = cluster_state((ORDERS, topic("more", (3, 1, 2), (4, 1, 2))), tuple(broker(at) for at in range(5)))
    yield plan()
    yield plan_broker_set(broker_resource(replicas=7), BrokerSetObservation(CLUSTER, None, managers_error=_ERROR), NOW)
    for one in (
        pod(2, ready=False),
        pod(2, waits=True),
        pod(2, failure="ErrImagePull"),
        pod(2, leaving=True),
        crashing,
    ):
        yield plan(pods=(pod(0), pod(1), one))
    yield plan(there=cluster_state((ORDERS,), silent=(2,)))
    yield plan(there=cluster_state((ORDERS,), lag={2: 5000}))
    yield plan(there=ClusterState(version=1, cluster_id="c", brokers=(broker(0), broker(1), broker(2))))
    yield from (plan(pods=pods) for pods in (old, old[:2], (*old[:2], pod(2, ready=False))))
    yield from (plan(pods=old, there=there) for there in (cluster_state((ORDERS,), leaderless=True), lost))
    yield plan(pods=old, found=found_set(resource, generation=5))
    yield plan(broker_resource(update="OnDelete"), pods=old)
    for pods in (FIVE, (*old, pod(3), pod(4))):
        yield plan_broker_set(resource, BrokerSetObservation(CLUSTER, five, pods, managers_error=_ERROR), NOW)
    yield plan(pods=FIVE, there=more, found=five)
    yield plan(pods=(*ALL, pod(3, ready=False)), found=found_set(resource, replicas=4))
    yield plan(rejection=describe_foreign_owner(found_set(resource), foreign))
    yield plan(repeated_error="etcd has no leader")
    yield plan(found=found_set(resource, ownerReferences=[]))


def topic_plans() -> Iterator[Plan]:
    found, none, spec = topic("orders", (0, 1, 2), (1, 2, 0), owner=OWNER), cluster_state(), topic_resource
    there, one, mirror = cluster_state((found,)), cluster_state(brokers=(broker(0),)), topic_resource()
    mirror["metadata"]["labels"] = {MIRRORED: "true"}
    foreign, creating = (
        topic("orders", (0,), owner="Topic q/others"),
        topic("orders", (0,), owner=OWNER, state="creating"),
    )
    cases: tuple[tuple[dict[str, Any], TopicObservation], ...] = (
        (spec(), TopicObservation(none)), (mirror, TopicObservation(none)),
        (spec(), TopicObservation(none, are_racks_registered=False)),
        (spec(), TopicObservation(none, last_error="etcd has no leader")),
        (spec(), TopicObservation(none, rejection="Not allowed.")),
        (spec(replication=5), TopicObservation(none, broker_count=3)),
        (spec(replication=2), TopicObservation(one, broker_count=3)),
        (spec(retention={"time": "soon"}), TopicObservation(none)),
        (spec(retention={"size": "much"}), TopicObservation(none)),
        (spec(), TopicObservation(None, managers_error=_ERROR)), (spec(), TopicObservation(there)),
        (spec(partitions=3), TopicObservation(there)), (spec(partitions=1), TopicObservation(there)),
        (spec(replication=2), TopicObservation(there)),
        (spec(), TopicObservation(there, conflict="Topic first")),
        (spec(), TopicObservation(cluster_state((foreign,)))),
        (spec(), TopicObservation(cluster_state((creating,)))),
        (spec(), TopicObservation(cluster_state((found,), leaderless=True))),
        (spec(), TopicObservation(cluster_state((topic("orders", (0,), owner=OWNER),), silent=(0,)))),
        (deleted("Delete", found.id), TopicObservation(there)), (deleted("Delete", "another"), TopicObservation(there)),
    )  # fmt: skip
    return (plan_topic(resource, observed, NOW) for resource, observed in cases)


def steps(one: Kubernetes, *changes: Callable[[Kubernetes], object]) -> Iterator[Kubernetes]:
    """Yield a Pipeline before and after each change."""
    yield one
    for change in changes:
        change(one)
        yield one


def stream(**spec: object) -> Kubernetes:
    one = kubernetes(mode="Stream", checkpoint=CHECKPOINT, **spec)
    one.run()
    return one


def pipelines() -> Iterator[Kubernetes]:
    yield from (kubernetes(**spec) for spec in (*_INVALID, {"suspend": True}))
    yield from steps(
        kubernetes(schedule="1 12 * * *"),
        lambda one: one.wait(60),
        lambda one: one.pods["stats-driver"]["status"].update(conditions=_NO_CPU),
        Kubernetes.run,
        lambda one: one.executors.append(executor(1, "Pending", conditions=_NO_CPU)),
        lambda one: one.executors.append(executor(2, "Running")),
        Kubernetes.end,
    )
    shared = pipeline("younger", checkpoint={"volume": {"claimName": "stats-checkpoint"}})
    yield from steps(stream(), lambda one: one.add(shared), lambda one: one.resources.pop("stats"))
    yield replace(kubernetes(), rejection="pods is forbidden: exceeded quota")
    yield from steps(stream(restart={"policy": "OnFailure"}), Kubernetes.end)
    yield from steps(stream(), Kubernetes.end)
    yield from steps(replace(stream(), installation=replace(INSTALLATION, image=None)), Kubernetes.vanish)
    yield from steps(stream(), lambda one: one.change_spec("stats", suspend=True), Kubernetes.vanish)
    yield from steps(stream(), lambda one: one.change_spec("stats", topics=["a"]))
    yield from steps(
        stream(),
        lambda one: one.pods["stats-driver"]["metadata"].update(deletionTimestamp=NOW),
        lambda one: one.pods["stats-driver"]["metadata"].update(ownerReferences=[]),
        Kubernetes.vanish,
    )
    evicted = {"reason": "Evicted", "message": "The node was low on memory."}
    ends: tuple[Any, ...] = (
        ({"reason": "OOMKilled"}, {}),
        ({"exitCode": 1}, {}),
        ({}, evicted),
        ({}, {"message": "?"}),
    )
    for ended, status in ends:
        one = stream(restart={"policy": "Never"})
        containers = [{"name": "spark-driver", "state": {"terminated": ended}}]
        one.pods["stats-driver"]["status"] = {"phase": "Failed", "containerStatuses": containers, **status}
        yield one


def all_messages() -> Iterator[tuple[str, ...]]:
    yield from (("Broker", *one) for planned in broker_plans() for one in messages(planned))
    yield from (("Topic", *one) for planned in topic_plans() for one in messages(planned))
    for cluster in pipelines():
        for name in list(cluster.resources):
            yield from (("Pipeline", *one) for one in messages(Plan((), cluster.settle(name))))


def test_messages_match_the_golden_text() -> None:
    lines: dict[tuple[str, str], str] = {}
    for kind, *others, message in all_messages():
        if message:  # each text once: several conditions may have it
            lines.setdefault((kind, message), f"{' | '.join((kind, *others, message))}\n")
    text = "".join(lines.values())
    if os.environ.get("FLOTILLA_GOLDEN") == "write":
        _GOLDEN.write_text(text)
    assert text == _GOLDEN.read_text()
