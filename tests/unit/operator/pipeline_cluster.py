"""A fake of Kubernetes for Pipelines: it executes plans, and tests control its pods."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.pipeline_planner import find_checkpoint_conflicts
from flotilla_operator.pipelines.phase import count_executors
from flotilla_operator.pipelines.plan import PipelineObservation, plan_pipeline
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.spec import PipelineInstallation
from flotilla_operator.pipelines.states import read_pod
from flotilla_operator.plans import Apply, Create, Delete, Plan

INSTALLATION = PipelineInstallation(
    namespace="q",
    instance="flotilla",
    app="flotilla",
    url="http://flotilla.q.svc:80",
    image="flotilla-spark:1",
    image_pull_policy="IfNotPresent",
    image_pull_secrets=(),
    driver_account="flotilla-spark",
    executor_account="default",
    tls_secret=None,
)
BEGAN = datetime.fromisoformat("2026-03-01T12:00:30Z")
CHECKPOINT = {"volume": {"size": "1Gi"}}


def pipeline(name: str = "stats", **spec: object) -> dict[str, Any]:
    """A resource as the API server returns it."""
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
    state: ClusterState | None = None
    rejection: str | None = None
    installation: PipelineInstallation = INSTALLATION

    def add(self, resource: dict[str, Any]) -> None:
        self.resources[resource["metadata"]["name"]] = resource

    def change_spec(self, name: str, **spec: object) -> None:
        """Change the spec of a resource."""
        found = self.resources[name]
        self.resources[name] = {**found, "spec": {**found["spec"], **spec}}
        self.resources[name]["metadata"] = {**found["metadata"], "generation": found["metadata"]["generation"] + 1}

    def plan(self, name: str) -> Plan:
        observed = PipelineObservation(
            installation=self.installation,
            drivers={one["metadata"]["name"]: read_pod(one) for one in self.pods.values()},
            executors=count_executors(map(read_pod, self.executors)),
            conflict=find_checkpoint_conflicts(self.resources.values()).get(name),
            progress=self.progress.get(name),
            state=self.state,
            rejection=self.rejection,
        )
        return plan_pipeline(self.resources[name], observed, self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def reconcile(self, name: str = "stats", *, writes: bool = True, acts: bool = True) -> Plan:
        """Reconcile once; an operator that crashes does not write, or does not act."""
        plan = self.plan(name)
        if plan.status is not None and writes:
            self.resources[name] = {**self.resources[name], "status": plan.status}
        for action in plan.actions if acts else ():
            match action:
                case Create(manifest):
                    self._create(dict(manifest))
                case Apply(manifest, if_exists):
                    if not if_exists or manifest["metadata"]["name"] in self.claims:
                        self.claims[manifest["metadata"]["name"]] = dict(manifest)
                case Delete("Pod", pod, uid):
                    if pod in self.pods and self.pods[pod]["metadata"]["uid"] == uid:
                        self.pods[pod]["metadata"]["deletionTimestamp"] = "now"
                case Delete("Pipeline", gone, _):
                    del self.resources[gone]
                case _:
                    raise AssertionError(action)
        return plan

    def settle(self, name: str = "stats") -> dict[str, Any]:
        """Reconcile until nothing changes; return the status."""
        for _ in range(10):
            before = (self.resources[name].get("status"), json.dumps(self.pods, sort_keys=True))
            self.reconcile(name)
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
        """Start a pod."""
        started = {"name": "spark-driver", "state": {"running": {"startedAt": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}}}
        self.pods[pod]["status"] = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [started]}

    def run(self, name: str = "stats") -> None:
        """Start a Pipeline and its driver."""
        self.settle(name)
        self.start(f"{name}-driver")
        self.settle(name)

    def end(self, pod: str = "stats-driver", failure: str | None = None, **report: object) -> None:
        """End the program of a pod."""
        before = self.pods[pod]["status"]["containerStatuses"][0]["state"]["running"]
        ended = {
            **before,
            "finishedAt": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "exitCode": int(failure is not None),
            "message": json.dumps({"failure": failure, **report}),
        }
        phase = "Succeeded" if failure is None else "Failed"
        self.pods[pod]["status"] = {
            "phase": phase,
            "containerStatuses": [{"name": "spark-driver", "state": {"terminated": ended}}],
        }

    def vanish(self, pod: str = "stats-driver") -> None:
        """Remove a pod."""
        del self.pods[pod]

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def kubernetes(**spec: object) -> Kubernetes:
    """Make a namespace with one Pipeline."""
    found = Kubernetes()
    found.add(pipeline("stats", **spec))
    return found


def ready(status: dict[str, Any]) -> tuple[str, str, str]:
    """Return the condition Ready."""
    (one,) = [one for one in status["conditions"] if one["type"] == "Ready"]
    return one["status"], one["reason"], one["message"]
