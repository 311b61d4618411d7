"""Pipelines in a Kubernetes of their own: what plans say is done, and pods come, run and go as tests tell them."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from flotilla_operator.pipelines.executors import count_executors
from flotilla_operator.pipelines.plan import Observed, plan_pipeline
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.states import read_pod
from flotilla_operator.pipelines.wish import Installation
from flotilla_operator.pipelining import find_elders
from flotilla_operator.steps import Apply, Create, Plan, Remove
from flotilla_operator.world import World

INSTALLATION = Installation(
    namespace="q", instance="flotilla", app="flotilla", url="http://flotilla.q.svc:80", image="flotilla-spark:1"
)
BEGAN = datetime.fromisoformat("2026-03-01T12:00:30Z")
CHECKPOINT = {"volume": {"size": "1Gi"}}


def pipeline(name: str = "stats", **spec: object) -> dict[str, Any]:
    """A resource as the API server gives it."""
    said = {"application": {"builtIn": "log_stats"}, "topics": ["logs"], "mode": "Batch", "cluster": "flotilla", **spec}
    metadata = {"name": name, "uid": f"uid of {name}", "generation": 1, "creationTimestamp": "2026-03-01T12:00:30Z"}
    return {"metadata": metadata, "spec": said}


@dataclass
class Kubernetes:
    """One namespace, with a clock."""

    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    executors: list[dict[str, Any]] = field(default_factory=list)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    now: datetime = BEGAN
    made: list[str] = field(default_factory=list)  # the uids of all pods that there ever were
    progress: dict[str, Progress] = field(default_factory=dict)
    world: World | None = None
    refusal: str | None = None
    installation: Installation = INSTALLATION

    def add(self, resource: dict[str, Any]) -> None:
        self.resources[resource["metadata"]["name"]] = resource

    def say(self, name: str, **spec: object) -> None:
        """Somebody changes a resource."""
        found = self.resources[name]
        self.resources[name] = {**found, "spec": {**found["spec"], **spec}}
        self.resources[name]["metadata"] = {**found["metadata"], "generation": found["metadata"]["generation"] + 1}

    def plan(self, name: str) -> Plan:
        observed = Observed(
            installation=self.installation,
            drivers={one["metadata"]["name"]: read_pod(one) for one in self.pods.values()},
            executors=count_executors(map(read_pod, self.executors)),
            rival=find_elders(self.resources.values()).get(name),
            progress=self.progress.get(name),
            world=self.world,
            refusal=self.refusal,
        )
        return plan_pipeline(self.resources[name], observed, self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def turn(self, name: str = "stats", *, writes: bool = True, acts: bool = True) -> Plan:
        """Take one turn; an operator that dies in between does not write, or does not act."""
        plan = self.plan(name)
        if plan.status is not None and writes:
            self.resources[name] = {**self.resources[name], "status": plan.status}
        for step in plan.steps if acts else ():
            match step:
                case Create(manifest):
                    self._create(dict(manifest))
                case Apply(manifest, if_there):
                    if not if_there or manifest["metadata"]["name"] in self.claims:
                        self.claims[manifest["metadata"]["name"]] = dict(manifest)
                case Remove(_, "Pod", pod, uid):
                    if pod in self.pods and self.pods[pod]["metadata"]["uid"] == uid:
                        self.pods[pod]["metadata"]["deletionTimestamp"] = "now"
                case Remove(_, "Pipeline", gone, _):
                    del self.resources[gone]
                case _:
                    raise AssertionError(step)
        return plan

    def settle(self, name: str = "stats") -> dict[str, Any]:
        """Take turns until nothing happens any more; give the status."""
        for _ in range(10):
            before = (self.resources[name].get("status"), json.dumps(self.pods, sort_keys=True))
            self.turn(name)
            if name not in self.resources:
                return {}
            if before == (self.resources[name].get("status"), json.dumps(self.pods, sort_keys=True)):
                break
        status: dict[str, Any] = self.resources[name]["status"]
        return status

    def _create(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if name in self.pods:
            return  # there is one of that name
        uid = f"pod {len(self.made)}"
        self.made.append(uid)
        self.pods[name] = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}, "status": {"phase": "Pending"}}

    def start(self, pod: str = "stats-driver") -> None:
        """A pod runs."""
        started = {"name": "spark-driver", "state": {"running": {"startedAt": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}}}
        self.pods[pod]["status"] = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [started]}

    def run(self, name: str = "stats") -> None:
        """A pipeline is begun, and its driver runs."""
        self.settle(name)
        self.start(f"{name}-driver")
        self.settle(name)

    def end(self, pod: str = "stats-driver", failure: str | None = None, **told: object) -> None:
        """A pod's program ends by itself."""
        before = self.pods[pod]["status"]["containerStatuses"][0]["state"]["running"]
        ended = {
            **before,
            "finishedAt": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "exitCode": int(failure is not None),
            "message": json.dumps({"failure": failure, **told}),
        }
        phase = "Succeeded" if failure is None else "Failed"
        self.pods[pod]["status"] = {
            "phase": phase,
            "containerStatuses": [{"name": "spark-driver", "state": {"terminated": ended}}],
        }

    def vanish(self, pod: str = "stats-driver") -> None:
        """A pod is gone."""
        del self.pods[pod]

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def kubernetes(**spec: object) -> Kubernetes:
    """Have a namespace with one Pipeline in it."""
    found = Kubernetes()
    found.add(pipeline("stats", **spec))
    return found


def ready(status: dict[str, Any]) -> tuple[str, str, str]:
    """Read the condition that says how it is."""
    (one,) = [one for one in status["conditions"] if one["type"] == "Ready"]
    return one["status"], one["reason"], one["message"]
