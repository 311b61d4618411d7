"""Specs of Pipelines, their pods, and the reports of drivers."""

from typing import Any

import msgspec
import pytest

from flotilla_operator.pipelines import driver_pod, schedule
from flotilla_operator.pipelines.progress import read_progress, status_fields
from flotilla_operator.pipelines.spec import parse_time, read_pipeline

from .pipeline_cluster import CHECKPOINT, INSTALLATION, kubernetes, pipeline, ready


@pytest.mark.parametrize(
    "spec",
    [
        {"schedule": "every day"},
        {"schedule": "0 0 31 2 *"},
        {"driver": {"memory": "512Mi"}},
        {"env": [{"name": "SPARK_PROPERTIES", "value": "{}"}]},
        {"env": [{"name": "FLOTILLA_URL", "value": "http://elsewhere"}]},
        {"schedule": "*/10 * * * * *"},
        {"sparkConf": {"spark.a 1\nspark.master": "local"}},
        {"arguments": ["--to-topic", "counts", "--checkpoint=/elsewhere"]},
        {"arguments": ["--once"], "mode": "Stream"},
        {"arguments": ["--to-topic", "counts"]},
        {"application": {"builtIn": "load"}, "arguments": ["/in", "--run-id=every-night"]},
    ],
)
def test_invalid_pipeline_spec_is_reported(spec: dict[str, Any]) -> None:
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
        "spark.kubernetes.allocation.pods.allocator",
    ],
)
def test_reserved_spark_properties_are_rejected(name: str) -> None:
    status = kubernetes(sparkConf={name: "another"}).settle()
    assert name in ready(status)[2]


def test_driver_has_its_own_permissions_and_executors_have_none() -> None:
    wanted = read_pipeline(pipeline(mode="Stream", checkpoint=CHECKPOINT, token={"secretName": "mine"}), INSTALLATION)
    pod = driver_pod.make(wanted, 1, 1)
    template = driver_pod.executor_template(wanted)
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
        assert {"name": "FLOTILLA_TOKEN_SOURCE", "value": "key 'token' of Secret mine"} in container["env"]
    assert "kubernetes" not in [one["name"] for one in template["spec"]["volumes"]]
    together = template["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert together[0]["topologyKey"] == "kubernetes.io/hostname"


def test_pods_with_a_shared_volume_have_no_node_affinity() -> None:
    many = {"volume": {"size": "1Gi", "accessMode": "ReadWriteMany"}}
    wanted = read_pipeline(pipeline(checkpoint=many), INSTALLATION)
    assert "affinity" not in driver_pod.executor_template(wanted)["spec"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"application": {"builtIn": "archive"}, "checkpoint": CHECKPOINT, "arguments": ["--to", "/x"]},
            ["driver", "flotilla_spark.archive", "logs", "--checkpoint", "/checkpoint/stats", "--once", "--to", "/x"],
        ),
        (
            {"mode": "Stream", "checkpoint": {"url": "s3a://b/c"}, "topics": ["a", "b"], "arguments": ["--to-topic=n"]},
            ["driver", "flotilla_spark.log_stats", "a,b", "--checkpoint", "s3a://b/c", "--to-topic=n"],
        ),
        (
            {"mode": "Stream", "checkpoint": {"url": "s3a://b/c"}, "arguments": ["--window", "1h"]},
            ["driver", "flotilla_spark.log_stats", "logs", "--window", "1h"],
        ),
        (
            {"application": {"builtIn": "load"}, "arguments": ["/in"]},
            ["driver", "flotilla_spark.load", "logs", "--run-id", "uid of stats/3", "/in"],
        ),
        ({"application": {"file": "/opt/job.py"}, "arguments": ["1"]}, ["driver", "/opt/job.py", "1"]),
        (
            {"application": {"configMap": {"name": "jobs", "key": "a.py"}}},
            ["driver", "/etc/flotilla/application/a.py"],
        ),
    ],
)
def test_application_gets_the_arguments_of_the_spec(spec: dict[str, Any], words: list[str]) -> None:
    assert driver_pod.arguments(read_pipeline(pipeline(**spec), INSTALLATION), 3) == words


def test_dollar_signs_of_a_spec_are_not_expanded() -> None:
    """Kubernetes expands $(NAME) and $$: a secret could appear on a command line."""
    said: dict[str, Any] = {"arguments": ["--pattern", "^a$$(FLOTILLA_TOKEN)"], "sparkConf": {"spark.a": "$(POD_IP)"}}
    said["application"] = {"file": "/opt/job.py"}
    wanted = read_pipeline(pipeline(**said), INSTALLATION)
    (container,) = driver_pod.make(wanted, 1, 1)["spec"]["containers"]
    assert container["args"][-1] == "^a$$$$(FLOTILLA_TOKEN)"
    values = {one["name"]: one.get("value", "") for one in container["env"]}
    assert '"spark.a": "$$(POD_IP)"' in values["SPARK_PROPERTIES"]
    assert '"spark.driver.host": "$(POD_IP)"' in values["SPARK_PROPERTIES"]


def test_pod_memory_is_split_between_jvm_and_python() -> None:
    shared: dict[str, Any] = {
        "application": {"file": "/opt/job.py"},
        "executors": {"instances": 3, "cores": 2, "memory": "4Gi"},
    }
    wanted = read_pipeline(pipeline(**shared), INSTALLATION)
    properties = driver_pod.properties(wanted)
    assert (properties["spark.executor.memory"], properties["spark.executor.memoryOverhead"]) == ("2457m", "1638m")
    assert (properties["spark.executor.instances"], properties["spark.kubernetes.executor.request.cores"]) == ("3", "2")
    alone = driver_pod.properties(read_pipeline(pipeline(executors={"instances": 0, "cores": 2}), INSTALLATION))
    assert alone["spark.master"] == "local[2]"
    table = driver_pod.properties(read_pipeline(pipeline(executors={"instances": 3}), INSTALLATION))
    assert table["spark.master"] == "local[1]", "what is counted for a table in a log is on the disk of one pod"


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
def test_run_is_due_at_the_last_scheduled_time(cron: str, since: str, now: str, due: str | None) -> None:
    found = schedule.last_due(cron, parse_time(since), parse_time(now))
    assert found == (None if due is None else parse_time(due))


@pytest.mark.parametrize(
    "report",
    [
        {"time": "yesterday"},
        {"time": "0001-01-01T00:00:00+1400"},
        {"time": "0999-01-01T00:00:00Z"},
        {"time": "2026-03-01T12:01:00Z", "offsets": {"x" * 201: {}}},
        {"time": "2026-03-01T12:01:00Z", "offsets": {str(at): {} for at in range(1001)}},
        {"time": "2026-03-01T12:01:00Z", "records": -1},
        {"time": "2026-03-01T12:01:00Z", "offsets": {"logs": {"0": 2**63}}},
        {"time": "2026-03-01T12:01:00Z", "offsets": {"logs": {"0": "many"}}},
        ["nothing of the kind"],
    ],
)
def test_invalid_progress_of_a_driver_is_rejected(report: object) -> None:
    """A driver runs code of users: its report must never make a status that Kubernetes rejects."""
    with pytest.raises(msgspec.DecodeError):
        read_progress(msgspec.json.encode(report))


def test_oversized_offsets_are_omitted() -> None:
    report = {"time": "2026-03-01T12:01:00Z", "offsets": {f"{at:03}" + "😀" * 190: {"0": 1} for at in range(500)}}
    found = status_fields(read_progress(msgspec.json.encode(report)), {"offsets": {"logs": {"0": 1}}, "lag": 5}, None)
    assert found.keys() == {"lastProgress"}


def test_progress_time_is_normalized() -> None:
    found = read_progress(b'{"time": "2026-1-2T3:4:5+0100"}')
    assert found is not None
    assert found.moment == "2026-01-02T02:04:05Z"
