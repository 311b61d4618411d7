"""What to do about a Pipeline resource. Pure.

Either what is remembered changes, which is written down and nothing else; or something is done that follows from what
is remembered. See `states`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from flotilla_operator import conditions
from flotilla_operator.conditions import FALSE, TRUE, Condition
from flotilla_operator.names import API_VERSION
from flotilla_operator.pipelines import claim, driver, looks, progress, schedule, states
from flotilla_operator.pipelines.executors import Executors
from flotilla_operator.pipelines.looks import Look
from flotilla_operator.pipelines.progress import Progress
from flotilla_operator.pipelines.states import Pod, Record
from flotilla_operator.pipelines.wish import Installation, Pipeline, Resource, check, parse_time, read_pipeline
from flotilla_operator.steps import Apply, Create, Plan, Remove, Step
from flotilla_operator.world import World


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a plan is made from, besides the resource."""

    installation: Installation
    drivers: Mapping[str, Pod] = field(default_factory=dict)  # all pods of drivers, by name
    executors: Mapping[str, Executors] = field(default_factory=dict)  # by the uid of their driver
    rival: str | None = None  # an older Pipeline with the same checkpoint
    progress: Progress | None = None  # what its driver tells now
    world: World | None = None
    refusal: str | None = None  # what Kubernetes said to what this spec asks for


def plan_pipeline(resource: Resource, observed: Observed, now: str) -> Plan:
    """Decide about one resource. `now` is the time, as Kubernetes writes it."""
    if "deletionTimestamp" in resource["metadata"]:
        return Plan()  # its pods belong to it, and go with it
    wanted = read_pipeline(resource, observed.installation)
    try:
        check(wanted.spec)
    except ValueError as error:
        return _plan_invalid(resource, wanted, str(error), observed, now)
    return _plan(resource, wanted, observed, now)


def _plan_invalid(resource: Resource, wanted: Pipeline, trouble: str, observed: Observed, now: str) -> Plan:
    """Leave all as it is, but for a driver that must not run: that much can be read of any spec."""
    kept = {key: value for key, value in (resource.get("status") or {}).items() if key != "conditions"}
    shown = _write(resource, (_accepted(trouble), looks.ready(Look("", "SpecInvalid", trouble))), kept, now)
    pod = observed.drivers.get(wanted.driver)
    is_ours = pod is not None and pod.owner == wanted.uid
    if pod is None or not is_ours or not wanted.is_suspended or pod.is_leaving or pod.has_ended:
        return Plan(_claims(wanted, is_needed=False), shown)
    return Plan((Remove("v1", "Pod", pod.name, pod.uid),), shown)


def _plan(resource: Resource, wanted: Pipeline, observed: Observed, now: str) -> Plan:
    moment, status = parse_time(now), resource.get("status") or {}
    before, pod = states.read_record(status), observed.drivers.get(wanted.driver)
    if pod is not None and pod.owner != wanted.uid:
        text = f"the pod {pod.name} belongs to somebody else, or to a Pipeline that is gone, and has to go first"
        return _show(resource, wanted, before, Look(looks.WAITING, "NameTaken", text), observed, now)
    if pod is not None:
        after = states.see_pod(wanted, before, pod, moment)
    else:
        after = states.begin(wanted, states.see_no_pod(wanted, before, moment), moment)
    steps: tuple[Step, ...] = ()
    if after == before:  # it is written down: it can be done
        steps = _steps(wanted, before, pod, observed, now)
    shown = _show(resource, wanted, after, _look(wanted, after, pod, observed), observed, now)
    return Plan(steps, shown.status)


def _steps(wanted: Pipeline, record: Record, pod: Pod | None, observed: Observed, now: str) -> tuple[Step, ...]:
    moment = parse_time(now)
    if pod is not None:
        is_over = pod.uid == record.ended_uid
        is_next = is_over and states.begin(wanted, record, moment) != record
        if not pod.is_leaving and (is_next or (not is_over and record.stopping is not None)):
            return (Remove("v1", "Pod", pod.name, pod.uid),)
        return _rest(wanted, record, is_over=is_over, now=now)
    if wanted.is_suspended or not states.is_to_start(record):
        return _rest(wanted, record, is_over=True, now=now)
    if _who_uses(wanted, observed) is not None:
        return _claims(wanted, is_needed=False)
    made = Create(driver.make(wanted, record.run, record.attempt), must_be_ours=True)
    return (*_claims(wanted, is_needed=True), made)


def _rest(wanted: Pipeline, record: Record, *, is_over: bool, now: str) -> tuple[Step, ...]:
    """Do what is left to do while a driver runs, or none is due."""
    last = _last_step(wanted, record, moment=now) if is_over else ()
    return last or (_claims(wanted, is_needed=not is_over) if record.run > 0 else ())


def _claims(wanted: Pipeline, *, is_needed: bool) -> tuple[Step, ...]:
    """Have the claim as the spec says: whether it goes with its Pipeline is what was said last, at any time.

    Whoever deletes the claim of a Pipeline that does not run has a reason: it is made only when it is needed.
    """
    volume = claim.make(wanted)
    return () if volume is None else (Apply(volume, if_there=not is_needed),)


def _last_step(wanted: Pipeline, record: Record, *, moment: str) -> tuple[Step, ...]:
    """Let what has lived long enough after its end go."""
    if wanted.lives_s is None or record.outcome is None or record.finished_at is None:
        return ()
    if parse_time(record.finished_at) + timedelta(seconds=wanted.lives_s) > parse_time(moment):
        return ()
    return (Remove(API_VERSION, "Pipeline", wanted.name, wanted.uid),)


def _who_uses(wanted: Pipeline, observed: Observed) -> str | None:
    """Say who else uses the checkpoint, or has the first right to it."""
    if wanted.checkpoint is None:
        return None
    if observed.rival is not None:
        text = f"Pipeline {observed.rival} is older, and has the same checkpoint"
        return f"{text}: delete that one, or give this one another checkpoint"
    others = (one for one in observed.drivers.values() if one.name != wanted.driver and not one.has_ended)
    found = next((one.name for one in others if one.checkpoint == wanted.checkpoint), None)
    return f"the pod {found} still uses the checkpoint" if found is not None else None


def _look(wanted: Pipeline, record: Record, pod: Pod | None, observed: Observed) -> Look:
    if pod is not None and pod.uid != record.ended_uid:
        return looks.of_driver(record, pod, observed.executors.get(pod.uid, Executors()))
    return looks.between_drivers(wanted, record, _who_uses(wanted, observed), observed.refusal)


def _show(resource: Resource, wanted: Pipeline, record: Record, look: Look, observed: Observed, now: str) -> Plan:
    before, pod = resource.get("status") or {}, observed.drivers.get(wanted.driver)
    ours = pod if pod is not None and pod.owner == wanted.uid else None
    told = (observed.progress or ours.farewell.progress) if ours is not None else None
    shown = {
        "phase": look.phase,
        **states.write_record(record),
        **progress.figures(told, before, observed.world),
        **({"driver": wanted.driver} if pod is not None else {}),
        **_count(ours, observed),
    }
    if wanted.cron is not None and not wanted.is_suspended:
        found = schedule.following(wanted.cron, parse_time(now))
        shown["nextRunAt"] = found.strftime("%Y-%m-%dT%H:%M:%SZ")
    return Plan((), _write(resource, (_accepted(None, observed.refusal), looks.ready(look)), shown, now))


def _count(pod: Pod | None, observed: Observed) -> dict[str, int]:
    """Count the executors of a driver that has had any."""
    found = observed.executors.get(pod.uid) if pod is not None else None
    return {"executors": found.running} if found is not None else {}


def _accepted(trouble: str | None, refusal: str | None = None) -> Condition:
    if trouble is not None:
        return Condition("Accepted", FALSE, "SpecInvalid", trouble)
    if refusal is not None:
        return Condition("Accepted", FALSE, "Refused", refusal)
    return Condition("Accepted", TRUE, "Accepted", "the spec can be done")


def _write(resource: Resource, shown: tuple[Condition, ...], figures: Mapping[str, Any], now: str) -> dict[str, Any]:
    generation = resource["metadata"].get("generation", 0)
    before = (resource.get("status") or {}).get("conditions") or []
    return {
        "observedGeneration": generation,
        "conditions": conditions.write(shown, before, generation, now),
        **figures,
    }
