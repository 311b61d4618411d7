"""How a pipeline is, in a word and in a sentence. Pure."""

from dataclasses import dataclass

from flotilla_operator.conditions import FALSE, TRUE, Condition
from flotilla_operator.pipelines.executors import Executors
from flotilla_operator.pipelines.states import FAILED, RUNNING, SUCCEEDED, Pod, Record, is_to_start
from flotilla_operator.pipelines.wish import Pipeline

WAITING, STARTING, STOPPING, SUSPENDED = "Waiting", "Starting", "Stopping", "Suspended"
_SCHEDULED = "Scheduled"


@dataclass(frozen=True)
class Look:
    """What is shown: a phase, a reason in one word for programs, a sentence for people."""

    phase: str
    reason: str
    message: str


def of_driver(record: Record, pod: Pod, executors: Executors) -> Look:
    """Say how it is while there is a driver."""
    if pod.is_leaving or record.stopping is not None:
        return Look(STOPPING, STOPPING, f"its driver is being ended: {record.stopping or 'somebody deleted it'}")
    if pod.phase == RUNNING:
        return _running(record, executors)
    if pod.waits_for is not None:
        return Look(STARTING, "NotStarting", f"{_attempt(record)} waits: {pod.waits_for}")
    return Look(STARTING, STARTING, f"{_attempt(record)} is starting")


def _running(record: Record, executors: Executors) -> Look:
    """Say how it is while a driver runs: without a single executor, nothing is done."""
    if executors.waits_for is None:
        return Look(RUNNING, RUNNING, _attempt(record))
    if executors.running == 0:
        return Look(RUNNING, "NoExecutors", f"{_attempt(record)} has no executors: {executors.waits_for}")
    return Look(RUNNING, RUNNING, f"{_attempt(record)}, with fewer executors than it could have: {executors.waits_for}")


def between_drivers(wanted: Pipeline, record: Record, user: str | None, refusal: str | None) -> Look:
    """Say how it is while there is none. `user` is who else uses the checkpoint."""
    if wanted.is_suspended:
        return _suspended(wanted)
    if record.retry_at is not None:
        why = f": {record.failure}" if record.failure else ""
        text = f"{_attempt(record)} has ended{why}; the next begins at {record.retry_at}"
        return Look(WAITING, "BackingOff" if record.failure else WAITING, text)
    if is_to_start(record):
        if user is not None:
            return Look(WAITING, "CheckpointInUse", user)
        if refusal is not None:
            return Look(WAITING, "Refused", refusal)
        return Look(STARTING, STARTING, f"{_attempt(record)} is starting")
    return _after(wanted, record)


def _suspended(wanted: Pipeline) -> Look:
    if wanted.installation.image is None:
        text = "Spark is turned off in this installation: the chart's value spark.enabled turns it on"
        return Look(SUSPENDED, "SparkDisabled", text)
    return Look(SUSPENDED, SUSPENDED, "it is suspended; what it has read is kept")


def _after(wanted: Pipeline, record: Record) -> Look:
    """Say how it is when a run is over, or none has been due."""
    if record.outcome == FAILED:
        return Look(FAILED, FAILED, f"{_attempt(record)} has failed: {record.failure}")
    if wanted.cron is not None:
        text = f"run {record.run} has succeeded" if record.run else "it has not been due yet"
        return Look(WAITING, _SCHEDULED, text)
    return Look(SUCCEEDED, SUCCEEDED, f"{_attempt(record)} has succeeded")


def ready(look: Look) -> Condition:
    """Say whether it is well."""
    is_well = look.reason in {RUNNING, SUSPENDED, SUCCEEDED, _SCHEDULED}
    return Condition("Ready", TRUE if is_well else FALSE, look.reason, look.message)


def _attempt(record: Record) -> str:
    return f"attempt {record.attempt} of run {record.run}"
