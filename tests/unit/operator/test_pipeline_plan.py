"""Plans of Pipeline resources: attempts, outcomes, schedules, and at most one driver for each checkpoint."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flotilla_operator.cluster_state import ClusterState, Partition, Replica, Report, Topic
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.states import BACKOFF_RESET_S

from .pipeline_cluster import CHECKPOINT, INSTALLATION, Kubernetes, kubernetes, pipeline, ready


def stream(**spec: object) -> Kubernetes:
    return kubernetes(mode="Stream", checkpoint=CHECKPOINT, **spec)


def test_batch_runs_once() -> None:
    cluster = kubernetes()
    assert cluster.settle()["phase"] == "Starting"
    cluster.start()
    assert cluster.settle()["phase"] == "Running"
    cluster.end()
    status = cluster.settle()
    assert (status["phase"], status["run"], status["attempt"]) == ("Succeeded", 1, 1)
    assert ready(status) == ("True", "Succeeded", "Attempt 1 of run 1 succeeded")
    cluster.wait(100_000)
    cluster.settle()
    assert cluster.made == ["pod 0"]


def executor(number: int, phase: str, driver: str = "pod 0", **status: object) -> dict[str, Any]:
    """An executor pod."""
    metadata = {"name": f"stats-exec-{number}", "uid": f"executor {number}"}
    owner = {"uid": driver, "controller": True}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "status": {"phase": phase, **status}}


def test_executors_are_counted_and_missing_ones_are_explained() -> None:
    """A stream without any executor makes no progress: it must not be Ready."""
    cluster = stream(executors={"instances": 2})
    cluster.run()
    assert "executors" not in cluster.settle(), "it has not asked for any yet"
    no_room = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}]
    cluster.executors = [executor(1, "Pending", conditions=no_room), executor(2, "Pending", conditions=no_room)]
    status = cluster.settle()
    assert (status["phase"], status["executors"]) == ("Running", 0)
    why = "stats-exec-1 cannot start: 0/1 nodes are available: 1 Insufficient cpu."
    assert ready(status) == ("False", "NoExecutors", f"Attempt 1 of run 1 has no running executors: {why}")
    cluster.executors[0]["status"] = {"phase": "Running"}
    status = cluster.settle()
    assert status["executors"] == 1
    assert ready(status)[:2] == ("True", "Running")
    assert "with fewer executors than requested: stats-exec-2 cannot start" in ready(status)[2]
    cluster.executors[1]["status"] = {"phase": "Running"}
    assert ready(cluster.settle()) == ("True", "Running", "Attempt 1 of run 1 is running")


def test_executors_of_other_drivers_and_ending_ones_are_not_counted() -> None:
    cluster = stream(executors={"instances": 2})
    cluster.run()
    leaving = executor(1, "Running")
    leaving["metadata"]["deletionTimestamp"] = "now"
    cluster.executors = [leaving, executor(2, "Failed"), executor(3, "Running", driver="another")]
    assert "executors" not in cluster.settle()
    not_pulled = {"name": "spark-executor", "state": {"waiting": {"reason": "ErrImagePull"}}}
    cluster.executors = [executor(4, "Pending", containerStatuses=[not_pulled])]
    assert ready(cluster.settle())[1:] == (
        "NoExecutors",
        "Attempt 1 of run 1 has no running executors: stats-exec-4 cannot start: ErrImagePull",
    )


def test_plan_acts_only_on_the_recorded_state() -> None:
    """An operator may crash at any time: a decision is in the status, or it was not made."""
    cluster = kubernetes()
    assert cluster.reconcile().actions == ()
    assert cluster.resources["stats"]["status"]["attempt"] == 1
    assert len(cluster.reconcile().actions) == 1


def test_failed_batch_is_retried_with_backoff_until_its_limit() -> None:
    cluster = kubernetes(restart={"retries": 2, "backoffSeconds": 10, "backoffMaxSeconds": 15})
    for attempt, wait in ((1, 10), (2, 15)):
        cluster.settle()
        cluster.start()
        cluster.end(failure="no room")
        status = cluster.settle()
        assert (status["phase"], status["attempt"], status["failures"]) == ("Waiting", attempt, attempt)
        assert ready(status)[1] == "BackingOff"
        assert "no room" in ready(status)[2]
        cluster.wait(wait - 1)
        cluster.settle()
        assert len(cluster.made) == attempt
        cluster.wait(1)
        cluster.settle()  # the old pod is deleted
        cluster.vanish()
    cluster.settle()
    cluster.start()
    cluster.end(failure="no room at all")
    status = cluster.settle()
    assert (status["phase"], status["attempt"], status["outcome"]) == ("Failed", 3, "Failed")
    assert ready(status) == ("False", "Failed", "Attempt 3 of run 1 failed: no room at all")
    cluster.wait(100_000)
    cluster.settle()
    assert len(cluster.made) == 3


@pytest.mark.parametrize(
    ("policy", "failure", "phase"),
    [
        ("Never", "no room", "Failed"),
        ("OnFailure", None, "Succeeded"),
        ("OnFailure", "no room", "Waiting"),
        ("Always", None, "Waiting"),
        ("Always", "no room", "Waiting"),
    ],
)
def test_restart_policy_decides_whether_a_stream_restarts(policy: str, failure: str | None, phase: str) -> None:
    cluster = stream(restart={"policy": policy})
    cluster.run()
    cluster.end(failure=failure)
    assert cluster.settle()["phase"] == phase


def test_stream_is_retried_without_limit_and_a_steady_run_resets_failures() -> None:
    cluster = stream(restart={"backoffSeconds": 1, "backoffMaxSeconds": 1})
    for _ in range(20):
        cluster.settle()
        cluster.start()
        cluster.end(failure="no room")
        cluster.wait(1)
        cluster.settle()
        cluster.wait(1)
        cluster.settle()
        cluster.vanish()
    cluster.settle()
    cluster.start()
    assert cluster.settle()["failures"] == 20
    cluster.wait(BACKOFF_RESET_S)
    cluster.end(failure="no room")
    assert cluster.settle()["failures"] == 1


def test_long_batch_does_not_reset_failures() -> None:
    cluster = kubernetes(restart={"retries": 1, "backoffSeconds": 1})
    for _ in range(2):
        cluster.run()
        cluster.wait(10 * BACKOFF_RESET_S)
        cluster.end(failure="no room")
        cluster.settle()
        cluster.wait(1)
        cluster.settle()
        if "deletionTimestamp" in cluster.pods["stats-driver"]["metadata"]:
            cluster.vanish()
    assert cluster.settle()["phase"] == "Failed"
    assert len(cluster.made) == 2


def test_next_attempt_waits_until_the_previous_pod_is_gone() -> None:
    """The driver on a lost node may still run, so no other driver starts."""
    cluster = stream()
    cluster.run()
    cluster.pods["stats-driver"]["metadata"]["deletionTimestamp"] = "now"
    assert cluster.settle()["phase"] == "Stopping"
    cluster.wait(100_000)
    cluster.settle()
    assert cluster.made == ["pod 0"]
    cluster.vanish()
    status = cluster.settle()
    assert status["failure"] == "The driver pod disappeared: it was deleted, or its node was lost"
    cluster.wait(10)
    cluster.settle()
    assert cluster.made == ["pod 0", "pod 1"]


def test_suspended_pipeline_resumes_without_a_failure() -> None:
    cluster = stream()
    cluster.run()
    cluster.change_spec("stats", suspend=True)
    assert cluster.settle()["phase"] == "Stopping"
    assert "deletionTimestamp" in cluster.pods["stats-driver"]["metadata"]
    cluster.end(failure="it was terminated")
    cluster.settle()
    cluster.vanish()
    status = cluster.settle()
    assert (status["phase"], status["failures"], status.get("failure")) == ("Suspended", 0, None)
    cluster.change_spec("stats", suspend=False)
    status = cluster.settle()
    assert (status["phase"], status["run"], status["attempt"]) == ("Starting", 1, 2)
    assert len(cluster.made) == 2


def test_batch_that_succeeds_while_suspended_is_complete() -> None:
    cluster = kubernetes()
    cluster.run()
    cluster.change_spec("stats", suspend=True)
    cluster.settle()
    cluster.end()
    cluster.settle()
    cluster.vanish()
    cluster.change_spec("stats", suspend=False)
    status = cluster.settle()
    assert (status["phase"], status.get("stopping")) == ("Succeeded", None)
    assert len(cluster.made) == 1


def test_outcome_of_an_ended_pod_counts_after_its_deletion() -> None:
    for failure, phase in ((None, "Succeeded"), ("no room", "Failed")):
        cluster = kubernetes(restart={"policy": "Never"})
        cluster.run()
        cluster.end(failure=failure)
        cluster.pods["stats-driver"]["metadata"]["deletionTimestamp"] = "now"
        status = cluster.settle()
        assert (status["phase"], status.get("failure")) == (phase, failure)


def test_drivers_stop_while_spark_is_disabled() -> None:
    cluster = stream()
    cluster.run()
    cluster.installation = replace(INSTALLATION, image=None)
    assert cluster.settle()["phase"] == "Stopping"
    cluster.vanish()
    status = cluster.settle()
    assert (status["phase"], ready(status)[:2]) == ("Suspended", ("False", "SparkDisabled"))
    cluster.installation = INSTALLATION
    assert cluster.settle()["phase"] == "Starting"
    assert len(cluster.made) == 2


def test_pending_batch_is_replaced_when_its_spec_changes() -> None:
    cluster = kubernetes(image="no-such-image")
    cluster.settle()
    cluster.change_spec("stats", image="flotilla-spark:1")
    cluster.settle()
    assert "deletionTimestamp" in cluster.pods["stats-driver"]["metadata"]
    cluster.vanish()
    cluster.settle()
    assert cluster.pods["stats-driver"]["spec"]["containers"][0]["image"] == "flotilla-spark:1"


def test_failed_batch_is_retried_when_its_spec_changes() -> None:
    cluster = kubernetes(restart={"policy": "Never"})
    cluster.run()
    cluster.end(failure="OOMKilled")
    assert cluster.settle()["phase"] == "Failed"
    cluster.change_spec("stats", driver={"memory": "4Gi"})
    cluster.settle()
    cluster.vanish()
    status = cluster.settle()
    assert (status["phase"], status["run"], status["attempt"], status["failures"]) == ("Starting", 1, 2, 0)
    cluster.run()
    cluster.end()
    cluster.settle()
    cluster.change_spec("stats", driver={"memory": "8Gi"})
    assert cluster.settle()["phase"] == "Succeeded"
    assert len(cluster.made) == 2


def test_driver_of_a_suspended_pipeline_stops_despite_an_invalid_spec() -> None:
    cluster = stream()
    cluster.run()
    cluster.change_spec("stats", sparkConf={"spark.master": "elsewhere"})
    status = cluster.settle()
    assert ready(status)[1] == "SpecInvalid"
    assert {one["observedGeneration"] for one in status["conditions"]} == {status["observedGeneration"]}
    assert "deletionTimestamp" not in cluster.pods["stats-driver"]["metadata"]
    cluster.change_spec("stats", suspend=True)
    cluster.settle()
    assert "deletionTimestamp" in cluster.pods["stats-driver"]["metadata"]


def test_pipeline_created_suspended_does_not_start() -> None:
    cluster = stream(suspend=True)
    assert cluster.settle()["phase"] == "Suspended"
    assert cluster.made == []


def test_changed_spec_restarts_a_stream_but_not_a_running_batch() -> None:
    for mode, replaced in (("Stream", True), ("Batch", False)):
        cluster = kubernetes(mode=mode, checkpoint=CHECKPOINT)
        cluster.run()
        cluster.change_spec("stats", arguments=["--window", "5 minutes"])
        cluster.settle()
        assert ("deletionTimestamp" in cluster.pods["stats-driver"]["metadata"]) == replaced
        if replaced:
            cluster.vanish()
        else:
            cluster.end()
        cluster.settle()
        if not replaced:
            cluster.vanish()
        status = cluster.settle()
        assert (status["phase"], status["run"], status["attempt"], status["failures"]) == ("Starting", 2, 1, 0)
        assert cluster.pods["stats-driver"]["spec"]["containers"][0]["args"][-1] == "5 minutes"


def test_stream_that_becomes_a_batch_is_restarted() -> None:
    """By its new spec it is a batch, which runs to its end; by its driver it is a stream, which has none."""
    cluster = stream()
    cluster.run()
    cluster.change_spec("stats", mode="Batch", schedule="0 3 * * *")
    cluster.settle()
    assert "deletionTimestamp" in cluster.pods["stats-driver"]["metadata"]
    cluster.end()  # a terminated stream may report success
    cluster.settle()
    cluster.vanish()
    status = cluster.settle()
    assert (status["phase"], status["attempt"], status["failures"]) == ("Starting", 2, 0)
    assert "--once" in cluster.pods["stats-driver"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_driver_has_ended_while_a_sidecar_runs(code: int, phase: str) -> None:
    """For example the sidecar of a service mesh."""
    cluster = kubernetes(restart={"policy": "Never"})
    cluster.run()
    ended = {"name": "spark-driver", "state": {"terminated": {"exitCode": code, "finishedAt": "2026-03-01T12:01:00Z"}}}
    beside = {"name": "proxy", "state": {"running": {"startedAt": "2026-03-01T12:00:30Z"}}}
    cluster.pods["stats-driver"]["status"] = {"phase": "Running", "containerStatuses": [beside, ended]}
    status = cluster.settle()
    assert status["phase"] == phase
    assert ("failure" in status) == bool(code)


def test_finished_batch_ignores_changes_of_other_fields() -> None:
    cluster = kubernetes()
    cluster.settle()
    cluster.start()
    cluster.end()
    cluster.settle()
    cluster.change_spec(
        "stats", restart={"policy": "Never"}, timeToLiveSeconds=1000, executors={"memory": "4Gi"}, driver={}
    )
    cluster.change_spec(
        "stats", token={"secretName": "another"}, template={"labels": {"team": "logs"}}, imagePullPolicy="Always"
    )
    cluster.change_spec("stats", suspend=True)
    cluster.settle()
    cluster.change_spec("stats", suspend=False)
    assert cluster.settle()["phase"] == "Succeeded"
    assert len(cluster.made) == 1


def test_schedule_starts_runs_and_makes_up_missed_ones_once() -> None:
    cluster = kubernetes(schedule="*/10 * * * *")
    status = cluster.settle()
    assert (status["phase"], status["nextRunAt"], ready(status)[0]) == ("Waiting", "2026-03-01T12:10:00Z", "True")
    cluster.wait(9 * 60 + 29)
    cluster.settle()
    assert cluster.made == []
    cluster.wait(1)
    assert cluster.settle()["dueAt"] == "2026-03-01T12:10:00Z"
    assert cluster.made == ["pod 0"]
    cluster.start()
    cluster.wait(35 * 60)  # three more are due meanwhile
    cluster.end()
    cluster.settle()
    cluster.vanish()
    status = cluster.settle()
    assert (status["run"], status["dueAt"]) == (2, "2026-03-01T12:40:00Z")
    cluster.start()
    cluster.end()
    cluster.settle()
    assert cluster.settle()["phase"] == "Waiting"
    assert len(cluster.made) == 2


def test_finished_pipeline_is_deleted_after_its_time_to_live() -> None:
    cluster = kubernetes(timeToLiveSeconds=60)
    cluster.settle()
    cluster.start()
    cluster.end()
    cluster.settle()
    cluster.wait(59)
    cluster.settle()
    assert "stats" in cluster.resources
    cluster.wait(1)
    cluster.settle()
    assert "stats" not in cluster.resources


def test_claim_is_kept_unless_its_policy_is_delete() -> None:
    for policy, owners in (("Retain", 0), ("Delete", 1)):
        cluster = kubernetes(checkpoint={**CHECKPOINT, "deletionPolicy": policy})
        cluster.settle()
        assert len(cluster.claims["stats-checkpoint"]["metadata"]["ownerReferences"]) == owners


def test_claim_policy_can_change_while_running() -> None:
    """The policy at the time of the deletion counts: Retain keeps the checkpoint, whatever it was before."""
    cluster = kubernetes(checkpoint={**CHECKPOINT, "deletionPolicy": "Delete"})
    cluster.run()
    cluster.change_spec("stats", checkpoint={**CHECKPOINT, "deletionPolicy": "Retain"})
    cluster.settle()
    assert cluster.claims["stats-checkpoint"]["metadata"]["ownerReferences"] == []


def off(cluster: Kubernetes) -> None:
    """Disable Spark."""
    cluster.installation = replace(INSTALLATION, image=None)


def broken(cluster: Kubernetes) -> None:
    """Make the spec invalid."""
    cluster.change_spec("stats", sparkConf={"spark.master": "local"})


def in_use(cluster: Kubernetes) -> None:
    """Let a driver of a deleted Pipeline use the checkpoint."""
    cluster.pods["other-driver"] = {
        **cluster.pods["stats-driver"],
        "metadata": dict(cluster.pods["stats-driver"]["metadata"]),
    }
    cluster.pods["other-driver"]["metadata"] |= {"name": "other-driver", "ownerReferences": []}


@pytest.mark.parametrize("happens", [off, broken, in_use])
def test_claim_policy_can_change_while_nothing_can_run(happens: Callable[[Kubernetes], None]) -> None:
    cluster = stream()
    cluster.change_spec("stats", checkpoint={**CHECKPOINT, "deletionPolicy": "Delete"})
    cluster.run()
    happens(cluster)
    if "deletionTimestamp" in cluster.pods["stats-driver"]["metadata"] or happens is in_use:
        cluster.vanish()
    cluster.settle()
    assert cluster.claims["stats-checkpoint"]["metadata"]["ownerReferences"] != []
    cluster.change_spec("stats", checkpoint={**CHECKPOINT, "deletionPolicy": "Retain"})
    cluster.settle()
    assert cluster.claims["stats-checkpoint"]["metadata"]["ownerReferences"] == []


def test_deleted_claim_of_an_idle_pipeline_is_not_recreated() -> None:
    cluster = kubernetes(checkpoint=CHECKPOINT)
    cluster.settle()
    cluster.start()
    cluster.end()
    cluster.settle()
    del cluster.claims["stats-checkpoint"]  # a user has deleted it
    cluster.settle()
    assert cluster.claims == {}


def test_stream_that_ends_cleanly_on_suspension_resumes() -> None:
    cluster = stream(restart={"policy": "OnFailure"})
    cluster.run()
    cluster.change_spec("stats", suspend=True)
    cluster.settle()
    cluster.end()
    cluster.settle()
    cluster.vanish()
    assert cluster.settle()["phase"] == "Suspended"
    cluster.change_spec("stats", suspend=False)
    assert cluster.settle()["phase"] == "Starting"


def test_schedule_added_to_a_finished_batch_starts_at_the_next_time() -> None:
    cluster = kubernetes()
    cluster.settle()
    cluster.start()
    cluster.wait(3600)
    cluster.end()
    cluster.settle()
    cluster.change_spec("stats", schedule="0 3 * * *")
    status = cluster.settle()
    assert (status["phase"], status["nextRunAt"], len(cluster.made)) == ("Waiting", "2026-03-02T03:00:00Z", 1)
    cluster.change_spec("stats", schedule=None)
    cluster.settle()
    assert len(cluster.made) == 1


def test_older_of_two_pipelines_uses_a_shared_checkpoint() -> None:
    cluster = Kubernetes()
    shared = {"volume": {"claimName": "shared"}}
    cluster.add(pipeline("elder", mode="Stream", checkpoint=shared))
    cluster.add(pipeline("younger", mode="Stream", checkpoint=shared))
    cluster.settle("younger")
    cluster.settle("elder")
    assert list(cluster.pods) == ["elder-driver"]
    status = cluster.settle("younger")
    assert ready(status) == (
        "False",
        "CheckpointInUse",
        "The checkpoint is used by the older Pipeline elder; delete that Pipeline, or set another checkpoint",
    )
    del cluster.resources["elder"]  # its pod takes a while to go
    status = cluster.settle("younger")
    assert ready(status) == ("False", "CheckpointInUse", "The checkpoint is still in use by pod elder-driver")
    cluster.vanish("elder-driver")
    cluster.settle("younger")
    assert list(cluster.pods) == ["younger-driver"]


def test_pipeline_waits_for_the_pod_of_its_predecessor() -> None:
    cluster = stream()
    cluster.settle()
    cluster.resources["stats"] = {**pipeline(mode="Stream", checkpoint=CHECKPOINT)}
    cluster.resources["stats"]["metadata"]["uid"] = "another"
    assert ready(cluster.settle())[1] == "NameConflict"
    cluster.vanish()
    assert cluster.settle()["phase"] == "Starting"
    assert len(cluster.made) == 2


def test_offsets_and_lag_are_kept_without_a_driver() -> None:
    replica = Replica(topic_id="t", partition=0, epoch=1, leads=True, next_offset=100)
    there = Topic(id="t", name="logs", state="ready", partitions=(Partition(0, 1, ("b0",)),))
    known = ClusterState(version=1, cluster_id="c", topics=(there,), reports={"b0": Report(0.0, replicas=(replica,))})
    cluster = stream()
    cluster.state = known
    cluster.settle()
    cluster.start()
    report = Progress(
        time="2026-03-01T12:01:00Z", batch=3, records=7, records_per_second=2, offsets={"logs": {"0": 60}}
    )
    cluster.progress["stats"] = report
    status = cluster.settle()
    assert (status["offsets"], status["lag"]) == ({"logs": {"0": 60}}, 40)
    assert status["lastProgress"] == {"time": report.time, "batch": 3, "records": 7, "recordsPerSecond": 2}
    cluster.progress.clear()
    last = {"time": report.time, "batch": 4, "offsets": {"logs": {"0": 90}}}
    cluster.end(failure="no room", progress=last)
    assert cluster.settle()["lag"] == 10
    cluster.vanish()
    assert cluster.settle()["offsets"] == {"logs": {"0": 90}}
    cluster.state = ClusterState(version=1, cluster_id="c", topics=(there,), reports={})  # restarted managers
    assert cluster.settle()["lag"] == 10


def test_termination_message_without_offsets_keeps_the_known_ones() -> None:
    cluster = stream()
    cluster.settle()
    cluster.start()
    cluster.progress["stats"] = Progress(time="2026-03-01T12:01:00Z", offsets={"logs": {"0": 60}})
    cluster.settle()
    cluster.progress.clear()
    cluster.end(failure="no room", progress={"time": "2026-03-01T12:02:00Z", "batch": 9, "offsets": {}})
    status = cluster.settle()
    assert (status["offsets"], status["lastProgress"]["batch"]) == ({"logs": {"0": 60}}, 9)


@pytest.mark.parametrize("seed", range(300))
def test_checkpoint_never_has_two_drivers_and_attempts_are_counted_once(seed: int) -> None:
    """In any order of events, and with crashes of the operator between writing and acting."""
    rng = random.Random(seed)
    cluster = Kubernetes()
    for name in ("a", "b"):
        shared = {"volume": {"claimName": "shared"}}
        cluster.add(pipeline(name, mode="Stream", checkpoint=shared, restart={"backoffSeconds": 5}))
    for _ in range(150):
        something_happens(cluster, rng)
        running = [one for one in cluster.pods.values() if one["status"]["phase"] in {"Pending", "Running"}]
        assert len(running) <= 1
    for name in "ab":
        assert (cluster.resources[name].get("status") or {}).get("attempt", 0) <= len(cluster.made) + 1


def something_happens(cluster: Kubernetes, rng: random.Random) -> None:
    name = rng.choice("ab")
    pod = f"{name}-driver"
    state = cluster.pods.get(pod, {}).get("status", {}).get("phase")
    match rng.randrange(9):
        case 4:
            cluster.wait(rng.choice((1, 5, 60)))
        case 5 if state == "Pending":
            cluster.start(pod)
        case 6 if state == "Running":
            cluster.end(pod, failure="no room")
        case 7 if state is not None and (rng.random() < 0.2 or "deletionTimestamp" in str(cluster.pods[pod])):
            cluster.vanish(pod)
        case 8:
            cluster.change_spec(name, suspend=rng.random() < 0.3)
        case _:
            cluster.reconcile(name, writes=rng.random() < 0.8, acts=rng.random() < 0.8)
