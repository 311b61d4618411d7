"""Pipelines: the operator runs Spark applications on topics while their pods are killed."""

import contextlib
import itertools
import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster.harness.cache import CommandFailed
from cluster.harness.images import ROOT
from flotilla import Client
from support.cluster import wait_until
from support.release import Release
from support.sparkapps import QUICK
from support.walk import blocks, follow

from .test_operator import waiting_pipeline

SMALL: dict[str, Any] = {
    "driver": {"cpu": "100m", "memory": "1536Mi"},
    "executors": {"instances": 1, "cores": 2, "cpu": "100m", "memory": "1536Mi"},
    "sparkConf": {"spark.sql.shuffle.partitions": "2", "spark.executor.extraJavaOptions": QUICK},
    "env": [{"name": "SPARK_SUBMIT_OPTS", "value": QUICK}],
    "token": {"secretName": "pipelines"},
}
COUNT = """
import os
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.read.format("flotilla").load(os.environ["FLOTILLA_TOPICS"])
counts = rows.selectExpr("count(*) AS n", "count(DISTINCT topic, partition, offset) AS different")
counts.selectExpr("to_json(struct(*)) AS value").write.format("flotilla").option("topic", os.environ["TO"]).mode(
    "append"
).save()
"""
TIMEOUT_S = 240.0
_numbers = itertools.count()


def pipeline(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """Return a Pipeline with small resource requests."""
    return {"apiVersion": "flotilla.dev/v1", "kind": "Pipeline", "metadata": {"name": name}, "spec": {**SMALL, **spec}}


@pytest.fixture(scope="module")
def client(release: Release, token: str) -> Iterator[Client]:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pipelines"}, "stringData": {"token": token}}
    release.apply(secret)
    release.wait_reachable()
    with Client(release.url, token=token) as client:
        yield client


def soon() -> str:
    """Return a cron schedule of a minute that begins in 15 to 75 s."""
    return f"{(datetime.now(UTC) + timedelta(seconds=75)).minute} * * * *"


@pytest.fixture(scope="module", autouse=True)
def scheduled(release: Release, client: Client) -> str:
    """A Pipeline with a schedule, which runs during other tests."""
    name = "scheduled"
    client.topics.create(name, partitions=1)
    fill(client, name, 0, 100, partitions=1)
    release.apply(
        pipeline(
            name,
            application={"builtIn": "archive"},
            topics=[name],
            schedule=soon(),
            arguments=["--to", "/checkpoint/parquet"],
            checkpoint={"volume": {"size": "1Gi"}, "deletionPolicy": "Delete"},
            executors={"instances": 0, "cores": 1},
            restart={"backoffSeconds": 1},
        )
    )
    return name


@pytest.fixture(scope="module", autouse=True)
def failing(release: Release, client: Client) -> str:
    """A Pipeline that fails, which happens during other tests."""
    assert "no-such-topic" not in [one.name for one in client.topics.list()]
    release.apply(
        pipeline(
            "failing",
            topics=["no-such-topic"],
            application={"builtIn": "log_stats"},
            executors={"instances": 0},
            restart={"retries": 1, "backoffSeconds": 1},
        )
    )
    return "failing"


@pytest.fixture(scope="module", autouse=True)
def unschedulable(release: Release, client: Client) -> str:
    """A Pipeline whose executors request more CPU than exists, which is reported during other tests."""
    name = "unschedulable"
    client.topics.create(name, partitions=1)
    client.topics.create(f"{name}-out", partitions=1)
    release.apply(
        pipeline(
            name,
            application={"builtIn": "route"},
            topics=[name],
            mode="Stream",
            arguments=["--others", f"{name}-out"],
            checkpoint={"volume": {"size": "1Gi"}, "deletionPolicy": "Delete"},
            executors={"instances": 1, "cpu": "1000"},
        )
    )
    return name


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"pipeline-{next(_numbers)}"


def fill(client: Client, topic: str, first: int, count: int, partitions: int = 3) -> None:
    """Produce numbered records, and wait until they are stored."""
    with client.producer() as producer:
        for at in range(partitions):
            values = [json.dumps({"level": "info", "number": n}).encode() for n in range(first, first + count)]
            sent = values[at::partitions]
            producer.send_many(topic, sent, keys=[b"key %d" % at] * len(sent), partition=at)
        producer.flush()


def count(client: Client, topic: str) -> int:
    return sum(one.next_offset for one in client.topics.offsets(topic))


def numbers(client: Client, topic: str) -> dict[bytes | None, list[int]]:
    """Return the numbers in the records of each key, in order."""
    found: dict[bytes | None, list[int]] = {}
    with client.consumer(topic) as consumer:
        for record in consumer.records(until="end"):
            found.setdefault(record.key, []).append(json.loads(record.value)["number"])
    return found


def status(release: Release, name: str) -> dict[str, Any]:
    found: dict[str, Any] = release.get("pipeline", name).get("status", {})
    return found


def wait_for(release: Release, name: str, what: str, **wanted: object) -> dict[str, Any]:
    """Wait until the status has these values; return it."""
    try:
        wait_until(what, lambda: wanted.items() <= status(release, name).items(), TIMEOUT_S)
    except TimeoutError as error:
        output = release.kubectl("describe", "pipeline", name)
        with contextlib.suppress(CommandFailed):
            output += release.kubectl("logs", f"{name}-driver", "--tail=60")
        raise AssertionError(f"{error}\n{output}\n{release.kubectl('get', 'pods')}") from error
    return status(release, name)


def executors(release: Release, name: str) -> list[str]:
    """List the running executors of a Pipeline."""
    selector = f"--selector=flotilla.dev/pipeline={name},app.kubernetes.io/component=spark-executor"
    found = release.get("pods", selector)["items"]
    return [one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running"]


def ready_condition(release: Release, name: str, reason: str) -> dict[str, Any] | None:
    """Return the condition Ready if it has this reason, or else None."""
    shown: list[dict[str, Any]] = status(release, name).get("conditions") or []
    return next((one for one in shown if (one["type"], one["reason"]) == ("Ready", reason)), None)


def exists(release: Release, kind: str, name: str) -> bool:
    return bool(release.kubectl("get", kind, name, "--ignore-not-found"))


def test_batch_pipelines_archive_and_load_exactly_once_while_pods_are_killed(
    release: Release, client: Client, name: str
) -> None:
    """An executor is killed while a topic is archived, and the driver while the archive is loaded.

    The checkpoint volume outlives its Pipeline, and another Pipeline can mount it.
    """
    client.topics.create(name, partitions=3)
    client.topics.create(f"{name}-again", partitions=3)
    fill(client, name, 0, 300_000)
    release.apply(
        pipeline(
            name,
            application={"builtIn": "archive"},
            topics=[name],
            arguments=["--to", "/checkpoint/parquet"],
            checkpoint={"volume": {"size": "1Gi"}},
        )
    )
    release.destroy(wait_until("its executor to run", lambda: executors(release, name), TIMEOUT_S)[0])
    shown = wait_for(release, name, "the archive to be written", phase="Succeeded")
    assert shown["attempt"] == 1, shown
    assert shown["offsets"] == {name: {"0": 100_000, "1": 100_000, "2": 100_000}}
    assert shown["lag"] == 0
    line = release.kubectl("get", "pipeline", name).splitlines()[1].split()
    assert line[:4] == [name, "Succeeded", "1", "0"]
    release.kubectl("delete", "pipeline", name)
    wait_until("its driver to be deleted", lambda: not exists(release, "pod", f"{name}-driver"), 60)
    assert exists(release, "pvc", f"{name}-checkpoint")

    loads = f"{name}-load"
    release.apply(
        pipeline(
            loads,
            application={"builtIn": "load"},
            topics=[f"{name}-again"],
            arguments=["/checkpoint/parquet", "--format", "parquet", "--value", "value", "--key", "key"],
            volumes=[{"claimName": f"{name}-checkpoint", "mountPath": "/checkpoint"}],
            executors={"instances": 0, "cores": 1},
            restart={"backoffSeconds": 1},
            sparkConf={
                **SMALL["sparkConf"],
                "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
            },  # slow enough to be killed half-way
        )
    )
    wait_until("the first records to be loaded", lambda: count(client, f"{name}-again") > 0, TIMEOUT_S)
    release.signal(f"{loads}-driver", signal.SIGKILL)
    shown = wait_for(release, loads, "all records to be loaded", phase="Succeeded")
    assert shown["attempt"] == 2, "it was killed half-way"
    assert count(client, f"{name}-again") == 300_000
    found = numbers(client, f"{name}-again")
    assert sorted(one for some in found.values() for one in some) == list(range(300_000))
    release.kubectl("delete", "pipeline", loads)


def test_custom_application_runs_and_is_deleted_after_its_time_to_live(
    release: Release, client: Client, name: str
) -> None:
    client.topics.create(name, partitions=2)
    client.topics.create(f"{name}-counts", partitions=1)
    fill(client, name, 0, 500, partitions=2)
    job = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-job"}, "data": {"main.py": COUNT}}
    release.apply(
        job,
        pipeline(
            name,
            application={"configMap": {"name": f"{name}-job"}},
            topics=[name],
            env=[*SMALL["env"], {"name": "TO", "value": f"{name}-counts"}],
            executors={"instances": 0, "cores": 2},
            timeToLiveSeconds=0,
        ),
    )
    wait_until(
        "the Pipeline to be deleted after its time to live", lambda: not exists(release, "pipeline", name), TIMEOUT_S
    )
    with client.consumer(f"{name}-counts") as consumer:
        (found,) = consumer.records(until="end")
    assert json.loads(found.value) == {"n": 500, "different": 500}


def test_stream_delivers_exactly_once_while_its_pods_are_killed(release: Release, client: Client, name: str) -> None:
    """Executors and the driver are killed in turn; each record arrives once, in the order of its key."""
    client.topics.create(name, partitions=3)
    client.topics.create(f"{name}-out", partitions=3)
    release.apply(
        pipeline(
            name,
            application={"builtIn": "route"},
            topics=[name],
            mode="Stream",
            arguments=["--others", f"{name}-out", "--every", "1 second", "--at-most", "2000"],
            checkpoint={"volume": {"size": "1Gi"}, "deletionPolicy": "Delete"},
            restart={"backoffSeconds": 1},
        )
    )
    sent = 0

    def send_and_wait(what: str) -> None:
        nonlocal sent
        fill(client, name, sent, 6_000)
        sent += 6_000
        try:
            wait_until(f"all records to arrive, {what}", lambda: count(client, f"{name}-out") >= sent, TIMEOUT_S)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{status(release, name)}") from error

    send_and_wait("at first")
    (executor,) = executors(release, name)
    fill(client, name, sent, 6_000)
    sent += 6_000
    release.destroy(executor)
    send_and_wait("after an executor was killed")
    before = wait_for(release, name, "the Pipeline to run", phase="Running")
    fill(client, name, sent, 6_000)
    sent += 6_000
    release.signal(f"{name}-driver", signal.SIGKILL)
    send_and_wait("after the driver was killed")
    shown = wait_for(release, name, "the next attempt", phase="Running", attempt=before["attempt"] + 1)
    release.destroy(f"{name}-driver")
    send_and_wait("after the driver's pod was deleted")
    shown = wait_for(release, name, "the attempt after that", phase="Running", attempt=before["attempt"] + 2)
    assert shown["run"] == 1
    assert numbers(client, f"{name}-out") == numbers(client, name)
    wait_for(release, name, "the offsets to be reported", lag=0)

    release.patch(f"pipeline/{name}", {"spec": {"suspend": True}})
    wait_for(release, name, "the Pipeline to be suspended", phase="Suspended")
    assert not exists(release, "pod", f"{name}-driver")
    fill(client, name, sent, 300)
    wait_for(release, name, "the lag to be reported while suspended", lag=300)
    release.patch(f"pipeline/{name}", {"spec": {"suspend": False}})
    wait_for(release, name, "the Pipeline to catch up", phase="Running", lag=0)
    assert numbers(client, f"{name}-out") == numbers(client, name)

    release.kubectl("delete", "pipeline", name)
    wait_until("its driver to be deleted", lambda: not exists(release, "pod", f"{name}-driver"), 90)
    wait_until("its claim to be deleted", lambda: not exists(release, "pvc", f"{name}-checkpoint"), 90)
    wait_until("its executors to be deleted", lambda: not executors(release, name), 60)


def test_scheduled_runs_resume_from_the_offsets_of_the_previous_run(
    release: Release, client: Client, scheduled: str
) -> None:
    """The fixture has created it before all other tests of this file: it takes minutes, most of them waiting."""
    first = wait_for(release, scheduled, "the first run", phase="Waiting", run=1, outcome="Succeeded")
    assert first["offsets"] == {scheduled: {"0": 100}}
    fill(client, scheduled, 100, 50, partitions=1)
    release.patch(f"pipeline/{scheduled}", {"spec": {"schedule": soon()}})
    wait_for(release, scheduled, "the second run", phase="Running", run=2)
    release.signal(f"{scheduled}-driver", signal.SIGKILL)
    last = wait_for(release, scheduled, "its completion", phase="Waiting", run=2, attempt=2, outcome="Succeeded")
    assert last["offsets"] == {scheduled: {"0": 150}}
    assert last["nextRunAt"] > last["dueAt"] > first["dueAt"]
    release.kubectl("delete", "pipeline", scheduled)


def test_failing_pipeline_reports_the_cause_and_is_retried_with_backoff(release: Release, failing: str) -> None:
    shown = wait_for(release, failing, "the Pipeline to fail", phase="Failed")
    assert shown["attempt"] == 2
    assert "topic 'no-such-topic' does not exist" in shown["failure"]
    assert "topic 'no-such-topic' does not exist" in release.kubectl("describe", "pipeline", failing)
    release.kubectl("delete", "pipeline", failing)


def test_unschedulable_executors_are_reported(release: Release, unschedulable: str) -> None:
    found = wait_until(
        "the cause to be reported", lambda: ready_condition(release, unschedulable, "NoExecutors"), TIMEOUT_S
    )
    assert found is not None
    assert "Insufficient cpu" in found["message"]
    assert status(release, unschedulable)["phase"] == "Running"
    release.kubectl("delete", "pipeline", unschedulable)


def test_driver_that_cannot_start_reports_the_missing_object(release: Release, name: str) -> None:
    """The message may at first name another cause, such as a volume that is not bound yet."""
    release.apply(waiting_pipeline(name))

    def is_reported() -> bool:
        found = ready_condition(release, name, "NotStarting")
        return found is not None and f'configmap "{name}-missing" not found' in found["message"]

    wait_until("the cause to be reported", is_reported, 120)
    release.kubectl("delete", "pipeline", name)
    release.kubectl("delete", "pvc", f"{name}-checkpoint", "--wait=false")


def test_two_pipelines_never_use_a_checkpoint_at_the_same_time(release: Release, client: Client, name: str) -> None:
    """If Spark is disabled, drivers are deleted; they start again when it is enabled."""
    client.topics.create(name, partitions=1)
    client.topics.create(f"{name}-counts", partitions=1)
    shared = {"volume": {"claimName": f"{name}-shared"}}
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"{name}-shared"}, "spec": size}
    common = {
        "application": {"builtIn": "log_stats"},
        "topics": [name],
        "mode": "Stream",
        "arguments": ["--to-topic", f"{name}-counts"],
        "checkpoint": shared,
        "executors": {"instances": 0},
    }
    release.apply(claim, pipeline(f"{name}-a", **common))
    wait_for(release, f"{name}-a", "the first to run", phase="Running")
    release.apply(pipeline(f"{name}-b", **common))
    wait_until("the second to wait", lambda: ready_condition(release, f"{name}-b", "CheckpointInUse"), 60)
    assert not exists(release, "pod", f"{name}-b-driver")

    release.upgrade("--set=spark.enabled=false")
    wait_until("the first to end", lambda: ready_condition(release, f"{name}-a", "SparkDisabled"), 120)
    assert not exists(release, "pod", f"{name}-a-driver")
    release.upgrade()
    wait_for(release, f"{name}-a", "the first to run again", phase="Running", attempt=2, failures=0)
    assert not exists(release, "pod", f"{name}-b-driver")

    release.kubectl("delete", "pipeline", f"{name}-a", "--wait=false")
    wait_for(release, f"{name}-b", "the second to run then", phase="Running")
    assert not exists(release, "pod", f"{name}-a-driver")
    release.kubectl("delete", "pipeline", f"{name}-b")
    release.kubectl("delete", "pvc", f"{name}-shared", "--wait=false")


def test_spark_submit_runs_an_application_as_documented(
    release: Release, client: Client, token: str, tmp_path: Path
) -> None:
    """The image also works for `spark-submit` in cluster mode, as driver and as executor."""
    if release.cluster.image_prefix:
        pytest.skip("the README's images have other names here")
    client.topics.create("logs", partitions=2, exist_ok=True)
    with client.producer() as producer:
        producer.send_many("logs", (ROOT / "spark-apps/examples/logs.jsonl").read_bytes().splitlines())
    (commands,) = blocks("spark-apps/README.md", "With spark-submit on Kubernetes")
    small = "--conf spark.kubernetes.driver.request.cores=100m --conf spark.kubernetes.executor.request.cores=100m"
    commands = commands.replace("--deploy-mode cluster", f"--deploy-mode cluster {small}")
    done = follow(release.cluster, tmp_path, f"export FLOTILLA_TOKEN={token}\n{commands}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2026-01-31 12:01:00  12:02:00  INFO   web        11" in done.stdout
    release.kubectl("delete", "pod", "stats")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"application": {}}, "exactly one of builtIn, file and configMap"),
        ({"application": {"builtIn": "archive"}, "topics": ["a"]}, "archive and route require a checkpoint"),
        ({"application": {"builtIn": "log_stats"}}, "built-in applications require topics"),
        ({"application": {"file": "/a.py"}, "mode": "Stream"}, "mode Stream requires a checkpoint"),
        (
            {
                "application": {"file": "/a.py"},
                "mode": "Stream",
                "schedule": "0 * * * *",
                "checkpoint": {"url": "s3a://b"},
            },
            "schedule requires mode Batch",
        ),
        ({"application": {"file": "/a.py"}, "checkpoint": {}}, "set exactly one of volume and url"),
        ({"application": {"file": "/a.py"}, "restart": {"policy": "Always"}}, "Always requires mode Stream"),
        ({"application": {"file": "/a.py"}, "driver": {"memory": "99999999999Gi"}}, "driver.memory"),
    ],
)
def test_api_server_rejects_invalid_pipeline_spec(release: Release, name: str, spec: dict[str, Any], text: str) -> None:
    with pytest.raises(CommandFailed, match=text):
        release.apply(pipeline(name, **spec))


def test_drivers_may_only_manage_pods(release: Release) -> None:
    account = f"--as=system:serviceaccount:{release.namespace}:flotilla-spark"
    listed = release.kubectl("auth", "can-i", "--list", account)
    ours = [line.split() for line in listed.splitlines()[1:] if "selfsubject" not in line and "[]" in line.split()[1:2]]
    permissions = {line[0]: line[-1] for line in ours if not line[0].startswith("[")}
    assert set(permissions) == {"pods"}, listed
