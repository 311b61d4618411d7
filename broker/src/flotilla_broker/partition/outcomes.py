"""How an append ends: ok, failed or unknown. There is nothing else."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Appended:
    """On the disks of a majority, for good."""

    base_offset: int
    time_ms: int
    retried: bool = False  # it had been appended before; this was a retry


@dataclass(frozen=True, slots=True)
class Failed:
    """It is not there and will not be: refused before it was proposed, or another entry was committed in its place."""

    code: str
    message: str
    details: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may be there or not. A retry with the same sequence finds out."""

    message: str


Outcome = Appended | Failed | Unknown
Done = Callable[[Outcome], None]


def tell(done: Done, outcome: Outcome) -> None:
    """Tell somebody how an append ended. What goes wrong there is not this partition's trouble."""
    try:
        done(outcome)
    except Exception:
        logger.exception("somebody could not be told how an append ended: %s", outcome)


class Waiter:
    """Somebody who waits for the entry at an index, of one term."""

    __slots__ = ("appended", "done", "term")

    def __init__(self, term: int, appended: Appended, done: Done) -> None:
        self.term = term
        self.appended = appended
        self.done = done
