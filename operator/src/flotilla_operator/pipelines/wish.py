"""What a Pipeline resource wants, and what the operator was told about all of them. Pure."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from flotilla_operator.names import API_VERSION, COMPONENT, GROUP, INSTANCE, MANAGED_BY, NAME, OPERATOR, PART_OF
from flotilla_operator.pipelines import schedule

DRIVER, EXECUTOR = "spark-driver", "spark-executor"
DRIVERS = {PART_OF: "flotilla", COMPONENT: DRIVER}  # labels of all drivers, those of other installations as well
EXECUTORS = {PART_OF: "flotilla", COMPONENT: EXECUTOR}
PIPELINE_LABEL = f"{GROUP}/pipeline"  # whose driver or executor a pod is
CHECKPOINT = f"{GROUP}/checkpoint"  # an annotation of drivers: what nobody else may use meanwhile
BATCH, STREAM = "Batch", "Stream"
ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"
DELETE = "Delete"
CHECKPOINT_PATH = "/checkpoint"
_MEMORY_MIN = 1 << 30
_UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}
_RETRIES = 3
# What a batch is run again for, if it changes. All else is about how it is run, or when.
_ABOUT = ("application", "topics", "arguments", "mode", "image", "env")
# What the operator says itself: the spec has a field for it, or it would give pods rights that they must not have.
_RESERVED = (
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.driver.port",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.kubernetes.allocation.pods.allocator",
    "spark.kubernetes.",
    "spark.master",
    "spark.submit.",
)
_OURS = {"POD_IP", "SPARK_PROPERTIES", "SPARK_EXECUTOR_TEMPLATE"}  # and all that begins with FLOTILLA_
_SAID = {"--checkpoint", "--once", "--run-id"}
_KEEPS = {"--to-topic", "--to-parquet"}  # where log_stats writes, unless it is a table in a log
_PROPERTY = re.compile(r"spark\.[A-Za-z0-9_.-]+")
_NOT_RESERVED = ("spark.kubernetes.allocation.", "spark.kubernetes.local.dirs.")

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What all pipelines of an installation have in common; the chart tells it to the operator."""

    namespace: str
    instance: str
    app: str
    url: str  # of the API, for clients
    image: str | None  # None where Spark is turned off: nothing runs then
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    driver_account: str = "flotilla-spark"
    executor_account: str = "default"
    tls_secret: str | None = None  # of its keys, only ca.crt is mounted


@dataclass(frozen=True, kw_only=True)
class Restart:
    """What happens when a driver ends."""

    policy: str
    retries: int | None  # None: for ever
    backoff_s: int
    backoff_max_s: int

    def wait_s(self, failures: int) -> int:
        """Tell how long to wait after so many failures in a row."""
        return min(self.backoff_s << min(max(failures - 1, 0), 20), self.backoff_max_s)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What a pipeline should be."""

    name: str
    uid: str
    generation: int
    created_at: str
    installation: Installation
    application: Mapping[str, Any]
    mode: str
    restart: Restart
    spec: Mapping[str, Any] = field(hash=False)
    topics: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    cron: str | None = None
    is_suspended: bool = False
    lives_s: int | None = None

    @property
    def driver(self) -> str:
        """Its driver's pod. A name for all attempts: so there are never two."""
        return f"{self.name}-driver"

    @property
    def claim(self) -> str | None:
        """The claim of its checkpoint, if that is on a volume."""
        return _claim(self.name, self.spec)

    @property
    def checkpoint(self) -> str | None:
        """What nobody else may use at the same time."""
        return _checkpoint(self.name, self.spec)

    @property
    def checkpoint_place(self) -> str | None:
        """Where the checkpoint is, for Spark."""
        url = (self.spec.get("checkpoint") or {}).get("url")
        return f"{CHECKPOINT_PATH}/{self.name}" if self.claim else url

    @property
    def is_on_one_node(self) -> bool:
        """Whether all of its pods have to be on one node: their volume is not for more."""
        volume = (self.spec.get("checkpoint") or {}).get("volume") or {}
        return self.claim is not None and volume.get("accessMode", "ReadWriteOnce") == "ReadWriteOnce"

    @property
    def fingerprint(self) -> str:
        """What a batch is of: with another one, it is run again."""
        counted = {key: self.spec[key] for key in _ABOUT if self.spec.get(key) is not None}
        return digest({**counted, "checkpoint": self.checkpoint})

    @property
    def owner(self) -> dict[str, Any]:
        """Whom children belong to: they go with it."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Pipeline",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }

    def labels(self, component: str) -> dict[str, str]:
        """What a child has."""
        return {
            NAME: self.installation.app,
            INSTANCE: self.installation.instance,
            COMPONENT: component,
            MANAGED_BY: OPERATOR,
            PART_OF: "flotilla",
            PIPELINE_LABEL: self.name,
        }


def read_pipeline(resource: Resource, installation: Installation) -> Pipeline:
    """Read a resource that the API server has let in. What only we can see, `check` does."""
    metadata, spec = resource["metadata"], resource.get("spec") or {}
    mode, restart = spec.get("mode", BATCH), spec.get("restart") or {}
    return Pipeline(
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
        lives_s=spec.get("timeToLiveSeconds"),
        restart=Restart(
            policy=restart.get("policy") or (ALWAYS if mode == STREAM else ON_FAILURE),
            retries=restart.get("retries", None if mode == STREAM else _RETRIES),
            backoff_s=restart.get("backoffSeconds", 10),
            backoff_max_s=restart.get("backoffMaxSeconds", 300),
        ),
        spec=spec,
    )


def check(spec: Mapping[str, Any]) -> None:
    """See that a spec can be done; raises ValueError."""
    if spec.get("schedule") is not None:
        schedule.check(spec["schedule"])
    for who in ("driver", "executors"):
        if memory_bytes(spec, who) < _MEMORY_MIN:
            raise ValueError(f"{who}.memory is less than 1Gi, which is too little for Spark")
    _check_settings(spec)


def _check_settings(spec: Mapping[str, Any]) -> None:
    """See that nothing is said twice; raises ValueError."""
    strange = sorted(name for name in spec.get("sparkConf") or {} if not _PROPERTY.fullmatch(name))
    if strange:
        raise ValueError(f"sparkConf has names that are none of Spark's: {', '.join(map(repr, strange))}")
    refused = sorted(name for name in spec.get("sparkConf") or {} if _is_reserved(name))
    if refused:
        raise ValueError(f"sparkConf has properties that the operator sets itself: {', '.join(refused)}")
    taken = sorted(one["name"] for one in spec.get("env") or () if _is_ours(one["name"]))
    if taken:
        raise ValueError(f"env has variables that the operator sets itself: {', '.join(taken)}")
    if "builtIn" not in (spec.get("application") or {}):
        return
    said = [one for one in spec.get("arguments") or () if one.partition("=")[0] in _SAID]
    if said:
        raise ValueError(f"arguments has {said[0]}, which the operator says itself, by mode, checkpoint and run")
    if is_kept(spec) and spec["application"]["builtIn"] == "log_stats" and not spec.get("checkpoint"):
        raise ValueError("log_stats with --to-topic or --to-parquet needs a checkpoint, to go on where it was")


def is_kept(spec: Mapping[str, Any]) -> bool:
    """Whether what is counted is kept where all pods reach it: a table in a log is made by one, at each start."""
    names = {one.partition("=")[0] for one in spec.get("arguments") or ()}
    return (spec.get("application") or {}).get("builtIn") != "log_stats" or bool(names & _KEEPS)


def checkpoint_of(resource: Resource) -> str | None:
    """Tell which checkpoint a resource has; whether the rest of it can be read or not. None if it is being deleted."""
    metadata = resource["metadata"]
    return None if "deletionTimestamp" in metadata else _checkpoint(metadata["name"], resource.get("spec") or {})


def _claim(name: str, spec: Mapping[str, Any]) -> str | None:
    volume = (spec.get("checkpoint") or {}).get("volume")
    return (volume.get("claimName") or f"{name}-checkpoint") if volume else None


def _checkpoint(name: str, spec: Mapping[str, Any]) -> str | None:
    claim, url = _claim(name, spec), (spec.get("checkpoint") or {}).get("url")
    return f"claim {claim}" if claim else (f"url {url.rstrip('/')}" if url else None)


def memory_bytes(spec: Mapping[str, Any], who: str) -> int:
    """Tell how much a pod may use."""
    text = (spec.get(who) or {}).get("memory", "2Gi")
    return int(text[:-2]) * _UNITS[text[-2:]]


def digest(data: Any) -> str:  # noqa: ANN401 - any JSON
    """Give the digest of data, whatever the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()[:16]


def parse_time(text: str) -> datetime:
    """Read a time of Kubernetes."""
    return datetime.fromisoformat(text)


def _is_ours(name: str) -> bool:
    return name in _OURS or name.startswith("FLOTILLA_")


def _is_reserved(name: str) -> bool:
    return name in _RESERVED or (name.startswith(_RESERVED) and not name.startswith(_NOT_RESERVED))
