"""The reconciler: plans are executed, failures are retried with backoff, and rejections are shown."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flotilla_operator.backoff import REJECTED_S
from flotilla_operator.cache import Cache
from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.errors import Conflict, Rejected, Unavailable
from flotilla_operator.metrics import Metrics
from flotilla_operator.names import BROKER, FINALIZER, NODE, PIPELINE, POD, STATEFULSET, TOPIC
from flotilla_operator.observation import GRACE_S, RELIST_S
from flotilla_operator.pipeline_planner import DRIVER_PODS, EXECUTOR_PODS, PipelinePlanner
from flotilla_operator.pipelines import driver_pod
from flotilla_operator.pipelines.spec import DRIVER_LABELS, EXECUTOR_LABELS, read_pipeline
from flotilla_operator.reconciler import Reconciler

from .builders import CLUSTER, NOW, broker_resource, cluster_state, pod, topic, topic_resource
from .pipeline_cluster import INSTALLATION, pipeline

Asked = list[tuple[str, Any]]


class FakeKube:
    """A fake of Kubernetes: it has resources, and records requests."""

    namespace = "q"

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {TOPIC: [], BROKER: [], POD: [], STATEFULSET: []}
        self.asked: Asked = []
        self.listed: list[str] = []
        self.ends = False
        self.refuses: dict[str, Exception] = {}
        self.warnings: dict[str, str] = {}

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        kind = DRIVER_PODS if labels == DRIVER_LABELS else EXECUTOR_PODS if labels == EXECUTOR_LABELS else kind
        self.listed.append(kind)
        if kind in self.refuses:
            raise self.refuses[kind]
        return [dict(one) for one in self.found.get(kind, [])]

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return next((one for one in self.found.get(kind, []) if one["metadata"]["name"] == name), None)

    async def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._ask("apply", manifest["kind"])
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "u", "generation": 1}}

    async def create(self, action: Any) -> bool:  # noqa: ANN401 - a action
        name = action.manifest["metadata"]["name"]
        self._ask("create", name)
        return await self.get(action.manifest["kind"], name) is None

    async def delete(self, action: Any) -> None:  # noqa: ANN401
        self._ask("delete", action.name)

    async def evict(self, action: Any) -> bool:  # noqa: ANN401
        self._ask("evict", action.pod)
        return True

    async def set_finalizers(self, _: str, resource: Mapping[str, Any], finalizers: tuple[str, ...]) -> None:
        self._ask("finalizers", (resource["metadata"]["name"], finalizers))

    async def last_warning(self, uid: str) -> str | None:
        self._ask("warning", uid)
        return self.warnings.get(uid)

    async def set_status(
        self, kind: str, name: str, status: dict[str, Any], version: str | None = None
    ) -> dict[str, Any]:
        self._ask("status", name)
        (one,) = [one for one in self.found[kind] if one["metadata"]["name"] == name]
        before = one["metadata"].get("resourceVersion", "1")
        if version not in {None, before}:
            raise Conflict("it was changed meanwhile")
        one |= {"status": status, "metadata": {**one["metadata"], "resourceVersion": str(int(before) + 1)}}
        return dict(one)

    async def emit_event(self, _: str, resource: Mapping[str, Any], action: Any, __: str) -> None:  # noqa: ANN401
        self._ask("event", (resource["metadata"]["name"], action.reason))

    async def is_namespace_terminating(self) -> bool:
        return self.ends

    def _ask(self, what: str, about: Any) -> None:  # noqa: ANN401
        self.asked.append((what, about))
        if what in self.refuses:
            raise self.refuses[what]

    def take(self) -> Asked:
        """Return the requests since the last call."""
        asked, self.asked = self.asked, []
        return asked


class FakeControl:
    """A fake of the managers: they have a state, or are unavailable."""

    def __init__(self) -> None:
        self.state: ClusterState | None = cluster_state()
        self.asked: list[tuple[str, Any]] = []
        self.refuses: Exception | None = None

    async def get_state(self) -> ClusterState:
        if self.state is None:
            raise Unavailable("no response")
        return self.state

    async def put_topic(self, name: str, body: Mapping[str, Any]) -> None:
        self.asked.append((name, dict(body)))
        if self.refuses is not None:
            raise self.refuses

    async def release_topic(self, name: str, owner: str) -> None:
        self.asked.append((name, owner))


class Stage:
    """A reconciler with fakes around it."""

    def __init__(self) -> None:
        self.kube, self.control, self.now = FakeKube(), FakeControl(), 0.0
        self.cache = Cache()
        self.reconciler = Reconciler(
            CLUSTER,
            self.kube,  # type: ignore[arg-type]
            self.control,  # type: ignore[arg-type]
            self.cache,
            Metrics(),
            clock=lambda: self.now,
            now=lambda: NOW,
            pipeline_installation=INSTALLATION,
        )

    def reconcile(self, later_s: float = 0.0) -> None:
        self.now += later_s
        asyncio.run(self.reconciler.reconcile())

    def condition(self, name: str, kind: str = "Ready", of: str = TOPIC) -> tuple[str, str]:
        (one,) = [one for one in self.kube.found[of] if one["metadata"]["name"] == name]
        return next((each["status"], each["reason"]) for each in one["status"]["conditions"] if each["type"] == kind)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_topic_is_created_once_and_becomes_ready(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.reconcile()
    assert stage.control.asked == [("orders", {"owner": "Topic q/orders"})]
    assert stage.kube.take() == [("status", "orders"), ("event", ("orders", "Creating"))]
    stage.control.state = cluster_state((topic("orders", (0, 1, 2), owner="Topic q/orders"),))
    stage.reconcile()
    assert stage.condition("orders") == ("True", "Ready")
    stage.kube.take()
    stage.reconcile()
    assert stage.kube.take() == []
    assert len(stage.control.asked) == 1


@pytest.mark.parametrize("error", [Conflict("it was changed meanwhile"), Unavailable("the API server is overloaded")])
def test_failed_event_neither_stops_actions_nor_hides_the_new_status(stage: Stage, error: Exception) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.kube.refuses["event"] = error
    stage.reconcile()
    assert stage.control.asked == [("orders", {"owner": "Topic q/orders"})]
    assert stage.condition("orders") == ("False", "Creating")
    (cached,) = stage.cache.all(TOPIC)
    assert cached["status"] == stage.kube.found[TOPIC][0]["status"]


def test_topics_are_reconciled_while_pipelines_cannot_be_listed(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.kube.refuses[PIPELINE] = Unavailable("the API server is overloaded")
    stage.reconcile()
    assert stage.control.asked == [("orders", {"owner": "Topic q/orders"})]


def test_unavailable_managers_are_retried_with_backoff(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.control.refuses = Unavailable("brokers are unavailable")
    for _ in range(3):
        stage.reconcile(0.1)
    assert len(stage.control.asked) == 1, "the backoff lasts a second"
    stage.reconcile(1.0)
    assert len(stage.control.asked) == 2


def test_rejected_topic_is_shown_and_retried_after_a_change(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.control.refuses = Rejected("There are 5000 topics")
    stage.reconcile()
    stage.reconcile(5)
    assert stage.condition("orders") == ("False", "Rejected")
    assert len(stage.control.asked) == 1
    stage.kube.take()
    stage.reconcile(REJECTED_S)
    assert stage.kube.take() == [], "the same error is not reported again"
    assert len(stage.control.asked) == 2, "it is retried, since the cause may be gone without an event"
    stage.reconcile(5)
    stage.kube.found[TOPIC][0]["metadata"] |= {"generation": 4, "resourceVersion": "99"}
    stage.reconcile(RELIST_S + 1)
    assert len(stage.control.asked) == 3


def test_rejected_child_is_shown_and_retried_later(stage: Stage) -> None:
    stage.kube.found[BROKER] = [broker_resource()]
    stage.kube.refuses["apply"] = Rejected("spec.template.spec.containers[0]: Required value")
    for _ in range(5):
        stage.reconcile(0.1)
    asked = [about for what, about in stage.kube.take() if what == "apply"]
    assert asked == ["ServiceAccount"]
    (shown,) = [one for one in stage.kube.found[BROKER][0]["status"]["conditions"] if one["type"] == "Accepted"]
    assert (shown["status"], shown["reason"]) == ("False", "Rejected")


def test_foreign_service_is_left_unchanged_and_reported(stage: Stage) -> None:
    """A Service of the same name exists already."""
    stage.kube.found[BROKER] = [broker_resource()]
    stage.kube.found["Service"] = [{"metadata": {"name": "flotilla-broker", "labels": {"app": "other"}}}]
    stage.reconcile()
    stage.reconcile()
    assert [about for what, about in stage.kube.take() if what == "apply"] == ["ServiceAccount", "ConfigMap"]
    (shown,) = [one for one in stage.kube.found[BROKER][0]["status"]["conditions"] if one["type"] == "Accepted"]
    assert (shown["status"], shown["reason"]) == ("False", "Rejected")
    assert "Service flotilla-broker exists and does not belong to Flotilla" in shown["message"]


def test_brokers_are_created_while_managers_are_unavailable(stage: Stage) -> None:
    stage.kube.found[TOPIC], stage.kube.found[BROKER] = [topic_resource()], [broker_resource()]
    stage.control.state = None
    stage.reconcile()
    applied = [about for what, about in stage.kube.take() if what == "apply"]
    assert applied == ["ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"]
    assert stage.condition("orders") == ("Unknown", "ManagersUnavailable")
    stage.reconcile()
    assert not [about for what, about in stage.kube.take() if what == "apply"], "nothing is applied twice"
    stage.reconcile(RELIST_S + 1)
    assert [about for what, about in stage.kube.take() if what == "apply"], "a list forgets applied manifests"


def test_child_changed_by_another_client_is_applied_again(stage: Stage) -> None:
    stage.kube.found[BROKER] = [broker_resource()]
    stage.reconcile()
    stage.kube.take()
    same = {"metadata": {"name": "flotilla-broker", "uid": "u", "generation": 1, "resourceVersion": "7"}}
    stage.reconciler.runner.detect_drift("Service", same, is_deleted=False)
    stage.reconcile()
    assert not [about for what, about in stage.kube.take() if what == "apply"], "its status alone has changed"
    other = {"metadata": {"name": "flotilla-broker", "uid": "u", "generation": 2, "resourceVersion": "8"}}
    stage.reconciler.runner.detect_drift("Service", other, is_deleted=False)
    stage.reconcile()
    assert [about for what, about in stage.kube.take() if what == "apply"] == ["Service"]


def test_resources_of_another_cluster_are_ignored(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource(cluster="other")]
    stage.reconcile()
    assert (stage.kube.take(), stage.control.asked) == ([], [])


def test_error_of_a_retried_topic_is_shown(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.control.refuses = Unavailable("2 of 3 brokers have registered so far")
    stage.reconcile()
    stage.reconcile()
    assert stage.condition("orders") == ("False", "Waiting")


def test_nodes_are_listed_when_a_pod_runs_on_an_unknown_node(stage: Stage) -> None:
    """Replicas that are placed before racks are known are never moved."""

    def looks() -> int:
        return stage.kube.listed.count(NODE)

    stage.kube.found[BROKER] = [broker_resource(rack={"topologyKey": "zone"})]
    stage.reconcile()
    assert looks() == 0, "no pod is on any node"
    stage.cache.update(POD, None, pod(0))
    stage.reconcile()
    stage.reconcile()
    assert looks() == 1
    stage.cache.update(POD, None, pod(1))
    stage.reconcile()
    assert looks() == 2
    stage.kube.found[POD] = [pod(0), pod(1)]
    stage.reconcile(RELIST_S + 1)
    assert looks() == 3, "labels may have changed"


def test_child_that_cannot_be_applied_is_shown_after_repeated_errors(stage: Stage) -> None:
    """A single error of Kubernetes says nothing about brokers."""

    def accepted() -> str:
        shown = stage.kube.found[BROKER][0]["status"]["conditions"]
        return next(f"{one['status']} {one['reason']}" for one in shown if one["type"] == "Accepted")

    stage.kube.found[BROKER] = [broker_resource()]
    stage.kube.refuses["apply"] = Unavailable("etcd has no leader")
    for _ in range(3):
        stage.reconcile(2.0)
        assert accepted() == "True Accepted"
    stage.reconcile(5.0)
    assert accepted() == "False Waiting"
    stage.kube.refuses.clear()
    stage.reconcile(10.0)
    stage.reconcile(0.1)
    assert accepted() == "True Accepted"


def test_restart_of_managers_does_not_change_statuses(stage: Stage) -> None:
    """For some seconds they have few heartbeats: statuses stay until they are complete, or the grace period ends."""
    stage.kube.found[TOPIC] = [topic_resource()]
    there = cluster_state((topic("orders", (0, 1, 2), owner="Topic q/orders"),))
    stage.control.state = there
    stage.reconcile()
    stage.kube.take()
    for seen in (
        None,
        ClusterState(version=8, cluster_id=there.cluster_id, topics=there.topics, brokers=there.brokers),
    ):
        stage.control.state = seen
        stage.reconcile(5)
    assert stage.kube.take() == []
    stage.control.state = there
    stage.reconcile(1)
    assert stage.kube.take() == []
    stage.control.state = None
    stage.reconcile(GRACE_S + 1)
    assert stage.condition("orders") == ("Unknown", "ManagersUnavailable")
    assert stage.kube.take() == [("status", "orders")], "unavailable managers are no event of a topic"


def test_unowned_topics_are_mirrored_and_orphaned_topics_are_released(stage: Stage) -> None:
    stage.control.state = cluster_state((topic("free", (0, 1, 2)), topic("left", (0, 1, 2), owner="Topic q/left")))
    stage.reconcile()
    assert stage.control.asked == [("left", "Topic q/left")]
    assert stage.kube.take() == [("create", "free")]


def test_older_of_two_resources_manages_a_topic(stage: Stage) -> None:
    late = topic_resource("late", topicName="orders")
    late["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    stage.kube.found[TOPIC] = [late, topic_resource()]
    stage.control.state = cluster_state((topic("orders", (0, 1, 2), owner="Topic q/orders"),))
    stage.reconcile()
    assert stage.condition("late") == ("False", "NameConflict")
    assert stage.condition("orders") == ("True", "Ready")


def test_finalizers_are_removed_when_the_namespace_is_deleted(stage: Stage) -> None:
    kept = topic_resource(deletionPolicy="Delete")
    kept["metadata"]["finalizers"] = ["somebody/else", FINALIZER]
    stage.kube.found[TOPIC] = [kept, topic_resource("other")]
    asyncio.run(stage.reconciler.remove_finalizers_if_terminating())
    assert stage.kube.take() == [], "the namespace is not being deleted"
    stage.kube.ends = True
    asyncio.run(stage.reconciler.remove_finalizers_if_terminating())
    assert stage.kube.take() == [("finalizers", ("orders", ("somebody/else",)))]


# -- Pipelines ------------------------------------------------------------------------------------------------


SHARED = {"volume": {"claimName": "shared"}}


def versioned(resource: dict[str, Any], version: int = 1) -> dict[str, Any]:
    return {**resource, "metadata": {**resource["metadata"], "resourceVersion": str(version)}}


def driver_resource(name: str, owner: str, phase: str = "Running", **spec: object) -> dict[str, Any]:
    """A driver pod as the API server returns it."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"uid of {name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": dict(DRIVER_LABELS),
            "annotations": {"flotilla.dev/checkpoint": "claim shared"},
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def test_driver_is_created_one_reconcile_after_its_record(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.reconcile()
    assert [what for what, _ in stage.kube.take() if what != "event"] == ["status"]
    stage.reconcile()
    assert ("create", "stats-driver") in stage.kube.take()


def test_driver_is_not_created_from_an_outdated_cache(stage: Stage) -> None:
    """Never two drivers on one checkpoint: pods are listed again before another one is created."""
    stage.kube.found[PIPELINE] = [versioned(pipeline(mode="Stream", checkpoint=SHARED))]
    stage.reconcile()
    stage.kube.take()
    stage.kube.found[DRIVER_PODS] = [driver_resource("elder-driver", "uid of elder")]  # without an event
    stage.reconcile()
    assert "create" not in [what for what, _ in stage.kube.take()]
    assert stage.condition("stats", of=PIPELINE) == ("False", "CheckpointInUse")


def test_deleted_claim_is_created_again_before_the_next_driver(stage: Stage) -> None:
    """Claims are not watched: nothing reports the deletion of a claim that was applied."""
    stage.kube.found[PIPELINE] = [versioned(pipeline(checkpoint={"volume": {"size": "1Gi"}}))]
    stage.reconcile()
    for _ in range(2):  # the claim and the driver are deleted in between
        stage.kube.take()
        stage.reconcile()
        asked = [one for one in stage.kube.take() if one[0] in {"apply", "create"}]
        assert asked == [("apply", "PersistentVolumeClaim"), ("create", "stats-driver")]


def test_pipeline_suspended_meanwhile_gets_no_driver(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.reconcile()
    stage.kube.take()
    stage.kube.found[PIPELINE][0]["spec"] = {**stage.kube.found[PIPELINE][0]["spec"], "suspend": True}
    stage.kube.found[PIPELINE] = [versioned(stage.kube.found[PIPELINE][0], 9)]
    stage.reconcile()
    assert "create" not in [what for what, _ in stage.kube.take()]


def test_driver_is_not_created_while_drivers_cannot_be_listed(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.reconcile()
    stage.kube.take()
    stage.kube.refuses[DRIVER_PODS] = Unavailable("Kubernetes does not answer")
    stage.reconcile()
    assert "create" not in [what for what, _ in stage.kube.take()]
    del stage.kube.refuses[DRIVER_PODS]
    stage.reconcile()
    assert ("create", "stats-driver") in stage.kube.take()


def test_pipeline_status_is_not_written_over_a_newer_version(stage: Stage) -> None:
    """No attempt is lost: a write over a newer version fails, and the operator observes again."""
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.reconcile()
    newer = {**stage.kube.found[PIPELINE][0]["status"], "attempt": 7, "outcome": "Succeeded"}
    stage.kube.found[PIPELINE][0]["status"] = newer
    stage.kube.found[PIPELINE] = [versioned(stage.kube.found[PIPELINE][0], 9)]
    stage.kube.found[DRIVER_PODS] = [driver_resource("stats-driver", "uid of stats")]
    stage.cache.update(DRIVER_PODS, "ADDED", stage.kube.found[DRIVER_PODS][0])
    stage.kube.take()
    stage.reconcile()
    assert stage.kube.found[PIPELINE][0]["status"] == newer
    assert [what for what, _ in stage.kube.take()] == ["status"]


def test_pipeline_that_cannot_be_planned_does_not_stop_others(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    broken = versioned(pipeline("broken", driver={"memory": 2}))
    stage.kube.found[PIPELINE] = [broken, versioned(pipeline())]
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.reconcile()
    stage.reconcile()
    asked = stage.kube.take()
    assert ("create", "stats-driver") in asked
    assert ("status", "orders") in asked
    assert "planning failed kind=Pipeline name=broken" in caplog.text


def test_planning_error_keeps_the_backoff_of_pipelines(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.reconcile()
    stage.kube.refuses["create"] = Unavailable("etcd has no leader")
    stage.kube.take()
    stage.reconcile()
    assert ("create", "stats-driver") in stage.kube.take()
    with monkeypatch.context() as patch:
        patch.setattr(PipelinePlanner, "plan", fail)
        stage.reconcile(0.1)
    stage.reconcile(0.1)
    assert "create" not in [what for what, _ in stage.kube.take()]
    stage.reconcile(1.0)
    assert ("create", "stats-driver") in stage.kube.take()


@pytest.mark.parametrize("left", ["[" * 4000, "\udcff", "null", '{"failure": 5}', '{"progress": {"time": "5"}}'])
def test_any_termination_message_leaves_other_resources_reconciled(stage: Stage, left: str) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline()), versioned(pipeline("other"))]
    stage.kube.found[TOPIC] = [topic_resource()]
    ended = driver_resource("stats-driver", "uid of stats", "Failed")
    ended["status"]["containerStatuses"] = [{"name": "spark-driver", "state": {"terminated": {"message": left}}}]
    stage.kube.found[DRIVER_PODS] = [ended]
    stage.reconcile()
    stage.reconcile()
    asked = stage.kube.take()
    assert ("status", "orders") in asked
    assert ("create", "other-driver") in asked


def test_foreign_pod_with_the_name_of_a_driver_is_reported(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    foreign = driver_resource("stats-driver", "somebody")
    stage.kube.found[POD] = [{**foreign, "metadata": {**foreign["metadata"], "labels": {}}}]
    for _ in range(3):
        stage.reconcile()
    assert stage.condition("stats", of=PIPELINE) == ("False", "Rejected")
    assert "delete" not in [what for what, _ in stage.kube.take()]


def test_pending_driver_shows_the_warning_of_its_events(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.reconcile()
    pending = driver_resource("stats-driver", "uid of stats", "Pending", nodeName="node")
    pending["metadata"]["annotations"][driver_pod.SPEC_DIGEST] = driver_pod.spec_digest(
        read_pipeline(pipeline(), INSTALLATION)
    )
    stage.kube.found[DRIVER_PODS] = [pending]
    stage.kube.warnings["uid of stats-driver"] = 'FailedMount: configmap "jobs" not found'
    stage.reconcile(RELIST_S + 1)
    stage.reconcile()
    assert stage.condition("stats", of=PIPELINE) == ("False", "NotStarting")
    (one,) = stage.kube.found[PIPELINE]
    assert 'configmap "jobs" not found' in str(one["status"]["conditions"])


def test_pending_executor_shows_the_warning_of_its_events(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.reconcile()
    running = driver_resource("stats-driver", "uid of stats")
    stage.kube.found[DRIVER_PODS] = [running]
    pods = [driver_resource(f"stats-exec-{at}", "uid of stats-driver", "Pending", nodeName="node") for at in (1, 2)]
    stage.kube.found[EXECUTOR_PODS] = pods
    for one in pods:
        stage.kube.warnings[one["metadata"]["uid"]] = 'FailedMount: secret "tokens" not found'
    stage.reconcile(RELIST_S + 1)
    stage.reconcile()
    assert stage.condition("stats", of=PIPELINE) == ("False", "NoExecutors")
    (one,) = stage.kube.found[PIPELINE]
    assert one["status"]["executors"] == 0
    assert 'cannot start: FailedMount: secret "tokens" not found' in str(one["status"]["conditions"])
