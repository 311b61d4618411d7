"""Supervision of one process, as a state machine: events in, actions out. Pure; time is an argument.

    WAITING ──due──► STARTING ──ready──► READY ◄──► UNREADY
       ▲                │ exit, or no answer for too long  │
       └────────────────┴──────────────────────────────────┘

A process that exits is restarted after a backoff, which doubles with each consecutive exit and is reset after a stable
period. A process that does not answer probes is killed, and then restarted. Unanswered probes are counted, not only
timed: if `flotilla up` itself is stopped for an hour (Ctrl-Z), no process is killed afterwards.

Invariants: there is a process exactly if there is a pid; only a waiting child has a due time; an event of another
process than the current one changes nothing.
"""

import signal
from dataclasses import dataclass, replace
from enum import Enum

UNRESPONSIVE_S_MAX = 10.0  # for a process that has answered before
START_S_MAX = 60.0  # for a process that has not: a broker reads its log first. Doubles with each failed start
_START_DOUBLINGS_MAX = 6
_UNANSWERED_MIN = 3  # consecutive probes, at least: a single one may be lost
STABLE_S = 30.0
BACKOFF_S_MIN = 0.2
BACKOFF_S_MAX = 10.0
_BACKOFF_DOUBLINGS_MAX = 16  # far beyond the longest backoff, and far from an overflow

EXIT_REASONS = {
    2: "invalid settings",
    3: "log or data folder cannot be used",
    4: "port in use",
    5: "database is behind the brokers",
    6: "database was created by a newer version",
}
_PERMANENT_EXITS = {2, 5, 6}  # a quick restart does not help
_TERMINATION_SIGNALS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Phase(Enum):
    """Phase of a process."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"


class Severity(Enum):
    """Severity of an event, shown by its color."""

    OK = "ok"
    ERROR = "error"
    INFO = "info"


@dataclass(frozen=True)
class TimerFired:
    """The due time may have passed."""


@dataclass(frozen=True)
class Started:
    """The process was started."""

    pid: int


@dataclass(frozen=True)
class StartFailed:
    """The process could not be started."""

    reason: str


@dataclass(frozen=True)
class Exited:
    """The process ended. A negative code is a signal."""

    pid: int
    code: int


@dataclass(frozen=True)
class Probed:
    """The process was probed."""

    pid: int
    alive: bool
    ready: bool = False
    reason: str = ""


Event = TimerFired | Started | StartFailed | Exited | Probed


@dataclass(frozen=True)
class Start:
    """Start the process."""


@dataclass(frozen=True)
class Kill:
    """Kill a process that does not answer."""

    pid: int


@dataclass(frozen=True)
class ReportEvent:
    """Print an event."""

    text: str
    severity: Severity = Severity.INFO


@dataclass(frozen=True)
class ShowLog:
    """Print the last log lines of the process."""


Action = Start | Kill | ReportEvent | ShowLog


@dataclass(frozen=True)
class ProcessState:
    """State of one child."""

    name: str
    phase: Phase = Phase.WAITING
    pid: int | None = None
    due: float | None = 0.0
    started: float = 0.0
    ready_since: float | None = None
    down_since: float | None = None
    exits: int = 0  # consecutive
    answered: bool = False
    unanswered_since: float | None = None
    unanswered: int = 0
    unanswered_starts: int = 0  # consecutive starts without an answer
    killed: bool = False
    reason: str = ""  # for not being ready


Outcome = tuple[ProcessState, tuple[Action, ...]]


def step(child: ProcessState, event: Event, now: float) -> Outcome:
    """Apply an event; return the new state and the actions."""
    match event:
        case TimerFired():
            return _on_due(child, now)
        case Started(pid):
            return _on_started(child, pid, now)
        case StartFailed(reason):
            return _on_down(child, f"could not be started: {reason}", now)
        case Exited(pid, code) if pid == child.pid:
            return _on_exit(child, code, now)
        case Probed(pid) if pid == child.pid and not child.killed:
            return _on_answer(child, event, now) if event.alive else _on_no_answer(child, pid, now)
    return child, ()


def _on_due(child: ProcessState, now: float) -> Outcome:
    if child.due is None or now < child.due:
        return child, ()
    return replace(child, due=None), (Start(),)


def _on_started(child: ProcessState, pid: int, now: float) -> Outcome:
    return replace(
        child,
        phase=Phase.STARTING,
        pid=pid,
        due=None,
        started=now,
        ready_since=None,
        answered=False,
        unanswered_since=None,
        unanswered=0,
        killed=False,
        reason="",
    ), ()


def _on_exit(child: ProcessState, code: int, now: float) -> Outcome:
    if child.killed:
        return _on_down(child, "was killed", now)
    is_stable = child.ready_since is not None and now - child.ready_since >= STABLE_S
    current = replace(child, exits=0) if is_stable else child
    after, actions = _on_down(current, describe_exit(code), now, permanent=code in _PERMANENT_EXITS)
    show = code > 0 or (code < 0 and -code not in _TERMINATION_SIGNALS)
    return after, (*actions, ShowLog()) if show else actions


def _on_down(child: ProcessState, how: str, now: float, *, permanent: bool = False) -> Outcome:
    exits = child.exits + 1
    wait_s = BACKOFF_S_MAX if permanent else backoff_s(exits)
    after = replace(
        child,
        phase=Phase.WAITING,
        pid=None,
        due=now + wait_s,
        down_since=now if child.down_since is None else child.down_since,
        exits=exits,
    )
    return after, (ReportEvent(f"{child.name} {how}; restarting in {wait_s:.1f} s", Severity.ERROR),)


def _on_answer(child: ProcessState, probed: Probed, now: float) -> Outcome:
    answered = replace(
        child, answered=True, unanswered_since=None, unanswered=0, unanswered_starts=0, reason=probed.reason
    )
    if probed.ready:
        return _on_ready(answered, now)
    if child.phase is not Phase.READY:
        return answered, ()
    why = f": {probed.reason}" if probed.reason else ""
    return replace(answered, phase=Phase.UNREADY, ready_since=None), (
        ReportEvent(f"{child.name} is not ready{why}", Severity.ERROR),
    )


def _on_ready(child: ProcessState, now: float) -> Outcome:
    ready = replace(child, phase=Phase.READY, reason="")
    match child.phase:
        case Phase.READY:
            return ready, ()
        case Phase.UNREADY:
            events: tuple[Action, ...] = (ReportEvent(f"{child.name} is ready again", Severity.OK),)
        case _ if child.down_since is not None:
            down_s = now - child.down_since
            events = (ReportEvent(f"{child.name} recovered after {down_s:.1f} s, pid {child.pid}", Severity.OK),)
        case _:
            events = ()
    return replace(ready, ready_since=now, down_since=None), events


def _on_no_answer(child: ProcessState, pid: int, now: float) -> Outcome:
    since = now if child.unanswered_since is None else child.unanswered_since
    waiting = replace(child, unanswered_since=since, unanswered=child.unanswered + 1)
    limit_s = (
        UNRESPONSIVE_S_MAX if child.answered else START_S_MAX * 2 ** min(child.unanswered_starts, _START_DOUBLINGS_MAX)
    )
    if waiting.unanswered < _UNANSWERED_MIN or now - since < limit_s:
        return waiting, ()
    killed = replace(
        waiting,
        killed=True,
        down_since=since if child.down_since is None else child.down_since,
        unanswered_starts=child.unanswered_starts + (not child.answered),
    )
    return killed, (
        ReportEvent(f"{child.name} did not answer for {now - since:.0f} s; killing it", Severity.ERROR),
        Kill(pid),
    )


def describe_exit(code: int) -> str:
    """Describe how a process ended."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed ({name})" if -code in _TERMINATION_SIGNALS else f"crashed ({name})"
    reason = EXIT_REASONS.get(code)
    return f"exited with code {code}" + (f": {reason}" if reason else "")


def backoff_s(exits: int) -> float:
    """Return the delay before a restart after `exits` consecutive exits."""
    return min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0 ** min(max(exits - 1, 0), _BACKOFF_DOUBLINGS_MAX))
