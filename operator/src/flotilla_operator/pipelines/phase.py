"""Phase of a Pipeline, with reason and message, and the count of its executors. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from flotilla_operator.conditions import FALSE, TRUE, Condition
from flotilla_operator.pipelines.spec import PipelineSpec
from flotilla_operator.pipelines.states import FAILED, RUNNING, SUCCEEDED, Pod, RunState, is_start_pending

WAITING, STARTING, STOPPING, SUSPENDED = "Waiting", "Starting", "Stopping", "Suspended"
_SCHEDULED = "Scheduled"


@dataclass(frozen=True)
class Phase:
    """A phase, with the reason and the message of the condition Ready."""

    name: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Executors:
    """Executors of one driver."""

    running: int = 0
    start_error: str | None = None  # why an executor cannot start, if one cannot


def count_executors(pods: Iterable[Pod]) -> dict[str, Executors]:
    """Count executors by the UID of their driver, without those that have ended or are being deleted."""
    found: dict[str, Executors] = {}
    for pod in pods:
        if pod.owner is None or pod.is_terminating or pod.has_ended:
            continue
        known = found.get(pod.owner, Executors())
        error = f"{pod.name} cannot start: {pod.start_error}" if pod.start_error is not None else None
        found[pod.owner] = Executors(
            running=known.running + (pod.phase == RUNNING), start_error=known.start_error or error
        )
    return found


def phase_of_driver(run_state: RunState, pod: Pod, executors: Executors) -> Phase:
    """Return the phase while a driver pod exists."""
    if pod.is_terminating or run_state.stopping is not None:
        return Phase(STOPPING, STOPPING, f"The driver is being stopped: {run_state.stopping or 'Its pod was deleted'}")
    if pod.phase == RUNNING:
        return _running(run_state, executors)
    if pod.start_error is not None:
        return Phase(STARTING, "NotStarting", f"{_attempt(run_state)} cannot start: {pod.start_error}")
    return Phase(STARTING, STARTING, f"{_attempt(run_state)} is starting")


def _running(run_state: RunState, executors: Executors) -> Phase:
    """Return the phase while a driver runs: without any executor it makes no progress."""
    if executors.start_error is None:
        return Phase(RUNNING, RUNNING, f"{_attempt(run_state)} is running")
    if executors.running == 0:
        return Phase(RUNNING, "NoExecutors", f"{_attempt(run_state)} has no running executors: {executors.start_error}")
    text = f"{_attempt(run_state)} is running with fewer executors than requested: {executors.start_error}"
    return Phase(RUNNING, RUNNING, text)


def phase_between_drivers(
    desired: PipelineSpec, run_state: RunState, checkpoint_conflict: str | None, rejection: str | None
) -> Phase:
    """Return the phase while no driver pod exists. `checkpoint_conflict` describes another user of the checkpoint."""
    if desired.is_suspended:
        return _suspended(desired)
    if run_state.retry_at is not None:
        end = f"failed: {run_state.failure}" if run_state.failure else "ended"
        text = f"{_attempt(run_state)} {end}; the next attempt starts at {run_state.retry_at}"
        return Phase(WAITING, "BackingOff" if run_state.failure else WAITING, text)
    if is_start_pending(run_state):
        if checkpoint_conflict is not None:
            return Phase(WAITING, "CheckpointInUse", checkpoint_conflict)
        if rejection is not None:
            return Phase(WAITING, "Rejected", rejection)
        return Phase(STARTING, STARTING, f"{_attempt(run_state)} is starting")
    return _after(desired, run_state)


def _suspended(desired: PipelineSpec) -> Phase:
    if desired.installation.image is None:
        text = "Spark is disabled; set the chart's value spark.enabled to true"
        return Phase(SUSPENDED, "SparkDisabled", text)
    kept = "; its checkpoint is kept" if desired.checkpoint is not None else ""
    return Phase(SUSPENDED, SUSPENDED, f"The Pipeline is suspended{kept}")


def _after(desired: PipelineSpec, run_state: RunState) -> Phase:
    """Return the phase after a run, or before the first one."""
    if run_state.outcome == FAILED:
        return Phase(FAILED, FAILED, f"{_attempt(run_state)} failed: {run_state.failure}")
    if desired.cron is not None:
        text = f"Run {run_state.run} succeeded" if run_state.run else "No run has been due yet"
        return Phase(WAITING, _SCHEDULED, text)
    return Phase(SUCCEEDED, SUCCEEDED, f"{_attempt(run_state)} succeeded")


def ready_condition(phase: Phase) -> Condition:
    """Return the condition Ready: true while the driver runs or none is due, and after a success."""
    is_ready = phase.reason in {RUNNING, SUSPENDED, SUCCEEDED, _SCHEDULED}
    return Condition("Ready", TRUE if is_ready else FALSE, phase.reason, phase.message)


def _attempt(run_state: RunState) -> str:
    return f"Attempt {run_state.attempt} of run {run_state.run}"
