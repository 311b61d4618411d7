"""Turns: what is seen is planned for and done; what fails is tried again later, and what is refused is shown."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flotilla_operator.cache import Cache
from flotilla_operator.errors import Away, Refused
from flotilla_operator.kube import BROKER, NODE, PIPELINE, POD, STATEFULSET, TOPIC, Conflict
from flotilla_operator.metrics import Metrics
from flotilla_operator.names import FINALIZER
from flotilla_operator.pipelines import driver
from flotilla_operator.pipelines.wish import DRIVERS, EXECUTORS, read_pipeline
from flotilla_operator.pipelining import DRIVER, EXECUTOR
from flotilla_operator.turns import GRACE_S, REFUSED_S, RELIST_S, Turns
from flotilla_operator.world import World

from .pipelines import INSTALLATION, pipeline
from .worlds import CLUSTER, NOW, broker_resource, pod, topic, topic_resource, world

Asked = list[tuple[str, Any]]


class FakeKube:
    """Kubernetes, as far as turns see it: it has resources, and remembers what was asked of it."""

    namespace = "q"

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {TOPIC: [], BROKER: [], POD: [], STATEFULSET: []}
        self.asked: Asked = []
        self.listed: list[str] = []
        self.ends = False
        self.refuses: dict[str, Exception] = {}
        self.warnings: dict[str, str] = {}

    async def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        kind = DRIVER if labels == DRIVERS else EXECUTOR if labels == EXECUTORS else kind
        self.listed.append(kind)
        if kind in self.refuses:
            raise self.refuses[kind]
        return [dict(one) for one in self.found.get(kind, [])]

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return next((one for one in self.found.get(kind, []) if one["metadata"]["name"] == name), None)

    async def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        self._ask("apply", manifest["kind"])
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "u", "generation": 1}}

    async def create(self, step: Any) -> bool:  # noqa: ANN401 - a step
        name = step.manifest["metadata"]["name"]
        self._ask("create", name)
        return await self.get(step.manifest["kind"], name) is None

    async def remove(self, step: Any) -> None:  # noqa: ANN401
        self._ask("remove", step.name)

    async def evict(self, step: Any) -> bool:  # noqa: ANN401
        self._ask("evict", step.pod)
        return True

    async def set_finalizers(self, _: str, resource: Mapping[str, Any], finalizers: tuple[str, ...]) -> None:
        self._ask("finalizers", (resource["metadata"]["name"], finalizers))

    async def warning(self, uid: str) -> str | None:
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

    async def tell(self, _: str, resource: Mapping[str, Any], step: Any, __: str) -> None:  # noqa: ANN401
        self._ask("tell", (resource["metadata"]["name"], step.reason))

    async def is_ending(self) -> bool:
        return self.ends

    def _ask(self, what: str, about: Any) -> None:  # noqa: ANN401
        self.asked.append((what, about))
        if what in self.refuses:
            raise self.refuses[what]

    def take(self) -> Asked:
        """What was asked since the last time."""
        asked, self.asked = self.asked, []
        return asked


class FakeControl:
    """Managers: they have a world, or are away."""

    def __init__(self) -> None:
        self.world: World | None = world()
        self.asked: list[tuple[str, Any]] = []
        self.refuses: Exception | None = None

    async def look(self) -> World:
        if self.world is None:
            raise Away("nobody answers")
        return self.world

    async def put_topic(self, name: str, body: Mapping[str, Any]) -> None:
        self.asked.append((name, dict(body)))
        if self.refuses is not None:
            raise self.refuses

    async def release_topic(self, name: str, owner: str) -> None:
        self.asked.append((name, owner))


class Stage:
    """Turns, with everything around them."""

    def __init__(self) -> None:
        self.kube, self.control, self.now = FakeKube(), FakeControl(), 0.0
        self.turns = Turns(
            CLUSTER,
            self.kube,  # type: ignore[arg-type]
            self.control,  # type: ignore[arg-type]
            Cache(),
            Metrics(),
            clock=lambda: self.now,
            now=lambda: NOW,
            pipelines=INSTALLATION,
        )

    def turn(self, later_s: float = 0.0) -> None:
        self.now += later_s
        asyncio.run(self.turns.turn())

    def condition(self, name: str, kind: str = "Ready", of: str = TOPIC) -> tuple[str, str]:
        (one,) = [one for one in self.kube.found[of] if one["metadata"]["name"] == name]
        return next((each["status"], each["reason"]) for each in one["status"]["conditions"] if each["type"] == kind)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_topic_is_asked_for_and_shown_and_then_there_is_nothing_to_do(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.turn()
    assert stage.control.asked == [("orders", {"owner": "Topic q/orders"})]
    assert stage.kube.take() == [("status", "orders"), ("tell", ("orders", "BeingMade"))]
    stage.control.world = world((topic("orders", (0, 1, 2), owner="Topic q/orders"),))
    stage.turn()
    assert stage.condition("orders") == ("True", "Ready")
    stage.kube.take()
    stage.turn()
    assert stage.kube.take() == []
    assert len(stage.control.asked) == 1


def test_what_managers_cannot_do_now_is_tried_again_later(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.control.refuses = Away("brokers are away")
    for _ in range(3):
        stage.turn(0.1)
    assert len(stage.control.asked) == 1, "it is left alone for a second"
    stage.turn(1.0)
    assert len(stage.control.asked) == 2


def test_what_managers_refuse_is_shown_and_asked_again_when_something_changes(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.control.refuses = Refused("There are 5000 topics")
    stage.turn()
    stage.turn(5)
    assert stage.condition("orders") == ("False", "Refused")
    assert len(stage.control.asked) == 1
    stage.kube.take()
    stage.turn(REFUSED_S)
    assert stage.kube.take() == [], "the same answer is no news"
    assert len(stage.control.asked) == 2, "or it is mended by something that nobody tells of"
    stage.turn(5)
    stage.kube.found[TOPIC][0]["metadata"] |= {"generation": 4, "resourceVersion": "99"}
    stage.turn(RELIST_S + 1)
    assert len(stage.control.asked) == 3


def test_what_kubernetes_refuses_is_shown_and_not_asked_again_at_once(stage: Stage) -> None:
    stage.kube.found[BROKER] = [broker_resource()]
    stage.kube.refuses["apply"] = Refused("spec.template.spec.containers[0]: Required value")
    for _ in range(5):
        stage.turn(0.1)
    asked = [about for what, about in stage.kube.take() if what == "apply"]
    assert asked == ["ServiceAccount"]
    (shown,) = [one for one in stage.kube.found[BROKER][0]["status"]["conditions"] if one["type"] == "Accepted"]
    assert (shown["status"], shown["reason"]) == ("False", "Refused")


def test_what_is_somebody_elses_is_left_alone_and_that_is_shown(stage: Stage) -> None:
    """A Service of the same name, which was here before."""
    stage.kube.found[BROKER] = [broker_resource()]
    stage.kube.found["Service"] = [{"metadata": {"name": "flotilla-broker", "labels": {"app": "other"}}}]
    stage.turn()
    stage.turn()
    assert [about for what, about in stage.kube.take() if what == "apply"] == ["ServiceAccount", "ConfigMap"]
    (shown,) = [one for one in stage.kube.found[BROKER][0]["status"]["conditions"] if one["type"] == "Accepted"]
    assert (shown["status"], shown["reason"]) == ("False", "Refused")
    assert "there is a Service flotilla-broker that is not ours" in shown["message"]


def test_while_managers_are_away_brokers_are_made_and_topics_are_unknown(stage: Stage) -> None:
    stage.kube.found[TOPIC], stage.kube.found[BROKER] = [topic_resource()], [broker_resource()]
    stage.control.world = None
    stage.turn()
    applied = [about for what, about in stage.kube.take() if what == "apply"]
    assert applied == ["ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"]
    assert stage.condition("orders") == ("Unknown", "ManagersAway")
    stage.turn()
    assert not [about for what, about in stage.kube.take() if what == "apply"], "what was applied is not applied again"
    stage.turn(RELIST_S + 1)
    assert [about for what, about in stage.kube.take() if what == "apply"], "but for now and then"


def test_what_somebody_else_has_changed_is_applied_again(stage: Stage) -> None:
    stage.kube.found[BROKER] = [broker_resource()]
    stage.turn()
    stage.kube.take()
    same = {"metadata": {"name": "flotilla-broker", "uid": "u", "generation": 1, "resourceVersion": "7"}}
    stage.turns.actor.hear("Service", same, is_gone=False)
    stage.turn()
    assert not [about for what, about in stage.kube.take() if what == "apply"], "its status alone has changed"
    other = {"metadata": {"name": "flotilla-broker", "uid": "u", "generation": 2, "resourceVersion": "8"}}
    stage.turns.actor.hear("Service", other, is_gone=False)
    stage.turn()
    assert [about for what, about in stage.kube.take() if what == "apply"] == ["Service"]


def test_resources_for_another_installation_are_left_alone(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource(cluster="other")]
    stage.turn()
    assert (stage.kube.take(), stage.control.asked) == ([], [])


def test_why_managers_have_not_done_it_yet_is_shown(stage: Stage) -> None:
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.control.refuses = Away("2 of 3 brokers have registered so far")
    stage.turn()
    stage.turn()
    assert stage.condition("orders") == ("False", "Waiting")


def test_nodes_are_looked_at_when_a_pod_is_on_a_new_one(stage: Stage) -> None:
    """Replicas that are placed before racks are known do not move any more."""

    def looks() -> int:
        return stage.kube.listed.count(NODE)

    stage.kube.found[BROKER] = [broker_resource(rack={"topologyKey": "zone"})]
    stage.turn()
    assert looks() == 0, "no pod is on any node"
    stage.turns._cache.hear(POD, None, pod(0))
    stage.turn()
    stage.turn()
    assert looks() == 1
    stage.turns._cache.hear(POD, None, pod(1))
    stage.turn()
    assert looks() == 2
    stage.kube.found[POD] = [pod(0), pod(1)]
    stage.turn(RELIST_S + 1)
    assert looks() == 3, "labels may have changed"


def test_a_child_that_cannot_be_applied_now_is_shown_when_it_takes_long(stage: Stage) -> None:
    """Kubernetes may be busy for a moment, which is no news of brokers."""

    def accepted() -> str:
        shown = stage.kube.found[BROKER][0]["status"]["conditions"]
        return next(f"{one['status']} {one['reason']}" for one in shown if one["type"] == "Accepted")

    stage.kube.found[BROKER] = [broker_resource()]
    stage.kube.refuses["apply"] = Away("etcd has no leader")
    for _ in range(3):
        stage.turn(2.0)
        assert accepted() == "True Accepted"
    stage.turn(5.0)
    assert accepted() == "False Waiting"
    stage.kube.refuses.clear()
    stage.turn(10.0)
    stage.turn(0.1)
    assert accepted() == "True Accepted"


def test_managers_that_start_again_do_not_flip_everything(stage: Stage) -> None:
    """They know little for some seconds: nothing is shown until they know more, or it takes long."""
    stage.kube.found[TOPIC] = [topic_resource()]
    there = world((topic("orders", (0, 1, 2), owner="Topic q/orders"),))
    stage.control.world = there
    stage.turn()
    stage.kube.take()
    for seen in (None, World(version=8, cluster_id=there.cluster_id, topics=there.topics, brokers=there.brokers)):
        stage.control.world = seen
        stage.turn(5)
    assert stage.kube.take() == []
    stage.control.world = there
    stage.turn(1)
    assert stage.kube.take() == []
    stage.control.world = None
    stage.turn(GRACE_S + 1)
    assert stage.condition("orders") == ("Unknown", "ManagersAway")
    assert stage.kube.take() == [("status", "orders")], "and no event: it is news of no topic"


def test_topics_that_nobody_owns_show_up_and_those_whose_resource_is_gone_are_let_go(stage: Stage) -> None:
    stage.control.world = world((topic("free", (0, 1, 2)), topic("left", (0, 1, 2), owner="Topic q/left")))
    stage.turn()
    assert stage.control.asked == [("left", "Topic q/left")]
    assert stage.kube.take() == [("create", "free")]


def test_of_two_resources_for_one_topic_the_older_one_counts(stage: Stage) -> None:
    late = topic_resource("late", topicName="orders")
    late["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    stage.kube.found[TOPIC] = [late, topic_resource()]
    stage.control.world = world((topic("orders", (0, 1, 2), owner="Topic q/orders"),))
    stage.turn()
    assert stage.condition("late") == ("False", "NameTaken")
    assert stage.condition("orders") == ("True", "Ready")


def test_in_a_namespace_that_is_being_deleted_topics_are_let_go(stage: Stage) -> None:
    kept = topic_resource(deletionPolicy="Delete")
    kept["metadata"]["finalizers"] = ["somebody/else", FINALIZER]
    stage.kube.found[TOPIC] = [kept, topic_resource("other")]
    asyncio.run(stage.turns.lift_finalizers())
    assert stage.kube.take() == [], "the operator ends, and that is all"
    stage.kube.ends = True
    asyncio.run(stage.turns.lift_finalizers())
    assert stage.kube.take() == [("finalizers", ("orders", ("somebody/else",)))]


# -- Pipelines ------------------------------------------------------------------------------------------------


SHARED = {"volume": {"claimName": "shared"}}


def versioned(resource: dict[str, Any], version: int = 1) -> dict[str, Any]:
    return {**resource, "metadata": {**resource["metadata"], "resourceVersion": str(version)}}


def driver_pod(name: str, owner: str, phase: str = "Running", **spec: object) -> dict[str, Any]:
    """A driver's pod, as the API server gives it."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"uid of {name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": dict(DRIVERS),
            "annotations": {"flotilla.dev/checkpoint": "claim shared"},
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def test_a_driver_is_made_a_turn_after_that_was_written_down(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.turn()
    assert [what for what, _ in stage.kube.take() if what != "tell"] == ["status"]
    stage.turn()
    assert ("create", "stats-driver") in stage.kube.take()


def test_no_driver_is_made_because_of_what_was_seen_before(stage: Stage) -> None:
    """Never two drivers on one checkpoint: a pod that no event has told of is seen before another one is made."""
    stage.kube.found[PIPELINE] = [versioned(pipeline(mode="Stream", checkpoint=SHARED))]
    stage.turn()
    stage.kube.take()
    stage.kube.found[DRIVER] = [driver_pod("elder-driver", "uid of elder")]  # nobody has heard of it
    stage.turn()
    assert "create" not in [what for what, _ in stage.kube.take()]
    assert stage.condition("stats", of=PIPELINE) == ("False", "CheckpointInUse")


def test_a_pipeline_that_was_suspended_just_now_gets_no_driver(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.turn()
    stage.kube.take()
    stage.kube.found[PIPELINE][0]["spec"] = {**stage.kube.found[PIPELINE][0]["spec"], "suspend": True}
    stage.kube.found[PIPELINE] = [versioned(stage.kube.found[PIPELINE][0], 9)]
    stage.turn()
    assert "create" not in [what for what, _ in stage.kube.take()]


def test_no_driver_is_made_while_nobody_can_tell_which_there_are(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.turn()
    stage.kube.take()
    stage.kube.refuses[DRIVER] = Away("Kubernetes does not answer")
    stage.turn()
    assert "create" not in [what for what, _ in stage.kube.take()]
    del stage.kube.refuses[DRIVER]
    stage.turn()
    assert ("create", "stats-driver") in stage.kube.take()


def test_nobody_writes_over_a_status_that_they_have_not_read(stage: Stage) -> None:
    """No attempt is forgotten: an operator that sees something old finds that it is old, and looks again."""
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.turn()
    newer = {**stage.kube.found[PIPELINE][0]["status"], "attempt": 7, "outcome": "Succeeded"}
    stage.kube.found[PIPELINE][0]["status"] = newer
    stage.kube.found[PIPELINE] = [versioned(stage.kube.found[PIPELINE][0], 9)]
    stage.kube.found[DRIVER] = [driver_pod("stats-driver", "uid of stats")]
    stage.turns._cache.hear(DRIVER, "ADDED", stage.kube.found[DRIVER][0])
    stage.kube.take()
    stage.turn()
    assert stage.kube.found[PIPELINE][0]["status"] == newer
    assert [what for what, _ in stage.kube.take()] == ["status"]


def test_one_pipeline_about_which_nothing_can_be_decided_does_not_hold_up_the_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    broken = versioned(pipeline("broken", driver={"memory": "2Ti"}))
    stage.kube.found[PIPELINE] = [broken, versioned(pipeline())]
    stage.kube.found[TOPIC] = [topic_resource()]
    stage.turn()
    stage.turn()
    asked = stage.kube.take()
    assert ("create", "stats-driver") in asked
    assert ("status", "orders") in asked
    assert "Pipeline broken could not be decided" in caplog.text


@pytest.mark.parametrize("left", ["[" * 4000, "\udcff", "null", '{"failure": 5}', '{"progress": {"time": "5"}}'])
def test_whatever_a_driver_leaves_behind_others_are_looked_after(stage: Stage, left: str) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline()), versioned(pipeline("other"))]
    stage.kube.found[TOPIC] = [topic_resource()]
    ended = driver_pod("stats-driver", "uid of stats", "Failed")
    ended["status"]["containerStatuses"] = [{"name": "spark-driver", "state": {"terminated": {"message": left}}}]
    stage.kube.found[DRIVER] = [ended]
    stage.turn()
    stage.turn()
    asked = stage.kube.take()
    assert ("status", "orders") in asked
    assert ("create", "other-driver") in asked


def test_a_pod_of_somebody_else_with_the_name_of_a_driver_is_left_alone_and_told_of(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    foreign = driver_pod("stats-driver", "somebody")
    stage.kube.found[POD] = [{**foreign, "metadata": {**foreign["metadata"], "labels": {}}}]
    for _ in range(3):
        stage.turn()
    assert stage.condition("stats", of=PIPELINE) == ("False", "Refused")
    assert "remove" not in [what for what, _ in stage.kube.take()]


def test_why_a_pod_does_not_start_is_shown_though_only_an_event_tells(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.turn()
    pending = driver_pod("stats-driver", "uid of stats", "Pending", nodeName="node")
    pending["metadata"]["annotations"][driver.OF] = driver.made_of(read_pipeline(pipeline(), INSTALLATION))
    stage.kube.found[DRIVER] = [pending]
    stage.kube.warnings["uid of stats-driver"] = 'FailedMount: configmap "jobs" not found'
    stage.turn(RELIST_S + 1)
    stage.turn()
    assert stage.condition("stats", of=PIPELINE) == ("False", "NotStarting")
    (one,) = stage.kube.found[PIPELINE]
    assert 'configmap "jobs" not found' in str(one["status"]["conditions"])


def test_why_no_executor_starts_is_shown_though_only_an_event_tells(stage: Stage) -> None:
    stage.kube.found[PIPELINE] = [versioned(pipeline())]
    stage.turn()
    running = driver_pod("stats-driver", "uid of stats")
    stage.kube.found[DRIVER] = [running]
    pods = [driver_pod(f"stats-exec-{at}", "uid of stats-driver", "Pending", nodeName="node") for at in (1, 2)]
    stage.kube.found[EXECUTOR] = pods
    for one in pods:
        stage.kube.warnings[one["metadata"]["uid"]] = 'FailedMount: secret "tokens" not found'
    stage.turn(RELIST_S + 1)
    stage.turn()
    assert stage.condition("stats", of=PIPELINE) == ("False", "NoExecutors")
    (one,) = stage.kube.found[PIPELINE]
    assert one["status"]["executors"] == 0
    assert 'waits: FailedMount: secret "tokens" not found' in str(one["status"]["conditions"])
