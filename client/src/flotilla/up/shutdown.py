"""Order of shutdown: readers, then the writer, then brokers. Pure.

Readers stop first, so that requests are not answered by half a system. Brokers stop last and together, because no
broker is left to transfer leadership to. Each stage has a time limit, and processes that are left at the end are
killed, which loses no acknowledged record.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from flotilla.up.plan import Role

ORDER = (Role.READER, Role.WRITER, Role.BROKER)
STAGE_S = 2.0  # time limit of a stage before the next one starts
SHUTDOWN_S_MAX = 10.0  # processes that still run after this are killed


@dataclass(frozen=True)
class SignalPlan:
    """Names of the processes to signal now."""

    terminate: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()


def next_signals(alive: Iterable[tuple[str, Role]], terminated: Collection[str], elapsed_s: float) -> SignalPlan:
    """Return the signals to send `elapsed_s` after the start of the shutdown."""
    left = list(alive)
    if elapsed_s >= SHUTDOWN_S_MAX:
        return SignalPlan(kill=tuple(name for name, _ in left))
    turn = int(elapsed_s / STAGE_S)
    first = min((ORDER.index(role) for _, role in left), default=0)
    may = set(ORDER[: max(turn, first) + 1])
    return SignalPlan(terminate=tuple(name for name, role in left if role in may and name not in terminated))
