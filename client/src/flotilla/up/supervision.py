"""What to do about one process: events go in, what is to be done comes out. Pure; time is an argument.

    WAITING ──due──► STARTING ──ready──► READY ◄──► UNREADY
       ▲                │ ended, or silent for too long │
       └────────────────┴───────────────────────────────┘

A process that ended is started again, after a wait that doubles with each end in a row and starts over once it has been
well for a while. One that does not answer is killed, which makes it one that ended. Silence is counted in questions
that were really asked: whoever stops this command for an hour (Ctrl-Z) finds everything well afterwards.

Invariants: there is a process exactly if there is a pid; only a child that waits is due; an event that speaks of
another process than the present one changes nothing.
"""

import signal
from dataclasses import dataclass, replace
from enum import Enum

from flotilla.up import backoff

SILENCE_S_MAX = 10.0  # without an answer from a process that has answered before
START_S_MAX = 60.0  # without any answer since the start: a broker reads its log first. Doubles each time in vain.
_START_DOUBLINGS_MAX = 6
_SILENT_COUNT_MIN = 3  # so many questions in a row, at least: one may have been lost by us
WELL_S = 30.0

EXIT_REASONS = {
    2: "its settings were refused",
    3: "its log or its data folder cannot be used",
    4: "its port is taken",
    5: "the database is behind the brokers",
    6: "the database was made by a newer version",
}
_HOPELESS = {2, 5, 6}  # nothing changes by trying again soon
_BY_SOMEBODY = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Phase(Enum):
    """Where a child is."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"


class Tone(Enum):
    """How something is said."""

    GOOD = "good"
    BAD = "bad"
    PLAIN = "plain"


@dataclass(frozen=True)
class Due:
    """Time has passed."""


@dataclass(frozen=True)
class Started:
    """There is a process now."""

    pid: int


@dataclass(frozen=True)
class NotStarted:
    """The system would not make a process."""

    reason: str


@dataclass(frozen=True)
class Exited:
    """The process ended. A negative code is the signal that ended it."""

    pid: int
    code: int


@dataclass(frozen=True)
class Probed:
    """The process was asked how it is."""

    pid: int
    alive: bool
    ready: bool = False
    reason: str = ""


Event = Due | Started | NotStarted | Exited | Probed


@dataclass(frozen=True)
class Start:
    """Make a process."""


@dataclass(frozen=True)
class Kill:
    """End a process that cannot be asked to."""

    pid: int


@dataclass(frozen=True)
class Say:
    """Tell people what happened."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class ShowLog:
    """Show the last lines that the process wrote."""


Action = Start | Kill | Say | ShowLog


@dataclass(frozen=True)
class Watched:
    """One child, as far as it is known."""

    name: str
    phase: Phase = Phase.WAITING
    pid: int | None = None
    due: float | None = 0.0
    started: float = 0.0
    ready_since: float | None = None
    down_since: float | None = None
    ends: int = 0  # in a row
    answered: bool = False
    silent_since: float | None = None
    silent_count: int = 0
    silent_starts: int = 0  # in a row, that never answered
    killed: bool = False
    reason: str = ""  # why it is not ready


Outcome = tuple[Watched, tuple[Action, ...]]


def step(child: Watched, event: Event, now: float) -> Outcome:
    """Take an event; return the child as it is now, and what is to be done."""
    match event:
        case Due():
            return _on_due(child, now)
        case Started(pid):
            return _on_started(child, pid, now)
        case NotStarted(reason):
            return _on_end(child, f"could not be started: {reason}", now)
        case Exited(pid, code) if pid == child.pid:
            return _on_exit(child, code, now)
        case Probed(pid) if pid == child.pid and not child.killed:
            return _on_answer(child, event, now) if event.alive else _on_silence(child, pid, now)
    return child, ()


def _on_due(child: Watched, now: float) -> Outcome:
    if child.due is None or now < child.due:
        return child, ()
    return replace(child, due=None), (Start(),)


def _on_started(child: Watched, pid: int, now: float) -> Outcome:
    return replace(
        child,
        phase=Phase.STARTING,
        pid=pid,
        due=None,
        started=now,
        ready_since=None,
        answered=False,
        silent_since=None,
        silent_count=0,
        killed=False,
        reason="",
    ), ()


def _on_exit(child: Watched, code: int, now: float) -> Outcome:
    if child.killed:
        return _on_end(child, "is gone", now)
    well = child.ready_since is not None and now - child.ready_since >= WELL_S
    fresh = replace(child, ends=0) if well else child
    after, actions = _on_end(fresh, describe_end(code), now, hopeless=code in _HOPELESS)
    show = code > 0 or (code < 0 and -code not in _BY_SOMEBODY)
    return after, (*actions, ShowLog()) if show else actions


def _on_end(child: Watched, how: str, now: float, *, hopeless: bool = False) -> Outcome:
    ends = child.ends + 1
    wait_s = backoff.MAX_S if hopeless else backoff.delay_s(ends)
    after = replace(
        child,
        phase=Phase.WAITING,
        pid=None,
        due=now + wait_s,
        down_since=now if child.down_since is None else child.down_since,
        ends=ends,
    )
    return after, (Say(f"{child.name} {how}; starts again in {wait_s:.1f} s", Tone.BAD),)


def _on_answer(child: Watched, probed: Probed, now: float) -> Outcome:
    heard = replace(child, answered=True, silent_since=None, silent_count=0, silent_starts=0, reason=probed.reason)
    if probed.ready:
        return _on_ready(heard, now)
    if child.phase is not Phase.READY:
        return heard, ()
    why = f": {probed.reason}" if probed.reason else ""
    return replace(heard, phase=Phase.UNREADY, ready_since=None), (Say(f"{child.name} is not ready{why}", Tone.BAD),)


def _on_ready(child: Watched, now: float) -> Outcome:
    ready = replace(child, phase=Phase.READY, reason="")
    match child.phase:
        case Phase.READY:
            return ready, ()
        case Phase.UNREADY:
            said: tuple[Action, ...] = (Say(f"{child.name} is ready again", Tone.GOOD),)
        case _ if child.down_since is not None:
            away_s = now - child.down_since
            said = (Say(f"{child.name} is back after {away_s:.1f} s, as process {child.pid}", Tone.GOOD),)
        case _:
            said = ()
    return replace(ready, ready_since=now, down_since=None), said


def _on_silence(child: Watched, pid: int, now: float) -> Outcome:
    since = now if child.silent_since is None else child.silent_since
    silent = replace(child, silent_since=since, silent_count=child.silent_count + 1)
    limit_s = SILENCE_S_MAX if child.answered else START_S_MAX * 2 ** min(child.silent_starts, _START_DOUBLINGS_MAX)
    if silent.silent_count < _SILENT_COUNT_MIN or now - since < limit_s:
        return silent, ()
    doomed = replace(
        silent,
        killed=True,
        down_since=since if child.down_since is None else child.down_since,
        silent_starts=child.silent_starts + (not child.answered),
    )
    return doomed, (Say(f"{child.name} has not answered for {now - since:.0f} s; it is killed", Tone.BAD), Kill(pid))


def describe_end(code: int) -> str:
    """Say how a process ended."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed ({name})" if -code in _BY_SOMEBODY else f"crashed ({name})"
    reason = EXIT_REASONS.get(code)
    return f"ended with exit code {code}" + (f": {reason}" if reason else "")
