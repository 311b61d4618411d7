"""The life of a pipeline: runs, attempts, and what has become of them. Pure.

A run is one time that the application is to be done: the one of a stream, each time that a schedule says so. It is
attempted, again and again if need be, each time by one driver.

Whatever is decided is written into the status first, and done in a later turn, which reads it there. So an operator
that dies in between, at any moment, neither forgets an attempt nor counts one twice; and since the driver's pod has the
same name in all attempts, and an attempt begins only when no such pod is there, there are never two of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from flotilla_operator.brokers.pods import failure_of
from flotilla_operator.pipelines import driver, schedule
from flotilla_operator.pipelines.progress import Farewell, read_farewell
from flotilla_operator.pipelines.wish import ALWAYS, CHECKPOINT, DRIVER, ON_FAILURE, STREAM, Pipeline, parse_time

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
_FAILURE_MAX = 2000
STEADY_S = 600  # a stream that ran for so long did well: what fails then has failed for the first time

Resource = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the status remembers."""

    run: int = 0
    attempt: int = 0
    failures: int = 0
    of: str | None = None  # the fingerprint of the spec that the run is of
    generation: int | None = None  # of the spec that the attempt is of
    due_at: str | None = None
    outcome: str | None = None  # of the run: Succeeded, Failed, or None while it is not over
    driver_uid: str | None = None  # of the attempt's pod, once it was seen
    ended_uid: str | None = None  # of the last pod whose end was seen
    stopping: str | None = None  # why it is ended by us
    started_at: str | None = None
    finished_at: str | None = None
    retry_at: str | None = None
    failure: str | None = None


_NAMES = {
    "run": "run", "attempt": "attempt", "failures": "failures", "of": "of", "generation": "ofGeneration",
    "due_at": "dueAt", "outcome": "outcome",
    "driver_uid": "driverUid", "ended_uid": "endedUid", "stopping": "stopping", "started_at": "startedAt",
    "finished_at": "finishedAt", "retry_at": "retryAt", "failure": "failure",
}  # fmt: skip


def read_record(status: Mapping[str, Any]) -> Record:
    """Read what a status remembers."""
    return Record(**{name: status[key] for name, key in _NAMES.items() if status.get(key) is not None})


def write_record(record: Record) -> dict[str, Any]:
    """Write it down."""
    return {key: getattr(record, name) for name, key in _NAMES.items() if getattr(record, name) is not None}


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A driver's pod, or an executor's."""

    name: str
    uid: str
    owner: str | None
    phase: str  # Pending, Running, Succeeded, Failed
    of: str | None = None
    mode: str | None = None  # that it was made for
    checkpoint: str | None = None
    address: str | None = None
    is_leaving: bool = False
    is_placed: bool = False  # on a node
    made_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    waits_for: str | None = None  # why it does not start
    farewell: Farewell = field(default_factory=Farewell)

    @property
    def has_ended(self) -> bool:
        """Whether it will not run any more."""
        return self.phase in {SUCCEEDED, FAILED}


def read_pod(resource: Resource) -> Pod:
    """Read a driver's pod, or an executor's."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    said = metadata.get("annotations") or {}
    containers = {one["name"]: one for one in status.get("containerStatuses") or ()}  # others may be put beside ours
    state = containers.get(DRIVER, {}).get("state") or {}
    ended = state.get("terminated") or {}
    phase = status.get("phase", PENDING)
    if ended and phase == RUNNING:  # those beside it may go on for ever
        phase = SUCCEEDED if ended.get("exitCode") == 0 else FAILED
    scheduled: Mapping[str, Any] = next(
        (one for one in status.get("conditions") or () if one["type"] == "PodScheduled"), {}
    )
    unplaced = scheduled.get("message") if scheduled.get("status") == "False" else None
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        owner=next((one["uid"] for one in metadata.get("ownerReferences") or () if one.get("controller")), None),
        phase=phase,
        of=said.get(driver.OF),
        mode=said.get(driver.MODE),
        checkpoint=said.get(CHECKPOINT),
        address=status.get("podIP"),
        is_leaving="deletionTimestamp" in metadata,
        is_placed=bool((resource.get("spec") or {}).get("nodeName")),
        made_at=metadata.get("creationTimestamp"),
        started_at=(state.get("running") or {}).get("startedAt") or ended.get("startedAt") or status.get("startTime"),
        finished_at=ended.get("finishedAt"),
        waits_for=failure_of(status) or unplaced,
        farewell=_read_end({**status, "phase": phase}, ended),
    )


def _read_end(status: Mapping[str, Any], ended: Mapping[str, Any]) -> Farewell:
    """Tell why a pod ended: as it says itself, or as Kubernetes does."""
    told = read_farewell(ended.get("message") or "")
    if told.failure is not None or status.get("phase") != FAILED:
        return told
    if ended.get("reason") == "OOMKilled":
        text = "it used more memory than it may (OOMKilled): give driver.memory a larger value"
    elif status.get("message"):
        text = f"{status.get('reason', 'Failed')}: {status['message']}"
    else:
        text = f"it ended with code {ended.get('exitCode', '?')} ({ended.get('reason', 'Error')}), and left no word"
    return Farewell(failure=text, progress=told.progress)


def see_pod(wanted: Pipeline, before: Record, pod: Pod, now: datetime) -> Record:
    """Take in what there is to see of this pipeline's own pod."""
    if pod.uid == before.ended_uid:
        return before
    seen = replace(before, driver_uid=pod.uid, started_at=pod.started_at or before.started_at)
    if pod.uid != before.driver_uid:
        seen = replace(seen, finished_at=None)
    is_done = pod.phase == SUCCEEDED and pod.mode != STREAM  # a stream that was told to end may well say so
    if pod.has_ended and (seen.stopping is None or is_done):
        at = pod.finished_at or _text(now)
        return end(wanted, seen, now, at=at, failure=None if pod.phase == SUCCEEDED else pod.farewell.failure or "")
    why = None if pod.is_leaving else why_stop(wanted, pod)
    return replace(seen, stopping=seen.stopping or why)


def see_no_pod(wanted: Pipeline, before: Record, now: datetime) -> Record:
    """Take in that there is no pod; if there was one, it has ended."""
    if before.driver_uid is None or before.driver_uid == before.ended_uid:
        return before
    if before.stopping is not None:  # as we wanted
        ended = replace(before, ended_uid=before.driver_uid, finished_at=_text(now))
        return replace(ended, stopping=None, retry_at=_text(now))
    text = "its pod is gone: somebody deleted it, or its node was lost"
    return end(wanted, before, now, at=_text(now), failure=text)


def why_stop(wanted: Pipeline, pod: Pod) -> str | None:
    """Say why a driver that runs should not."""
    if wanted.is_suspended:
        return "it is suspended"
    may_be_replaced = STREAM in {wanted.mode, pod.mode} or pod.phase == PENDING  # a batch that runs is run to its end
    if may_be_replaced and pod.of != driver.made_of(wanted):
        return "what it should be has changed"
    return None


def end(wanted: Pipeline, before: Record, now: datetime, *, at: str, failure: str | None) -> Record:
    """Take in that an attempt has ended, well if there is no failure."""
    ran_s = (parse_time(at) - parse_time(before.started_at)).total_seconds() if before.started_at else 0
    did_well = wanted.mode == STREAM and ran_s >= STEADY_S  # a batch has done nothing before its end
    failures = 0 if failure is None else (1 if did_well else before.failures + 1)
    is_tried = is_tried_again(wanted, failures)
    outcome = None if is_tried else (SUCCEEDED if failure is None else FAILED)
    wait = timedelta(seconds=wanted.restart.wait_s(failures))
    return replace(
        before,
        ended_uid=before.driver_uid,
        finished_at=at,
        failures=failures,
        failure=None if failure is None else failure[:_FAILURE_MAX],
        outcome=outcome,
        stopping=None,
        retry_at=_text(now + wait) if is_tried else None,
    )


def is_tried_again(wanted: Pipeline, failures: int) -> bool:
    """Tell whether there is another attempt after so many failures in a row; none is an end that was well."""
    restart = wanted.restart
    if failures == 0:
        return restart.policy == ALWAYS
    return restart.policy in {ALWAYS, ON_FAILURE} and (restart.retries is None or failures <= restart.retries)


def begin(wanted: Pipeline, before: Record, now: datetime) -> Record:
    """Begin a run, or its next attempt, if it is time; otherwise nothing changes."""
    if wanted.is_suspended:
        return before
    due = due_run(wanted, before, now)
    if due is not None:
        return Record(
            run=before.run + 1,
            attempt=1,
            of=wanted.fingerprint,
            generation=wanted.generation,
            due_at=due or before.due_at,
            ended_uid=before.ended_uid,
        )
    is_due = before.outcome is None and before.retry_at is not None and parse_time(before.retry_at) <= now
    if not is_due and not is_mended(wanted, before):
        return before
    after = replace(before, attempt=before.attempt + 1, retry_at=None, driver_uid=None, started_at=None, outcome=None)
    return replace(after, generation=wanted.generation, failures=before.failures if is_due else 0)


def is_mended(wanted: Pipeline, record: Record) -> bool:
    """Tell whether what was given up is tried once more: somebody has changed the spec, as to give it more memory."""
    is_given_up = record.outcome == FAILED and wanted.cron is None
    return is_given_up and record.generation not in {None, wanted.generation}


def due_run(wanted: Pipeline, before: Record, now: datetime) -> str | None:
    """Tell whether a new run is due: None, or the time by the schedule, which is empty without one."""
    if wanted.cron is None:
        return "" if before.of != wanted.fingerprint else None
    if before.run > 0 and before.outcome is None:
        return None
    since = before.due_at or before.finished_at or wanted.created_at
    found = schedule.last_due(wanted.cron, parse_time(since), now)
    return _text(found) if found is not None else None


def is_to_start(record: Record) -> bool:
    """Tell whether an attempt was begun that has no driver yet."""
    return record.run > 0 and record.outcome is None and record.driver_uid is None and record.retry_at is None


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
