"""Who is told to end, and when, once everything shall: readers, then the writer, then brokers. Pure.

Readers go first, so that nobody is answered by half a system; brokers go last and all at once, because there is nobody
left to whom they could hand leadership over. Each group is waited for a while; in the end whoever is left is killed,
which costs nothing that was acknowledged.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from flotilla.up.plan import Role

ORDER = (Role.READER, Role.WRITER, Role.BROKER)
TURN_S = 2.0  # how long a group is waited for before the next one is told, too
END_S_MAX = 10.0  # after this, nobody is asked any more


@dataclass(frozen=True)
class Orders:
    """Who gets which signal now, by name."""

    terminate: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()


def decide(alive: Iterable[tuple[str, Role]], told: Collection[str], elapsed_s: float) -> Orders:
    """Decide who is told, or killed, `elapsed_s` after the end began."""
    left = list(alive)
    if elapsed_s >= END_S_MAX:
        return Orders(kill=tuple(name for name, _ in left))
    turn = int(elapsed_s / TURN_S)
    first = min((ORDER.index(role) for _, role in left), default=0)
    may = set(ORDER[: max(turn, first) + 1])
    return Orders(terminate=tuple(name for name, role in left if role in may and name not in told))
