"""What is done about Pipeline resources: attempts, their ends, schedules; and that no checkpoint has two drivers."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.states import STEADY_S
from flotilla_operator.world import Partition, Replica, Report, Topic, World

from .pipelines import CHECKPOINT, INSTALLATION, Kubernetes, kubernetes, pipeline, ready


def stream(**spec: object) -> Kubernetes:
    return kubernetes(mode="Stream", checkpoint=CHECKPOINT, **spec)


def test_a_batch_is_run_once() -> None:
    world = kubernetes()
    assert world.settle()["phase"] == "Starting"
    world.start()
    assert world.settle()["phase"] == "Running"
    world.end()
    status = world.settle()
    assert (status["phase"], status["run"], status["attempt"]) == ("Succeeded", 1, 1)
    assert ready(status) == ("True", "Succeeded", "attempt 1 of run 1 has succeeded")
    world.wait(100_000)
    world.settle()
    assert world.made == ["pod 0"]


def executor(number: int, phase: str, driver: str = "pod 0", **status: object) -> dict[str, Any]:
    """An executor's pod."""
    metadata = {"name": f"stats-exec-{number}", "uid": f"executor {number}"}
    owner = {"uid": driver, "controller": True}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "status": {"phase": phase, **status}}


def test_executors_are_counted_and_why_there_are_none_is_told() -> None:
    """Without a single one a stream does nothing, for ever: that must not look well."""
    world = stream(executors={"instances": 2})
    world.run()
    assert "executors" not in world.settle(), "it has not asked for any yet"
    no_room = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}]
    world.executors = [executor(1, "Pending", conditions=no_room), executor(2, "Pending", conditions=no_room)]
    status = world.settle()
    assert (status["phase"], status["executors"]) == ("Running", 0)
    told = "attempt 1 of run 1 has no executors: stats-exec-1 waits: 0/1 nodes are available: 1 Insufficient cpu."
    assert ready(status) == ("False", "NoExecutors", told)
    world.executors[0]["status"] = {"phase": "Running"}
    status = world.settle()
    assert status["executors"] == 1
    assert ready(status)[:2] == ("True", "Running")
    assert "with fewer executors than it could have: stats-exec-2 waits" in ready(status)[2]
    world.executors[1]["status"] = {"phase": "Running"}
    assert ready(world.settle()) == ("True", "Running", "attempt 1 of run 1")


def test_executors_of_another_driver_and_those_that_leave_do_not_count() -> None:
    world = stream(executors={"instances": 2})
    world.run()
    leaving = executor(1, "Running")
    leaving["metadata"]["deletionTimestamp"] = "now"
    world.executors = [leaving, executor(2, "Failed"), executor(3, "Running", driver="another")]
    assert "executors" not in world.settle()
    not_pulled = {"name": "spark-executor", "state": {"waiting": {"reason": "ErrImagePull"}}}
    world.executors = [executor(4, "Pending", containerStatuses=[not_pulled])]
    assert ready(world.settle())[1:] == (
        "NoExecutors",
        "attempt 1 of run 1 has no executors: stats-exec-4 waits: ErrImagePull",
    )


def test_nothing_is_done_before_it_is_written_down() -> None:
    """An operator that dies at any moment comes to the same: a decision is in the status, or it was not made."""
    world = kubernetes()
    assert world.turn().steps == ()
    assert world.resources["stats"]["status"]["attempt"] == 1
    assert len(world.turn().steps) == 1


def test_a_failed_batch_is_tried_again_with_longer_and_longer_pauses_and_then_given_up() -> None:
    world = kubernetes(restart={"retries": 2, "backoffSeconds": 10, "backoffMaxSeconds": 15})
    for attempt, wait in ((1, 10), (2, 15)):
        world.settle()
        world.start()
        world.end(failure="no room")
        status = world.settle()
        assert (status["phase"], status["attempt"], status["failures"]) == ("Waiting", attempt, attempt)
        assert ready(status)[1] == "BackingOff"
        assert "no room" in ready(status)[2]
        world.wait(wait - 1)
        world.settle()
        assert len(world.made) == attempt
        world.wait(1)
        world.settle()  # the old pod is told to go
        world.vanish()
    world.settle()
    world.start()
    world.end(failure="no room at all")
    status = world.settle()
    assert (status["phase"], status["attempt"], status["outcome"]) == ("Failed", 3, "Failed")
    assert ready(status) == ("False", "Failed", "attempt 3 of run 1 has failed: no room at all")
    world.wait(100_000)
    world.settle()
    assert len(world.made) == 3


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
def test_the_policy_says_whether_a_stream_begins_again(policy: str, failure: str | None, phase: str) -> None:
    world = stream(restart={"policy": policy})
    world.run()
    world.end(failure=failure)
    assert world.settle()["phase"] == phase


def test_a_stream_is_tried_for_ever_and_one_that_ran_for_a_while_has_failed_for_the_first_time() -> None:
    world = stream(restart={"backoffSeconds": 1, "backoffMaxSeconds": 1})
    for _ in range(20):
        world.settle()
        world.start()
        world.end(failure="no room")
        world.wait(1)
        world.settle()
        world.wait(1)
        world.settle()
        world.vanish()
    world.settle()
    world.start()
    assert world.settle()["failures"] == 20
    world.wait(STEADY_S)
    world.end(failure="no room")
    assert world.settle()["failures"] == 1


def test_a_batch_that_fails_after_hours_has_failed_as_often_as_one_that_fails_at_once() -> None:
    world = kubernetes(restart={"retries": 1, "backoffSeconds": 1})
    for _ in range(2):
        world.run()
        world.wait(10 * STEADY_S)
        world.end(failure="no room")
        world.settle()
        world.wait(1)
        world.settle()
        if "deletionTimestamp" in world.pods["stats-driver"]["metadata"]:
            world.vanish()
    assert world.settle()["phase"] == "Failed"
    assert len(world.made) == 2


def test_the_next_attempt_waits_until_the_pod_of_the_last_one_is_gone() -> None:
    """The driver of a node that does not answer may still run: nobody knows, so nobody begins."""
    world = stream()
    world.run()
    world.pods["stats-driver"]["metadata"]["deletionTimestamp"] = "now"
    assert world.settle()["phase"] == "Stopping"
    world.wait(100_000)
    world.settle()
    assert world.made == ["pod 0"]
    world.vanish()
    status = world.settle()
    assert status["failure"] == "its pod is gone: somebody deleted it, or its node was lost"
    world.wait(10)
    world.settle()
    assert world.made == ["pod 0", "pod 1"]


def test_a_suspended_pipeline_ends_and_goes_on_later_without_counting_that_as_a_failure() -> None:
    world = stream()
    world.run()
    world.say("stats", suspend=True)
    assert world.settle()["phase"] == "Stopping"
    assert "deletionTimestamp" in world.pods["stats-driver"]["metadata"]
    world.end(failure="it was told to end")
    world.settle()
    world.vanish()
    status = world.settle()
    assert (status["phase"], status["failures"], status.get("failure")) == ("Suspended", 0, None)
    world.say("stats", suspend=False)
    status = world.settle()
    assert (status["phase"], status["run"], status["attempt"]) == ("Starting", 1, 2)
    assert len(world.made) == 2


def test_a_batch_that_ends_well_while_it_is_suspended_is_done() -> None:
    world = kubernetes()
    world.run()
    world.say("stats", suspend=True)
    world.settle()
    world.end()
    world.settle()
    world.vanish()
    world.say("stats", suspend=False)
    status = world.settle()
    assert (status["phase"], status.get("stopping")) == ("Succeeded", None)
    assert len(world.made) == 1


def test_what_ended_before_it_was_deleted_has_ended_as_it_says() -> None:
    for failure, phase in ((None, "Succeeded"), ("no room", "Failed")):
        world = kubernetes(restart={"policy": "Never"})
        world.run()
        world.end(failure=failure)
        world.pods["stats-driver"]["metadata"]["deletionTimestamp"] = "now"
        status = world.settle()
        assert (status["phase"], status.get("failure")) == (phase, failure)


def test_where_spark_is_turned_off_drivers_end_and_go_on_when_it_is_on_again() -> None:
    world = stream()
    world.run()
    world.installation = replace(INSTALLATION, image=None)
    assert world.settle()["phase"] == "Stopping"
    world.vanish()
    status = world.settle()
    assert (status["phase"], ready(status)[:2]) == ("Suspended", ("False", "SparkDisabled"))
    world.installation = INSTALLATION
    assert world.settle()["phase"] == "Starting"
    assert len(world.made) == 2


def test_a_batch_that_cannot_start_is_begun_again_when_its_spec_is_mended() -> None:
    world = kubernetes(image="no-such-image")
    world.settle()
    world.say("stats", image="flotilla-spark:1")
    world.settle()
    assert "deletionTimestamp" in world.pods["stats-driver"]["metadata"]
    world.vanish()
    world.settle()
    assert world.pods["stats-driver"]["spec"]["containers"][0]["image"] == "flotilla-spark:1"


def test_a_batch_that_was_given_up_is_tried_again_when_somebody_changes_its_spec() -> None:
    world = kubernetes(restart={"policy": "Never"})
    world.run()
    world.end(failure="OOMKilled")
    assert world.settle()["phase"] == "Failed"
    world.say("stats", driver={"memory": "4Gi"})
    world.settle()
    world.vanish()
    status = world.settle()
    assert (status["phase"], status["run"], status["attempt"], status["failures"]) == ("Starting", 1, 2, 0)
    world.run()
    world.end()
    world.settle()
    world.say("stats", driver={"memory": "8Gi"})
    assert world.settle()["phase"] == "Succeeded"
    assert len(world.made) == 2


def test_a_driver_ends_if_it_must_also_where_the_rest_of_the_spec_makes_no_sense() -> None:
    world = stream()
    world.run()
    world.say("stats", sparkConf={"spark.master": "elsewhere"})
    assert ready(world.settle())[1] == "SpecInvalid"
    assert "deletionTimestamp" not in world.pods["stats-driver"]["metadata"]
    world.say("stats", suspend=True)
    world.settle()
    assert "deletionTimestamp" in world.pods["stats-driver"]["metadata"]


def test_what_is_suspended_from_the_start_does_not_start() -> None:
    world = stream(suspend=True)
    assert world.settle()["phase"] == "Suspended"
    assert world.made == []


def test_a_stream_whose_spec_changes_is_begun_again_and_a_batch_runs_to_its_end() -> None:
    for mode, replaced in (("Stream", True), ("Batch", False)):
        world = kubernetes(mode=mode, checkpoint=CHECKPOINT)
        world.run()
        world.say("stats", arguments=["--window", "5 minutes"])
        world.settle()
        assert ("deletionTimestamp" in world.pods["stats-driver"]["metadata"]) == replaced
        if replaced:
            world.vanish()
        else:
            world.end()
        world.settle()
        if not replaced:
            world.vanish()
        status = world.settle()
        assert (status["phase"], status["run"], status["attempt"], status["failures"]) == ("Starting", 2, 1, 0)
        assert world.pods["stats-driver"]["spec"]["containers"][0]["args"][-1] == "5 minutes"


def test_a_stream_that_becomes_a_batch_does_not_run_for_ever() -> None:
    """By its new spec it is a batch, which runs to its end; by its driver it is a stream, which has none."""
    world = stream()
    world.run()
    world.say("stats", mode="Batch", schedule="0 3 * * *")
    world.settle()
    assert "deletionTimestamp" in world.pods["stats-driver"]["metadata"]
    world.end()  # a stream that is told to end may well say that it has ended well
    world.settle()
    world.vanish()
    status = world.settle()
    assert (status["phase"], status["attempt"], status["failures"]) == ("Starting", 2, 0)
    assert "--once" in world.pods["stats-driver"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_a_driver_has_ended_although_something_beside_it_goes_on(code: int, phase: str) -> None:
    """As what a service mesh puts into all pods."""
    world = kubernetes(restart={"policy": "Never"})
    world.run()
    ended = {"name": "spark-driver", "state": {"terminated": {"exitCode": code, "finishedAt": "2026-03-01T12:01:00Z"}}}
    beside = {"name": "proxy", "state": {"running": {"startedAt": "2026-03-01T12:00:30Z"}}}
    world.pods["stats-driver"]["status"] = {"phase": "Running", "containerStatuses": [beside, ended]}
    status = world.settle()
    assert status["phase"] == phase
    assert ("failure" in status) == bool(code)


def test_a_batch_that_is_done_is_not_run_again_for_a_change_that_is_not_about_it() -> None:
    world = kubernetes()
    world.settle()
    world.start()
    world.end()
    world.settle()
    world.say("stats", restart={"policy": "Never"}, timeToLiveSeconds=1000, executors={"memory": "4Gi"}, driver={})
    world.say("stats", token={"secretName": "another"}, template={"labels": {"team": "logs"}}, imagePullPolicy="Always")
    world.say("stats", suspend=True)
    world.settle()
    world.say("stats", suspend=False)
    assert world.settle()["phase"] == "Succeeded"
    assert len(world.made) == 1


def test_a_schedule_says_when_and_what_was_missed_is_made_up_for_once() -> None:
    world = kubernetes(schedule="*/10 * * * *")
    status = world.settle()
    assert (status["phase"], status["nextRunAt"], ready(status)[0]) == ("Waiting", "2026-03-01T12:10:00Z", "True")
    world.wait(9 * 60 + 29)
    world.settle()
    assert world.made == []
    world.wait(1)
    assert world.settle()["dueAt"] == "2026-03-01T12:10:00Z"
    assert world.made == ["pod 0"]
    world.start()
    world.wait(35 * 60)  # three more are due meanwhile
    world.end()
    world.settle()
    world.vanish()
    status = world.settle()
    assert (status["run"], status["dueAt"]) == (2, "2026-03-01T12:40:00Z")
    world.start()
    world.end()
    world.settle()
    assert world.settle()["phase"] == "Waiting"
    assert len(world.made) == 2


def test_what_has_ended_is_deleted_when_its_time_is_over() -> None:
    world = kubernetes(timeToLiveSeconds=60)
    world.settle()
    world.start()
    world.end()
    world.settle()
    world.wait(59)
    world.settle()
    assert "stats" in world.resources
    world.wait(1)
    world.settle()
    assert "stats" not in world.resources


def test_the_claim_stays_unless_it_is_told_otherwise() -> None:
    for policy, owners in (("Retain", 0), ("Delete", 1)):
        world = kubernetes(checkpoint={**CHECKPOINT, "deletionPolicy": policy})
        world.settle()
        assert len(world.claims["stats-checkpoint"]["metadata"]["ownerReferences"]) == owners


def test_whether_the_claim_goes_can_be_said_at_any_time() -> None:
    """Bad luck never costs data: who says Retain before the end keeps the checkpoint, whatever was said before."""
    world = kubernetes(checkpoint={**CHECKPOINT, "deletionPolicy": "Delete"})
    world.run()
    world.say("stats", checkpoint={**CHECKPOINT, "deletionPolicy": "Retain"})
    world.settle()
    assert world.claims["stats-checkpoint"]["metadata"]["ownerReferences"] == []


def off(world: Kubernetes) -> None:
    """Spark is turned off."""
    world.installation = replace(INSTALLATION, image=None)


def broken(world: Kubernetes) -> None:
    """The rest of the spec makes no sense."""
    world.say("stats", sparkConf={"spark.master": "local"})


def in_use(world: Kubernetes) -> None:
    """Somebody else's driver has the checkpoint, as one of a Pipeline that is gone."""
    world.pods["other-driver"] = {
        **world.pods["stats-driver"],
        "metadata": dict(world.pods["stats-driver"]["metadata"]),
    }
    world.pods["other-driver"]["metadata"] |= {"name": "other-driver", "ownerReferences": []}


@pytest.mark.parametrize("happens", [off, broken, in_use])
def test_the_claim_is_kept_as_was_said_last_also_while_nothing_can_run(happens: Callable[[Kubernetes], None]) -> None:
    world = stream()
    world.say("stats", checkpoint={**CHECKPOINT, "deletionPolicy": "Delete"})
    world.run()
    happens(world)
    if "deletionTimestamp" in world.pods["stats-driver"]["metadata"] or happens is in_use:
        world.vanish()
    world.settle()
    assert world.claims["stats-checkpoint"]["metadata"]["ownerReferences"] != []
    world.say("stats", checkpoint={**CHECKPOINT, "deletionPolicy": "Retain"})
    world.settle()
    assert world.claims["stats-checkpoint"]["metadata"]["ownerReferences"] == []


def test_the_claim_of_what_does_not_run_is_not_made_anew() -> None:
    world = kubernetes(checkpoint=CHECKPOINT)
    world.settle()
    world.start()
    world.end()
    world.settle()
    del world.claims["stats-checkpoint"]  # somebody has no more use for it
    world.settle()
    assert world.claims == {}


def test_a_stream_that_ends_well_when_it_is_told_to_end_goes_on_later() -> None:
    world = stream(restart={"policy": "OnFailure"})
    world.run()
    world.say("stats", suspend=True)
    world.settle()
    world.end()
    world.settle()
    world.vanish()
    assert world.settle()["phase"] == "Suspended"
    world.say("stats", suspend=False)
    assert world.settle()["phase"] == "Starting"


def test_a_schedule_that_is_given_to_a_batch_of_long_ago_begins_with_its_next_time() -> None:
    world = kubernetes()
    world.settle()
    world.start()
    world.wait(3600)
    world.end()
    world.settle()
    world.say("stats", schedule="0 3 * * *")
    status = world.settle()
    assert (status["phase"], status["nextRunAt"], len(world.made)) == ("Waiting", "2026-03-02T03:00:00Z", 1)
    world.say("stats", schedule=None)
    world.settle()
    assert len(world.made) == 1


def test_of_two_pipelines_with_one_checkpoint_the_elder_runs() -> None:
    world = Kubernetes()
    shared = {"volume": {"claimName": "shared"}}
    world.add(pipeline("elder", mode="Stream", checkpoint=shared))
    world.add(pipeline("younger", mode="Stream", checkpoint=shared))
    world.settle("younger")
    world.settle("elder")
    assert list(world.pods) == ["elder-driver"]
    status = world.settle("younger")
    assert ready(status) == (
        "False",
        "CheckpointInUse",
        "Pipeline elder is older, and has the same checkpoint: delete that one, or give this one another checkpoint",
    )
    del world.resources["elder"]  # its pod takes a while to go
    status = world.settle("younger")
    assert ready(status) == ("False", "CheckpointInUse", "the pod elder-driver still uses the checkpoint")
    world.vanish("elder-driver")
    world.settle("younger")
    assert list(world.pods) == ["younger-driver"]


def test_a_pipeline_waits_for_the_pod_of_one_that_had_its_name() -> None:
    world = stream()
    world.settle()
    world.resources["stats"] = {**pipeline(mode="Stream", checkpoint=CHECKPOINT)}
    world.resources["stats"]["metadata"]["uid"] = "another"
    assert ready(world.settle())[1] == "NameTaken"
    world.vanish()
    assert world.settle()["phase"] == "Starting"
    assert len(world.made) == 2


def test_offsets_and_lag_are_shown_also_when_the_driver_is_gone() -> None:
    replica = Replica(topic_id="t", partition=0, epoch=1, leads=True, next_offset=100)
    there = Topic(id="t", name="logs", state="ready", partitions=(Partition(0, 1, ("b0",)),))
    known = World(version=1, cluster_id="c", topics=(there,), reports={"b0": Report(0.0, replicas=(replica,))})
    world = stream()
    world.world = known
    world.settle()
    world.start()
    told = Progress(time="2026-03-01T12:01:00Z", batch=3, records=7, records_per_second=2, offsets={"logs": {"0": 60}})
    world.progress["stats"] = told
    status = world.settle()
    assert (status["offsets"], status["lag"]) == ({"logs": {"0": 60}}, 40)
    assert status["lastProgress"] == {"time": told.time, "batch": 3, "records": 7, "recordsPerSecond": 2}
    world.progress.clear()
    last = {"time": told.time, "batch": 4, "offsets": {"logs": {"0": 90}}}
    world.end(failure="no room", progress=last)
    assert world.settle()["lag"] == 10
    world.vanish()
    assert world.settle()["offsets"] == {"logs": {"0": 90}}
    world.world = World(version=1, cluster_id="c", topics=(there,), reports={})  # managers that know little yet
    assert world.settle()["lag"] == 10


def test_a_driver_whose_farewell_has_no_room_for_offsets_does_not_make_them_forgotten() -> None:
    world = stream()
    world.settle()
    world.start()
    world.progress["stats"] = Progress(time="2026-03-01T12:01:00Z", offsets={"logs": {"0": 60}})
    world.settle()
    world.progress.clear()
    world.end(failure="no room", progress={"time": "2026-03-01T12:02:00Z", "batch": 9, "offsets": {}})
    status = world.settle()
    assert (status["offsets"], status["lastProgress"]["batch"]) == ({"logs": {"0": 60}}, 9)


@pytest.mark.parametrize("seed", range(300))
def test_no_checkpoint_ever_has_two_drivers_and_no_attempt_is_counted_twice(seed: int) -> None:
    """Whatever happens, in whatever order, and however often the operator dies between writing and acting."""
    chance = random.Random(seed)
    world = Kubernetes()
    for name in ("a", "b"):
        shared = {"volume": {"claimName": "shared"}}
        world.add(pipeline(name, mode="Stream", checkpoint=shared, restart={"backoffSeconds": 5}))
    for _ in range(150):
        something_happens(world, chance)
        running = [one for one in world.pods.values() if one["status"]["phase"] in {"Pending", "Running"}]
        assert len(running) <= 1
    for name in "ab":
        assert (world.resources[name].get("status") or {}).get("attempt", 0) <= len(world.made) + 1


def something_happens(world: Kubernetes, chance: random.Random) -> None:
    name = chance.choice("ab")
    pod = f"{name}-driver"
    state = world.pods.get(pod, {}).get("status", {}).get("phase")
    match chance.randrange(9):
        case 4:
            world.wait(chance.choice((1, 5, 60)))
        case 5 if state == "Pending":
            world.start(pod)
        case 6 if state == "Running":
            world.end(pod, failure="no room")
        case 7 if state is not None and (chance.random() < 0.2 or "deletionTimestamp" in str(world.pods[pod])):
            world.vanish(pod)
        case 8:
            world.say(name, suspend=chance.random() < 0.3)
        case _:
            world.turn(name, writes=chance.random() < 0.8, acts=chance.random() < 0.8)
