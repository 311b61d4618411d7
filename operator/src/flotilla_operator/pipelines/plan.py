"""Plan for a Pipeline resource. Pure.

A plan either changes the run state in the status, or acts on the recorded one, never both. See `states`. The exception
is a suspended Pipeline with an invalid spec: its driver is stopped without a record of the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from flotilla_operator.cluster_state import ClusterState
from flotilla_operator.conditions import FALSE, TRUE, Condition, build_status
from flotilla_operator.pipelines import driver_pod, progress, schedule, states
from flotilla_operator.pipelines.phase import (
    WAITING,
    Executors,
    Phase,
    phase_between_drivers,
    phase_of_driver,
    ready_condition,
)
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.spec import (
    PipelineInstallation,
    PipelineSpec,
    Resource,
    check,
    parse_time,
    read_pipeline,
)
from flotilla_operator.pipelines.states import Pod, RunState
from flotilla_operator.plans import Action, Apply, Create, Delete, Plan


@dataclass(frozen=True, kw_only=True)
class PipelineObservation:
    """Observed state that a plan depends on, besides the resource."""

    installation: PipelineInstallation
    drivers: Mapping[str, Pod] = field(default_factory=dict)  # all driver pods, by name
    executors: Mapping[str, Executors] = field(default_factory=dict)  # by the UID of their driver
    conflict: str | None = None  # an older Pipeline with the same checkpoint
    progress: Progress | None = None  # last response of its driver
    state: ClusterState | None = None
    rejection: str | None = None  # error of Kubernetes for this spec


def plan_pipeline(resource: Resource, observed: PipelineObservation, now: str) -> Plan:
    """Plan for one resource. `now` is the time in the format of Kubernetes."""
    if "deletionTimestamp" in resource["metadata"]:
        return Plan()  # Kubernetes deletes its pods with it
    desired = read_pipeline(resource, observed.installation)
    try:
        check(desired.spec)
    except ValueError as error:
        return _plan_invalid(resource, desired, str(error), observed, now)
    return _plan(resource, desired, observed, now)


def _plan_invalid(
    resource: Resource, desired: PipelineSpec, problem: str, observed: PipelineObservation, now: str
) -> Plan:
    """Keep the recorded state, but stop the driver of a suspended Pipeline: `suspend` is valid in any spec."""
    kept = {key: value for key, value in (resource.get("status") or {}).items() if key != "conditions"}
    new_status = build_status(
        resource, (_accepted(problem), ready_condition(Phase("", "SpecInvalid", problem))), kept, now
    )
    pod = observed.drivers.get(desired.driver)
    is_ours = pod is not None and pod.owner == desired.uid
    if pod is None or not is_ours or not desired.is_suspended or pod.is_terminating or pod.has_ended:
        return Plan(_apply_claim(desired, is_needed=False), new_status)
    return Plan((Delete("Pod", pod.name, pod.uid),), new_status)


def _plan(resource: Resource, desired: PipelineSpec, observed: PipelineObservation, now: str) -> Plan:
    now_at, status = parse_time(now), resource.get("status") or {}
    before, pod = states.read_run_state(status), observed.drivers.get(desired.driver)
    if pod is not None and pod.owner != desired.uid:
        remedy = "delete the pod, or create the Pipeline under another name"
        text = f"Pod {pod.name} exists and does not belong to this Pipeline; {remedy}"
        phase = Phase(WAITING, "NameConflict", text)
        return Plan((), _build_status(resource, desired, before, phase, observed, now))
    if pod is not None:
        after = states.observe_pod(desired, before, pod, now_at)
    else:
        after = states.start_attempt(desired, states.observe_no_pod(desired, before, now_at), now_at)
    actions: tuple[Action, ...] = ()
    if after == before:  # the state is recorded, so the plan may act on it
        actions = _plan_actions(desired, before, pod, observed, now)
    phase = _phase(desired, after, pod, observed)
    return Plan(actions, _build_status(resource, desired, after, phase, observed, now))


def _plan_actions(
    desired: PipelineSpec, run_state: RunState, pod: Pod | None, observed: PipelineObservation, now: str
) -> tuple[Action, ...]:
    now_at = parse_time(now)
    if pod is not None:
        is_over = pod.uid == run_state.ended_uid
        is_next = is_over and states.start_attempt(desired, run_state, now_at) != run_state
        if not pod.is_terminating and (is_next or (not is_over and run_state.stopping is not None)):
            return (Delete("Pod", pod.name, pod.uid),)
        return _plan_maintenance(desired, run_state, is_over=is_over, now=now)
    if desired.is_suspended or not states.is_start_pending(run_state):
        return _plan_maintenance(desired, run_state, is_over=True, now=now)
    if _find_checkpoint_conflict(desired, observed) is not None:
        return _apply_claim(desired, is_needed=False)
    made = Create(driver_pod.make(desired, run_state.run, run_state.attempt), must_be_owned=True)
    return (*_make_claim(desired), made)


def _plan_maintenance(desired: PipelineSpec, run_state: RunState, *, is_over: bool, now: str) -> tuple[Action, ...]:
    """Plan while a driver runs, or none is due."""
    expiry = _plan_expiry(desired, run_state, now) if is_over else ()
    return expiry or (_apply_claim(desired, is_needed=not is_over) if run_state.run > 0 else ())


def _apply_claim(desired: PipelineSpec, *, is_needed: bool) -> tuple[Action, ...]:
    """Apply the claim, so that its owner follows the deletionPolicy in the current spec.

    A deleted claim is created again only when a driver needs it.
    """
    volume = driver_pod.make_claim(desired)
    return () if volume is None else (Apply(volume, if_exists=not is_needed),)


def _make_claim(desired: PipelineSpec) -> tuple[Action, ...]:
    """Apply the claim before a driver is created: claims are not watched, and it may have been deleted meanwhile."""
    volume = driver_pod.make_claim(desired)
    return () if volume is None else (Apply(volume, is_unwatched=True),)


def _plan_expiry(desired: PipelineSpec, run_state: RunState, now: str) -> tuple[Action, ...]:
    """Delete the Pipeline when its time to live is over."""
    if desired.ttl_s is None or run_state.outcome is None or run_state.finished_at is None:
        return ()
    if parse_time(run_state.finished_at) + timedelta(seconds=desired.ttl_s) > parse_time(now):
        return ()
    return (Delete("Pipeline", desired.name, desired.uid),)


def _find_checkpoint_conflict(desired: PipelineSpec, observed: PipelineObservation) -> str | None:
    """Describe another user of the checkpoint, or the older Pipeline that it belongs to."""
    if desired.checkpoint is None:
        return None
    if observed.conflict is not None:
        text = f"The checkpoint is used by the older Pipeline {observed.conflict}"
        return f"{text}; delete that Pipeline, or set another checkpoint"
    others = (one for one in observed.drivers.values() if one.name != desired.driver and not one.has_ended)
    found = next((one.name for one in others if one.checkpoint == desired.checkpoint), None)
    return f"The checkpoint is still in use by pod {found}" if found is not None else None


def _phase(desired: PipelineSpec, run_state: RunState, pod: Pod | None, observed: PipelineObservation) -> Phase:
    if pod is not None and pod.uid != run_state.ended_uid:
        return phase_of_driver(run_state, pod, observed.executors.get(pod.uid, Executors()))
    return phase_between_drivers(desired, run_state, _find_checkpoint_conflict(desired, observed), observed.rejection)


def _build_status(
    resource: Resource,
    desired: PipelineSpec,
    run_state: RunState,
    phase: Phase,
    observed: PipelineObservation,
    now: str,
) -> dict[str, Any]:
    before, pod = resource.get("status") or {}, observed.drivers.get(desired.driver)
    own_pod = pod if pod is not None and pod.owner == desired.uid else None
    reported = (observed.progress or own_pod.termination.progress) if own_pod is not None else None
    status_fields = {
        "phase": phase.name,
        **states.write_run_state(run_state),
        **progress.status_fields(reported, before, observed.state),
        **({"driver": desired.driver} if pod is not None else {}),
        **_count(own_pod, observed),
    }
    if desired.cron is not None and not desired.is_suspended:
        found = schedule.following(desired.cron, parse_time(now))
        status_fields["nextRunAt"] = found.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = (_accepted(None, observed.rejection), ready_condition(phase))
    return build_status(resource, conditions, status_fields, now)


def _count(pod: Pod | None, observed: PipelineObservation) -> dict[str, int]:
    """Return the number of running executors, if the driver has requested any."""
    found = observed.executors.get(pod.uid) if pod is not None else None
    return {"executors": found.running} if found is not None else {}


def _accepted(problem: str | None, rejection: str | None = None) -> Condition:
    if problem is not None:
        return Condition("Accepted", FALSE, "SpecInvalid", problem)
    if rejection is not None:
        return Condition("Accepted", FALSE, "Rejected", rejection)
    return Condition("Accepted", TRUE, "Accepted", "The spec is valid")
