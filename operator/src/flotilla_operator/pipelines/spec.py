"""The spec of a Pipeline, and the properties of its installation. Pure."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from flotilla.units import parse_size
from flotilla_operator.names import API_VERSION, COMPONENT, GROUP, INSTANCE, MANAGED_BY, NAME, OPERATOR, PART_OF
from flotilla_operator.pipelines import schedule

SPARK_DRIVER, SPARK_EXECUTOR = "spark-driver", "spark-executor"  # container names, and values of the label COMPONENT
DRIVER_LABELS = {PART_OF: "flotilla", COMPONENT: SPARK_DRIVER}  # of all drivers, also of other installations
EXECUTOR_LABELS = {PART_OF: "flotilla", COMPONENT: SPARK_EXECUTOR}
PIPELINE_LABEL = f"{GROUP}/pipeline"  # name of the Pipeline of a pod
CHECKPOINT = f"{GROUP}/checkpoint"  # annotation of drivers: the checkpoint in use
BATCH, STREAM = "Batch", "Stream"
ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"
DELETE = "Delete"
CHECKPOINT_PATH = "/checkpoint"
_MEMORY_MIN = 1 << 30
_RETRIES = 3
# Without a schedule, a change of these fields starts a new run.
RUN_FIELDS = ("application", "topics", "arguments", "mode", "image", "env")
# Set by the operator: the spec has a field for it, or it would give pods more permissions.
_RESERVED_PROPERTIES = {"spark.kubernetes.allocation.pods.allocator"}
_RESERVED_PREFIXES = (
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.host",
    "spark.driver.memory",  # and spark.driver.memoryOverhead
    "spark.driver.port",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",  # and spark.executor.memoryOverhead
    "spark.kubernetes.",
    "spark.master",
    "spark.submit.",
)
_ALLOWED_PREFIXES = ("spark.kubernetes.allocation.", "spark.kubernetes.local.dirs.")  # within the reserved ones
_OPERATOR_VARIABLES = {"POD_IP", "SPARK_PROPERTIES", "SPARK_EXECUTOR_TEMPLATE"}  # and FLOTILLA_*
_OPERATOR_ARGUMENTS = {"--checkpoint", "--once", "--run-id"}
_OUTPUTS = {"--to-topic", "--to-parquet"}  # outputs of log_stats besides its log
_PROPERTY = re.compile(r"spark\.[A-Za-z0-9_.-]+")

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PipelineInstallation:
    """Properties of the installation that all its Pipelines have in common, from the settings of the operator."""

    namespace: str
    instance: str
    app: str
    url: str  # of the client API
    image: str | None  # None if Spark is disabled
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    driver_account: str
    executor_account: str
    tls_secret: str | None  # only its key ca.crt is mounted


@dataclass(frozen=True, kw_only=True)
class Restart:
    """Restart policy of the driver."""

    policy: str
    retries: int | None  # None: unlimited
    backoff_s: int
    backoff_max_s: int

    def wait_s(self, failures: int) -> int:
        """Return the delay after a number of consecutive failures."""
        return min(self.backoff_s << min(max(failures - 1, 0), 20), self.backoff_max_s)


@dataclass(frozen=True, kw_only=True)
class PipelineSpec:
    """Desired state of a Pipeline."""

    name: str
    uid: str
    generation: int
    created_at: str
    installation: PipelineInstallation
    application: Mapping[str, Any]
    mode: str
    restart: Restart
    spec: Mapping[str, Any] = field(hash=False)
    topics: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    cron: str | None = None
    is_suspended: bool = False
    ttl_s: int | None = None

    @property
    def driver(self) -> str:
        """Name of the driver pod, the same in all attempts, so that there are never two."""
        return driver_name(self.name)

    @property
    def claim(self) -> str | None:
        """Name of the claim of the checkpoint, if it is on a volume."""
        return _claim(self.name, self.spec)

    @property
    def checkpoint(self) -> str | None:
        """Identity of the checkpoint, which one driver at a time may use."""
        return _checkpoint(self.name, self.spec)

    @property
    def checkpoint_location(self) -> str | None:
        """Path or URL of the checkpoint for Spark."""
        url = (self.spec.get("checkpoint") or {}).get("url")
        return f"{CHECKPOINT_PATH}/{self.name}" if self.claim else url

    @property
    def is_on_one_node(self) -> bool:
        """Whether all pods must run on one node, because of the access mode of the volume."""
        volume = (self.spec.get("checkpoint") or {}).get("volume") or {}
        return self.claim is not None and volume.get("accessMode", "ReadWriteOnce") == "ReadWriteOnce"

    @property
    def fingerprint(self) -> str:
        """Digest of the fields that start a new run when they change, unless there is a schedule."""
        counted = {key: self.spec[key] for key in RUN_FIELDS if self.spec.get(key) is not None}
        return digest({**counted, "checkpoint": self.checkpoint})

    @property
    def owner(self) -> dict[str, Any]:
        """Owner reference of children."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Pipeline",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }

    def labels(self, component: str) -> dict[str, str]:
        """Return the labels of a child."""
        return {
            NAME: self.installation.app,
            INSTANCE: self.installation.instance,
            COMPONENT: component,
            MANAGED_BY: OPERATOR,
            PART_OF: "flotilla",
            PIPELINE_LABEL: self.name,
        }


def read_pipeline(resource: Resource, installation: PipelineInstallation) -> PipelineSpec:
    """Read a resource that the API server has validated. `check` validates the rest."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    mode, restart = spec.get("mode", BATCH), spec.get("restart") or {}
    return PipelineSpec(
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created_at=metadata.get("creationTimestamp", ""),
        installation=installation,
        application=spec.get("application") or {},
        mode=mode,
        topics=tuple(spec.get("topics") or ()),
        arguments=tuple(spec.get("arguments") or ()),
        cron=spec.get("schedule"),
        is_suspended=bool(spec.get("suspend")) or installation.image is None,
        ttl_s=spec.get("timeToLiveSeconds"),
        restart=Restart(
            policy=restart.get("policy") or (ALWAYS if mode == STREAM else ON_FAILURE),
            retries=restart.get("retries", None if mode == STREAM else _RETRIES),
            backoff_s=restart.get("backoffSeconds", 10),
            backoff_max_s=restart.get("backoffMaxSeconds", 300),
        ),
        spec=spec,
    )


def check(spec: Mapping[str, Any]) -> None:
    """Validate what the CRD cannot; raises ValueError."""
    if spec.get("schedule") is not None:
        schedule.check(spec["schedule"])
    for role in ("driver", "executors"):
        if memory_bytes(spec, role) < _MEMORY_MIN:
            raise ValueError(f"spec.{role}.memory is {spec[role]['memory']}: must be at least 1Gi")
    _check_settings(spec)


def _check_settings(spec: Mapping[str, Any]) -> None:
    """Reject settings that the operator sets itself; raises ValueError."""
    invalid = sorted(name for name in spec.get("sparkConf") or {} if not _PROPERTY.fullmatch(name))
    if invalid:
        names = ", ".join(map(repr, invalid))
        raise ValueError(f"spec.sparkConf contains invalid names: {names}; names must match {_PROPERTY.pattern}")
    reserved = sorted(name for name in spec.get("sparkConf") or {} if _is_reserved(name))
    if reserved:
        raise ValueError(
            f"spec.sparkConf contains properties that the operator sets; remove them: {', '.join(reserved)}"
        )
    taken = sorted(one["name"] for one in spec.get("env") or () if _is_operator_variable(one["name"]))
    if taken:
        raise ValueError(f"spec.env contains variables that the operator sets; remove them: {', '.join(taken)}")
    if "builtIn" not in (spec.get("application") or {}):
        return
    fixed = [one for one in spec.get("arguments") or () if one.partition("=")[0] in _OPERATOR_ARGUMENTS]
    if fixed:
        why = "which the operator sets from mode, checkpoint and run; remove it"
        raise ValueError(f"spec.arguments contains {fixed[0]}, {why}")
    if has_stored_output(spec) and spec["application"]["builtIn"] == "log_stats" and not spec.get("checkpoint"):
        raise ValueError("spec.checkpoint is required for log_stats with --to-topic or --to-parquet")


def has_stored_output(spec: Mapping[str, Any]) -> bool:
    """Whether the output is stored.

    log_stats without an output prints a table in the driver, and counts from zero at each start.
    """
    names = {one.partition("=")[0] for one in spec.get("arguments") or ()}
    return (spec.get("application") or {}).get("builtIn") != "log_stats" or bool(names & _OUTPUTS)


def runs_in_driver_only(spec: Mapping[str, Any]) -> bool:
    """Whether a Pipeline has no executors: without stored output, log_stats prints its table in the driver."""
    return not has_stored_output(spec)


def driver_name(pipeline: str) -> str:
    """Return the name of the driver pod of a Pipeline."""
    return f"{pipeline}-driver"


def checkpoint_of(resource: Resource) -> str | None:
    """Return the checkpoint of a resource, even if the rest of its spec is invalid; None if it is being deleted."""
    metadata = resource["metadata"]
    return None if "deletionTimestamp" in metadata else _checkpoint(metadata["name"], resource.get("spec") or {})


def _claim(name: str, spec: Mapping[str, Any]) -> str | None:
    volume = (spec.get("checkpoint") or {}).get("volume")
    return (volume.get("claimName") or f"{name}-checkpoint") if volume else None


def _checkpoint(name: str, spec: Mapping[str, Any]) -> str | None:
    claim, url = _claim(name, spec), (spec.get("checkpoint") or {}).get("url")
    return f"claim {claim}" if claim else (f"url {url.rstrip('/')}" if url else None)


def memory_bytes(spec: Mapping[str, Any], role: str) -> int:
    """Return the memory limit of the driver or the executors."""
    text = (spec.get(role) or {}).get("memory", "2Gi")
    return parse_size(text)


def digest(data: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the digest of JSON data, independent of the order of keys."""
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()[:16]


def parse_time(text: str) -> datetime:
    """Parse a time in the format of Kubernetes."""
    return datetime.fromisoformat(text)


def _is_operator_variable(name: str) -> bool:
    return name in _OPERATOR_VARIABLES or name.startswith("FLOTILLA_")


def _is_reserved(name: str) -> bool:
    return name in _RESERVED_PROPERTIES or (
        name.startswith(_RESERVED_PREFIXES) and not name.startswith(_ALLOWED_PREFIXES)
    )
