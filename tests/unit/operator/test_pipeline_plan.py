"""What is done about Pipeline resources: attempts, their ends, schedules; and that no checkpoint has two drivers."""

import random
from typing import Any

import pytest

from flotilla_operator.pipelines import driver, schedule
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.states import STEADY_S
from flotilla_operator.pipelines.wish import parse_time, read_pipeline
from flotilla_operator.world import Partition, Replica, Report, Topic, World

from .pipelines import CHECKPOINT, INSTALLATION, Kubernetes, pipeline


def kubernetes(**spec: object) -> Kubernetes:
    found = Kubernetes()
    found.add(pipeline("stats", **spec))
    return found


def ready(status: dict[str, Any]) -> tuple[str, str, str]:
    (one,) = [one for one in status["conditions"] if one["type"] == "Ready"]
    return one["status"], one["reason"], one["message"]


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
    world.settle()
    world.start()
    world.settle()
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


def test_the_next_attempt_waits_until_the_pod_of_the_last_one_is_gone() -> None:
    """The driver of a node that does not answer may still run: nobody knows, so nobody begins."""
    world = stream()
    world.settle()
    world.start()
    world.settle()
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
    world.settle()
    world.start()
    world.settle()
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


def test_what_is_suspended_from_the_start_does_not_start() -> None:
    world = stream(suspend=True)
    assert world.settle()["phase"] == "Suspended"
    assert world.made == []


def test_a_stream_whose_spec_changes_is_begun_again_and_a_batch_runs_to_its_end() -> None:
    for mode, replaced in (("Stream", True), ("Batch", False)):
        world = kubernetes(mode=mode, checkpoint=CHECKPOINT)
        world.settle()
        world.start()
        world.settle()
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


def test_a_batch_that_is_done_is_not_run_again_for_a_change_that_is_not_about_it() -> None:
    world = kubernetes()
    world.settle()
    world.start()
    world.end()
    world.settle()
    world.say("stats", restart={"policy": "Never"}, timeToLiveSeconds=1000)
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


@pytest.mark.parametrize("spec", [{"schedule": "every day"}, {"driver": {"memory": "512Mi"}}])
def test_a_spec_that_cannot_be_done_says_why(spec: dict[str, Any]) -> None:
    status = kubernetes(**spec).settle()
    assert ready(status)[1] == "SpecInvalid"


@pytest.mark.parametrize(
    "name",
    [
        "spark.master",
        "spark.executor.instances",
        "spark.kubernetes.authenticate.driver.serviceAccountName",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.namespace",
    ],
)
def test_settings_that_say_where_spark_runs_and_as_whom_are_refused(name: str) -> None:
    status = kubernetes(sparkConf={name: "another"}).settle()
    assert name in ready(status)[2]


def test_the_claim_stays_unless_it_is_told_otherwise() -> None:
    for policy, owners in (("Retain", 0), ("Delete", 1)):
        world = kubernetes(checkpoint={**CHECKPOINT, "deletionPolicy": policy})
        world.settle()
        assert len(world.claims["stats-checkpoint"]["metadata"]["ownerReferences"]) == owners


def test_of_two_pipelines_with_one_checkpoint_the_elder_runs() -> None:
    world = Kubernetes()
    shared = {"volume": {"claimName": "shared"}}
    world.add(pipeline("elder", mode="Stream", checkpoint=shared))
    world.add(pipeline("younger", mode="Stream", checkpoint=shared))
    world.settle("younger")
    world.settle("elder")
    assert list(world.pods) == ["elder-driver"]
    status = world.settle("younger")
    assert ready(status) == ("False", "CheckpointInUse", "Pipeline elder is older, and has the same checkpoint")
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


def test_the_driver_has_no_rights_but_its_own_and_executors_have_none() -> None:
    wanted = read_pipeline(pipeline(mode="Stream", checkpoint=CHECKPOINT, token={"secretName": "mine"}), INSTALLATION)
    pod = driver.make(wanted, 1, 1)
    template = driver.executor_template(wanted)
    assert pod["spec"]["serviceAccountName"] == "flotilla-spark"
    assert template["spec"]["serviceAccountName"] == "default"
    for spec in (pod["spec"], template["spec"]):
        (container,) = spec["containers"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        reference = {"secretKeyRef": {"name": "mine", "key": "token"}}
        assert {"name": "FLOTILLA_TOKEN", "valueFrom": reference} in container["env"]
    assert "kubernetes" not in [one["name"] for one in template["spec"]["volumes"]]
    together = template["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert together[0]["topologyKey"] == "kubernetes.io/hostname"


def test_pods_of_a_volume_for_many_nodes_may_be_anywhere() -> None:
    many = {"volume": {"size": "1Gi", "accessMode": "ReadWriteMany"}}
    wanted = read_pipeline(pipeline(checkpoint=many), INSTALLATION)
    assert "affinity" not in driver.executor_template(wanted)["spec"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"application": {"builtIn": "archive"}, "checkpoint": CHECKPOINT, "arguments": ["--to", "/x"]},
            ["driver", "flotilla_spark.archive", "logs", "--checkpoint", "/checkpoint/stats", "--once", "--to", "/x"],
        ),
        (
            {"mode": "Stream", "checkpoint": {"url": "s3a://bucket/c"}, "topics": ["a", "b"]},
            ["driver", "flotilla_spark.log_stats", "a,b", "--checkpoint", "s3a://bucket/c"],
        ),
        ({"application": {"builtIn": "load"}, "arguments": ["/in"]}, ["driver", "flotilla_spark.load", "logs", "/in"]),
        ({"application": {"file": "/opt/job.py"}, "arguments": ["1"]}, ["driver", "/opt/job.py", "1"]),
        (
            {"application": {"configMap": {"name": "jobs", "key": "a.py"}}},
            ["driver", "/etc/flotilla/application/a.py"],
        ),
    ],
)
def test_an_application_is_told_what_the_spec_says(spec: dict[str, Any], words: list[str]) -> None:
    assert driver.arguments(read_pipeline(pipeline(**spec), INSTALLATION)) == words


def test_memory_of_pods_is_shared_by_java_and_python_and_without_executors_the_driver_works() -> None:
    wanted = read_pipeline(pipeline(executors={"instances": 3, "cores": 2, "memory": "4Gi"}), INSTALLATION)
    told = driver.properties(wanted)
    assert (told["spark.executor.memory"], told["spark.executor.memoryOverhead"]) == ("2457m", "1638m")
    assert (told["spark.executor.instances"], told["spark.kubernetes.executor.request.cores"]) == ("3", "2")
    alone = driver.properties(read_pipeline(pipeline(executors={"instances": 0, "cores": 2}), INSTALLATION))
    assert alone["spark.master"] == "local[2]"


@pytest.mark.parametrize(
    ("cron", "since", "now", "due"),
    [
        ("*/10 * * * *", "2026-03-01T12:00:00Z", "2026-03-01T12:09:59Z", None),
        ("*/10 * * * *", "2026-03-01T12:00:00Z", "2026-03-01T12:10:00Z", "2026-03-01T12:10:00Z"),
        ("*/10 * * * *", "2026-03-01T12:00:00Z", "2026-03-01T12:10:01Z", "2026-03-01T12:10:00Z"),
        ("*/10 * * * *", "2026-03-01T12:00:00Z", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z"),
        ("0 3 * * mon", "2026-03-01T12:00:00Z", "2026-03-02T03:00:30Z", "2026-03-02T03:00:00Z"),
        ("0 3 * * mon", "2026-03-02T03:00:00Z", "2026-03-02T03:00:30Z", None),
    ],
)
def test_a_run_is_due_at_the_last_time_that_has_come(cron: str, since: str, now: str, due: str | None) -> None:
    found = schedule.last_due(cron, parse_time(since), parse_time(now))
    assert found == (None if due is None else parse_time(due))
