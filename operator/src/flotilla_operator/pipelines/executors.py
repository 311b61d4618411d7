"""Executors, which drivers make: how many run, and why others do not. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from flotilla_operator.pipelines.states import RUNNING, Pod


@dataclass(frozen=True, kw_only=True)
class Executors:
    """Those of one driver."""

    running: int = 0
    waits_for: str | None = None  # why the first of those that do not start does not


def count_executors(pods: Iterable[Pod]) -> dict[str, Executors]:
    """Count executors by the uid of the driver that has made them; those that are leaving count no more."""
    found: dict[str, Executors] = {}
    for pod in pods:
        if pod.owner is None or pod.is_leaving or pod.has_ended:
            continue
        known = found.get(pod.owner, Executors())
        found[pod.owner] = Executors(
            running=known.running + (pod.phase == RUNNING),
            waits_for=known.waits_for or (f"{pod.name} waits: {pod.waits_for}" if pod.waits_for is not None else None),
        )
    return found
