"""Pipelines: Spark applications on topics, run by the operator, while their pods are killed."""

import contextlib
import itertools
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.harness.cache import CommandFailed
from flotilla import Client
from support.cluster import wait_until
from support.release import Release
from support.sparkapps import QUICK

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
rows = spark.read.parquet("/checkpoint/parquet")
found = rows.selectExpr("count(*) AS n", "count(DISTINCT topic, partition, offset) AS different")
found.selectExpr("to_json(struct(*)) AS value").write.format("flotilla").option("topic", os.environ["TO"]).mode(
    "append"
).save()
"""
LONG_S = 240.0
_numbers = itertools.count()


def pipeline(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """Write a Pipeline that asks for little."""
    return {"apiVersion": "flotilla.dev/v1", "kind": "Pipeline", "metadata": {"name": name}, "spec": {**SMALL, **spec}}


@pytest.fixture(scope="module")
def client(release: Release, token: str) -> Iterator[Client]:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pipelines"}, "stringData": {"token": token}}
    release.apply(secret)
    release.wait_reachable()
    with Client(release.url, token=token) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"pipeline-{next(_numbers)}"


def fill(client: Client, topic: str, first: int, count: int, partitions: int = 3) -> None:
    """Append records, numbered, and wait until they are stored."""
    with client.producer() as producer:
        for at in range(partitions):
            values = [json.dumps({"level": "info", "number": n}).encode() for n in range(first, first + count)]
            sent = values[at::partitions]
            producer.send_many(topic, sent, keys=[b"key %d" % at] * len(sent), partition=at)
        producer.flush()


def count(client: Client, topic: str) -> int:
    return sum(one.next_offset for one in client.topics.offsets(topic))


def numbers(client: Client, topic: str) -> dict[bytes | None, list[int]]:
    """Read the numbers of each key, in their order."""
    found: dict[bytes | None, list[int]] = {}
    with client.consumer(topic) as consumer:
        for record in consumer.records(until="end"):
            found.setdefault(record.key, []).append(json.loads(record.value)["number"])
    return found


def status(release: Release, name: str) -> dict[str, Any]:
    found: dict[str, Any] = release.get("pipeline", name).get("status", {})
    return found


def wait_for(release: Release, name: str, what: str, **wanted: object) -> dict[str, Any]:
    """Wait until a status says so."""
    try:
        wait_until(what, lambda: wanted.items() <= status(release, name).items(), LONG_S)
    except TimeoutError as error:
        said = release.kubectl("describe", "pipeline", name)
        with contextlib.suppress(CommandFailed):
            said += release.kubectl("logs", f"{name}-driver", "--tail=60")
        raise AssertionError(f"{error}\n{said}\n{release.kubectl('get', 'pods')}") from error
    return status(release, name)


def executors(release: Release, name: str) -> list[str]:
    """Name the executors of a pipeline that run."""
    selector = f"--selector=flotilla.dev/pipeline={name},app.kubernetes.io/component=spark-executor"
    found = release.get("pods", selector)["items"]
    return [one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running"]


def is_there(release: Release, kind: str, name: str) -> bool:
    return bool(release.kubectl("get", kind, name, "--ignore-not-found"))


def test_a_batch_archives_a_topic_and_an_application_of_ones_own_reads_it(
    release: Release, client: Client, name: str
) -> None:
    """Built-in and own applications, a volume that both use, and a checkpoint that stays when its Pipeline goes."""
    client.topics.create(name, partitions=3)
    client.topics.create(f"{name}-counts", partitions=1)
    fill(client, name, 0, 3_000)
    release.apply(
        pipeline(
            name,
            application={"builtIn": "archive"},
            topics=[name],
            arguments=["--to", "/checkpoint/parquet"],
            checkpoint={"volume": {"size": "1Gi"}},
        )
    )
    shown = wait_for(release, name, "the archive to be written", phase="Succeeded")
    assert shown["attempt"] == 1, shown
    assert shown["offsets"] == {name: {"0": 1_000, "1": 1_000, "2": 1_000}}
    assert shown["lag"] == 0
    line = release.kubectl("get", "pipeline", name).splitlines()[1].split()
    assert line[:4] == [name, "Succeeded", "1", "0"]
    release.kubectl("delete", "pipeline", name)
    wait_until("its driver to go", lambda: not is_there(release, "pod", f"{name}-driver"), 60)
    assert is_there(release, "pvc", f"{name}-checkpoint")

    job = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-job"}, "data": {"main.py": COUNT}}
    release.apply(
        job,
        pipeline(
            f"{name}-count",
            application={"configMap": {"name": f"{name}-job"}},
            volumes=[{"claimName": f"{name}-checkpoint", "mountPath": "/checkpoint"}],
            env=[*SMALL["env"], {"name": "TO", "value": f"{name}-counts"}],
            executors={"instances": 0, "cores": 2},
            timeToLiveSeconds=0,
        ),
    )
    wait_until("it to be gone, as its time is over", lambda: not is_there(release, "pipeline", f"{name}-count"), LONG_S)
    with client.consumer(f"{name}-counts") as consumer:
        (found,) = consumer.records(until="end")
    assert json.loads(found.value) == {"n": 3_000, "different": 3_000}


def test_a_stream_goes_on_exactly_once_while_its_pods_are_killed(release: Release, client: Client, name: str) -> None:
    """Executors and the driver die, one after the other; every record arrives once, in the order of its key."""
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
            wait_until(f"all records to arrive, {what}", lambda: count(client, f"{name}-out") >= sent, LONG_S)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{status(release, name)}") from error

    send_and_wait("at first")
    (executor,) = executors(release, name)
    fill(client, name, sent, 6_000)
    sent += 6_000
    release.destroy(executor)
    send_and_wait("after an executor was killed")
    before = wait_for(release, name, "it to run on", phase="Running")
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
    wait_for(release, name, "the offsets to be shown", lag=0)

    release.patch(f"pipeline/{name}", {"spec": {"suspend": True}})
    wait_for(release, name, "it to be suspended", phase="Suspended")
    assert not is_there(release, "pod", f"{name}-driver")
    fill(client, name, sent, 300)
    wait_for(release, name, "the lag to be shown all the same", lag=300)
    release.patch(f"pipeline/{name}", {"spec": {"suspend": False}})
    wait_for(release, name, "it to catch up", phase="Running", lag=0)
    assert numbers(client, f"{name}-out") == numbers(client, name)

    release.kubectl("delete", "pipeline", name)
    wait_until("its driver to go", lambda: not is_there(release, "pod", f"{name}-driver"), 90)
    wait_until("its claim to go", lambda: not is_there(release, "pvc", f"{name}-checkpoint"), 90)
    wait_until("its executors to go", lambda: not executors(release, name), 60)


def test_a_schedule_runs_it_again_and_again_and_each_run_goes_on_where_the_last_one_ended(
    release: Release, client: Client, name: str
) -> None:
    client.topics.create(name, partitions=1)
    fill(client, name, 0, 100, partitions=1)
    release.apply(
        pipeline(
            name,
            application={"builtIn": "archive"},
            topics=[name],
            schedule="* * * * *",
            arguments=["--to", "/checkpoint/parquet"],
            checkpoint={"volume": {"size": "1Gi"}, "deletionPolicy": "Delete"},
            executors={"instances": 0, "cores": 1},
        )
    )
    shown = wait_for(release, name, "the first run", run=1, outcome="Succeeded")
    assert shown["offsets"] == {name: {"0": 100}}
    fill(client, name, 100, 50, partitions=1)
    wait_until("the second run", lambda: status(release, name).get("offsets") == {name: {"0": 150}}, LONG_S)
    assert status(release, name)["run"] >= 2
    assert status(release, name)["nextRunAt"] > shown["dueAt"]
    release.kubectl("delete", "pipeline", name)


def test_a_pipeline_that_cannot_work_says_why_and_is_tried_again_with_pauses(
    release: Release, client: Client, name: str
) -> None:
    assert client.topics.list() is not None
    release.apply(
        pipeline(
            name,
            topics=["no-such-topic"],
            application={"builtIn": "log_stats"},
            executors={"instances": 0},
            restart={"retries": 1, "backoffSeconds": 1},
        )
    )
    shown = wait_for(release, name, "it to be given up", phase="Failed")
    assert shown["attempt"] == 2
    assert "there is no topic 'no-such-topic'" in shown["failure"]
    assert "there is no topic 'no-such-topic'" in release.kubectl("describe", "pipeline", name)
    release.kubectl("delete", "pipeline", name)


def test_two_pipelines_never_use_one_checkpoint_at_a_time(release: Release, client: Client, name: str) -> None:
    client.topics.create(name, partitions=1)
    shared = {"volume": {"claimName": f"{name}-shared"}}
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"{name}-shared"}, "spec": size}
    common = {"application": {"builtIn": "log_stats"}, "topics": [name], "mode": "Stream", "checkpoint": shared}
    release.apply(claim, pipeline(f"{name}-a", **common, executors={"instances": 0}))
    wait_for(release, f"{name}-a", "the first to run", phase="Running")
    release.apply(pipeline(f"{name}-b", **common, executors={"instances": 0}))
    found = wait_until("the second to wait", lambda: status(release, f"{name}-b").get("conditions"), 60)
    assert found is not None
    reasons = {one["type"]: one["reason"] for one in found}
    assert reasons["Ready"] in {"CheckpointInUse", "Starting"}
    release.kubectl("delete", "pipeline", f"{name}-a", "--wait=false")
    wait_for(release, f"{name}-b", "the second to run then", phase="Running")
    assert not is_there(release, "pod", f"{name}-a-driver")
    release.kubectl("delete", "pipeline", f"{name}-b")
    release.kubectl("delete", "pvc", f"{name}-shared", "--wait=false")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"application": {}}, "exactly one of builtIn, file and configMap"),
        ({"application": {"builtIn": "archive"}, "topics": ["a"]}, "needs a checkpoint"),
        ({"application": {"builtIn": "log_stats"}}, "say which topics"),
        ({"application": {"file": "/a.py"}, "mode": "Stream"}, "mode Stream needs a checkpoint"),
        (
            {
                "application": {"file": "/a.py"},
                "mode": "Stream",
                "schedule": "0 * * * *",
                "checkpoint": {"url": "s3a://b"},
            },
            "a schedule is for mode Batch",
        ),
        ({"application": {"file": "/a.py"}, "checkpoint": {}}, "give a volume or a url"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(release: Release, name: str, spec: dict[str, Any], text: str) -> None:
    with pytest.raises(CommandFailed, match=text):
        release.apply(pipeline(name, **spec))


def test_drivers_may_make_pods_and_nothing_else(release: Release) -> None:
    account = f"--as=system:serviceaccount:{release.namespace}:flotilla-spark"
    listed = release.kubectl("auth", "can-i", "--list", account)
    ours = [line.split() for line in listed.splitlines()[1:] if "selfsubject" not in line and "[]" in line.split()[1:2]]
    rights = {line[0]: line[-1] for line in ours if not line[0].startswith("[")}
    assert set(rights) == {"pods"}, listed
