"""State machine of a Pipeline: runs and attempts. Pure.

A run is one execution of the application. A schedule starts one each time; without a schedule, the first one starts at
once, and another one when the fields in `spec.RUN_FIELDS` or the location of the checkpoint change. An attempt is one
driver of a run.

Every decision is written to the status first, and a later reconcile acts on it. So an operator that crashes at any time
neither forgets an attempt nor counts one twice. The driver pod has the same name in all attempts, and an attempt starts
only when no such pod exists, so a Pipeline never has two drivers. `plan` compares checkpoints with other Pipelines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from flotilla_operator.brokers.pods import failure_of
from flotilla_operator.pipelines import driver_pod, schedule
from flotilla_operator.pipelines.progress import TerminationMessage, read_termination_message
from flotilla_operator.pipelines.spec import (
    ALWAYS,
    CHECKPOINT,
    ON_FAILURE,
    SPARK_DRIVER,
    STREAM,
    PipelineSpec,
    parse_time,
)

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
_FAILURE_MAX = 2000
BACKOFF_RESET_S = 600  # after a stream has run this long, a failure counts as the first one

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The current run and its last attempt, as recorded in the status."""

    run: int = 0
    attempt: int = 0
    failures: int = 0
    run_fingerprint: str | None = None  # of the spec of the run
    generation: int | None = None  # of the spec of the attempt
    due_at: str | None = None
    outcome: str | None = None  # of the run: Succeeded or Failed; None before its end
    driver_uid: str | None = None  # UID of the attempt's pod, once observed
    ended_uid: str | None = None  # UID of the last pod whose end was observed
    stopping: str | None = None  # why the operator stops the driver
    started_at: str | None = None
    finished_at: str | None = None
    retry_at: str | None = None
    failure: str | None = None


_NAMES = {
    "run": "run", "attempt": "attempt", "failures": "failures", "run_fingerprint": "of", "generation": "ofGeneration",
    "due_at": "dueAt", "outcome": "outcome",
    "driver_uid": "driverUid", "ended_uid": "endedUid", "stopping": "stopping", "started_at": "startedAt",
    "finished_at": "finishedAt", "retry_at": "retryAt", "failure": "failure",
}  # fmt: skip


def read_run_state(status: Mapping[str, Any]) -> RunState:
    """Read the state of the run from a status."""
    return RunState(**{name: status[key] for name, key in _NAMES.items() if status.get(key) is not None})


def write_run_state(run_state: RunState) -> dict[str, Any]:
    """Write the state of the run as fields of a status."""
    return {key: getattr(run_state, name) for name, key in _NAMES.items() if getattr(run_state, name) is not None}


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A driver pod or an executor pod."""

    name: str
    uid: str
    owner: str | None
    phase: str  # Pending, Running, Succeeded, Failed
    pod_spec_digest: str | None = None
    mode: str | None = None  # of the spec of the pod
    checkpoint: str | None = None
    address: str | None = None
    is_terminating: bool = False
    is_scheduled: bool = False  # to a node
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    start_error: str | None = None  # why it does not start
    termination: TerminationMessage = field(default_factory=TerminationMessage)

    @property
    def has_ended(self) -> bool:
        """Whether its containers have ended."""
        return self.phase in {SUCCEEDED, FAILED}


def read_pod(resource: Resource) -> Pod:
    """Read a driver pod or an executor pod."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    annotations = metadata.get("annotations") or {}
    containers = {one["name"]: one for one in status.get("containerStatuses") or ()}  # sidecars may be injected
    state = containers.get(SPARK_DRIVER, {}).get("state") or {}
    ended = state.get("terminated") or {}
    phase = status.get("phase", PENDING)
    if ended and phase == RUNNING:  # sidecars may keep running
        phase = SUCCEEDED if ended.get("exitCode") == 0 else FAILED
    scheduled: Mapping[str, Any] = next(
        (one for one in status.get("conditions") or () if one["type"] == "PodScheduled"), {}
    )
    scheduling_error = scheduled.get("message") if scheduled.get("status") == "False" else None
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        owner=next((one["uid"] for one in metadata.get("ownerReferences") or () if one.get("controller")), None),
        phase=phase,
        pod_spec_digest=annotations.get(driver_pod.SPEC_DIGEST),
        mode=annotations.get(driver_pod.MODE),
        checkpoint=annotations.get(CHECKPOINT),
        address=status.get("podIP"),
        is_terminating="deletionTimestamp" in metadata,
        is_scheduled=bool((resource.get("spec") or {}).get("nodeName")),
        created_at=metadata.get("creationTimestamp"),
        started_at=(state.get("running") or {}).get("startedAt") or ended.get("startedAt") or status.get("startTime"),
        finished_at=ended.get("finishedAt"),
        start_error=failure_of(status) or scheduling_error,
        termination=_read_end(metadata["name"], {**status, "phase": phase}, ended),
    )


def _read_end(pod: str, status: Mapping[str, Any], ended: Mapping[str, Any]) -> TerminationMessage:
    """Return why a pod ended, from its termination message or from Kubernetes."""
    message = read_termination_message(ended.get("message") or "")
    if message.failure is not None or status.get("phase") != FAILED:
        return message
    if ended.get("reason") == "OOMKilled":
        text = "The driver exceeded its memory limit (OOMKilled); increase spec.driver.memory"
    elif status.get("message"):
        reason = f" ({status['reason']})" if status.get("reason") else ""
        text = f"The driver pod failed{reason}: {status['message']}"
    else:
        how = f"exited with code {ended['exitCode']}" if "exitCode" in ended else "failed"
        reason = f" ({ended['reason']})" if ended.get("reason") else ""
        text = f"The driver {how}{reason}; see kubectl logs {pod}"
    return TerminationMessage(failure=text, progress=message.progress)


def observe_pod(desired: PipelineSpec, before: RunState, pod: Pod, now: datetime) -> RunState:
    """Record the observed state of the Pipeline's driver pod."""
    if pod.uid == before.ended_uid:
        return before
    seen = replace(before, driver_uid=pod.uid, started_at=pod.started_at or before.started_at)
    if pod.uid != before.driver_uid:
        seen = replace(seen, finished_at=None)
    is_done = pod.phase == SUCCEEDED and pod.mode != STREAM  # a stream that receives SIGTERM may exit with 0
    if pod.has_ended and (seen.stopping is None or is_done):
        at = pod.finished_at or _text(now)
        return end_attempt(
            desired, seen, now, at=at, failure=None if pod.phase == SUCCEEDED else pod.termination.failure or ""
        )
    why = None if pod.is_terminating else stop_reason(desired, pod)
    return replace(seen, stopping=seen.stopping or why)


def observe_no_pod(desired: PipelineSpec, before: RunState, now: datetime) -> RunState:
    """Record that no driver pod exists; if there was one, its attempt has ended."""
    if before.driver_uid is None or before.driver_uid == before.ended_uid:
        return before
    if before.stopping is not None:  # the operator stopped it
        ended = replace(before, ended_uid=before.driver_uid, finished_at=_text(now))
        return replace(ended, stopping=None, retry_at=_text(now))
    text = "The driver pod disappeared: it was deleted, or its node was lost"
    return end_attempt(desired, before, now, at=_text(now), failure=text)


def stop_reason(desired: PipelineSpec, pod: Pod) -> str | None:
    """Return why a running driver must stop; None if it need not."""
    if desired.installation.image is None:
        return "Spark is disabled"
    if desired.is_suspended:
        return "The Pipeline is suspended"
    may_be_replaced = STREAM in {desired.mode, pod.mode} or pod.phase == PENDING  # a running batch is not interrupted
    if may_be_replaced and pod.pod_spec_digest != driver_pod.spec_digest(desired):
        return "The spec has changed"
    return None


def end_attempt(desired: PipelineSpec, before: RunState, now: datetime, *, at: str, failure: str | None) -> RunState:
    """Record the end of an attempt, successful if there is no failure."""
    ran_s = (parse_time(at) - parse_time(before.started_at)).total_seconds() if before.started_at else 0
    was_steady = desired.mode == STREAM and ran_s >= BACKOFF_RESET_S  # not a batch: it has no result before its end
    failures = 0 if failure is None else (1 if was_steady else before.failures + 1)
    is_retry = is_retried(desired, failures)
    outcome = None if is_retry else (SUCCEEDED if failure is None else FAILED)
    wait = timedelta(seconds=desired.restart.wait_s(failures))
    return replace(
        before,
        ended_uid=before.driver_uid,
        finished_at=at,
        failures=failures,
        failure=None if failure is None else failure[:_FAILURE_MAX],
        outcome=outcome,
        stopping=None,
        retry_at=_text(now + wait) if is_retry else None,
    )


def is_retried(desired: PipelineSpec, failures: int) -> bool:
    """Whether another attempt follows after a number of consecutive failures; 0 means success."""
    restart = desired.restart
    if failures == 0:
        return restart.policy == ALWAYS
    return restart.policy in {ALWAYS, ON_FAILURE} and (restart.retries is None or failures <= restart.retries)


def start_attempt(desired: PipelineSpec, before: RunState, now: datetime) -> RunState:
    """Record a new run or the next attempt, if it is due; otherwise return the state unchanged."""
    if desired.is_suspended:
        return before
    if is_run_due(desired, before, now):
        return RunState(
            run=before.run + 1,
            attempt=1,
            run_fingerprint=desired.fingerprint,
            generation=desired.generation,
            due_at=scheduled_time(desired, before, now) or before.due_at,
            ended_uid=before.ended_uid,
        )
    is_due = before.outcome is None and before.retry_at is not None and parse_time(before.retry_at) <= now
    if not is_due and not is_retried_after_change(desired, before):
        return before
    after = replace(before, attempt=before.attempt + 1, retry_at=None, driver_uid=None, started_at=None, outcome=None)
    return replace(after, generation=desired.generation, failures=before.failures if is_due else 0)


def is_retried_after_change(desired: PipelineSpec, run_state: RunState) -> bool:
    """Whether a failed run is retried because its spec has changed, e.g. with more memory."""
    is_failed = run_state.outcome == FAILED and desired.cron is None
    return is_failed and run_state.generation not in {None, desired.generation}


def is_run_due(desired: PipelineSpec, before: RunState, now: datetime) -> bool:
    """Whether a new run is due: by the schedule, or without one, because the spec of the run has changed."""
    if desired.cron is None:
        return before.run_fingerprint != desired.fingerprint
    return scheduled_time(desired, before, now) is not None


def scheduled_time(desired: PipelineSpec, before: RunState, now: datetime) -> str | None:
    """Return the scheduled time of the run that is due; None if none is due, or there is no schedule."""
    if desired.cron is None or (before.run > 0 and before.outcome is None):
        return None
    since = before.due_at or before.finished_at or desired.created_at
    found = schedule.last_due(desired.cron, parse_time(since), now)
    return _text(found) if found is not None else None


def is_start_pending(run_state: RunState) -> bool:
    """Whether an attempt is recorded that has no driver yet."""
    return (
        run_state.run > 0 and run_state.outcome is None and run_state.driver_uid is None and run_state.retry_at is None
    )


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
