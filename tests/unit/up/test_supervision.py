"""Supervision of one process, in virtual time."""

import signal
from collections.abc import Sequence

import pytest

from flotilla.up.supervision import (
    BACKOFF_S_MAX,
    BACKOFF_S_MIN,
    STABLE_S,
    START_S_MAX,
    UNRESPONSIVE_S_MAX,
    Action,
    Event,
    Exited,
    Kill,
    Phase,
    Probed,
    ProcessState,
    ReportEvent,
    ShowLog,
    Start,
    Started,
    StartFailed,
    TimerFired,
    backoff_s,
    describe_exit,
    step,
)


class Story:
    """One child in virtual time. Start actions are performed, with a new process id."""

    def __init__(self) -> None:
        self.now = 100.0
        self.child = ProcessState("broker-1")
        self.pid = 0
        self.feed(TimerFired())

    def feed(self, event: Event) -> list[Action]:
        self.child, actions = step(self.child, event, self.now)
        assert (self.child.pid is None) == (self.child.phase is Phase.WAITING)
        assert self.child.due is None or self.child.phase is Phase.WAITING
        if Start() in actions:
            self.pid += 1
            return [*actions, *self.feed(Started(self.pid))]
        return list(actions)

    def after(self, seconds: float, event: Event) -> list[Action]:
        self.now += seconds
        return self.feed(event)

    def ready(self) -> list[Action]:
        return self.feed(Probed(self.pid, alive=True, ready=True))

    def exit(self, code: int) -> list[Action]:
        return self.feed(Exited(self.pid, code))

    def wait_until_due(self) -> float:
        assert self.child.due is not None
        waited, self.now = self.child.due - self.now, self.child.due
        assert self.feed(TimerFired()) == [Start()]
        return waited

    def be_silent(self, seconds: float, every: float = 1.0) -> list[Action]:
        done: list[Action] = self.feed(Probed(self.pid, alive=False))
        for _ in range(int(seconds / every)):
            done += self.after(every, Probed(self.pid, alive=False))
        return done


def texts(actions: Sequence[Action]) -> list[str]:
    return [action.text for action in actions if isinstance(action, ReportEvent)]


def test_process_starts_at_once_without_event() -> None:
    story = Story()
    phases = [story.child.phase]
    assert story.ready() == []
    phases.append(story.child.phase)
    assert phases == [Phase.STARTING, Phase.READY]


def test_killed_process_is_restarted_with_events() -> None:
    story = Story()
    story.ready()
    assert texts(story.exit(-signal.SIGKILL)) == ["broker-1 was killed (SIGKILL); restarting in 0.2 s"]
    story.wait_until_due()
    story.now += 1.0
    assert texts(story.ready()) == ["broker-1 recovered after 1.2 s, pid 2"]


def test_backoff_doubles_up_to_the_maximum() -> None:
    story = Story()
    waits = []
    for _ in range(9):
        story.exit(1)
        waits.append(round(story.wait_until_due(), 3))
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]


def test_backoff_is_reset_after_a_stable_period() -> None:
    story = Story()
    for _ in range(5):
        story.exit(1)
        story.wait_until_due()
    story.ready()
    story.now += STABLE_S - 0.1
    story.exit(1)
    assert story.wait_until_due() > 1.0
    story.ready()
    story.now += STABLE_S
    story.exit(1)
    assert story.wait_until_due() == pytest.approx(BACKOFF_S_MIN)


@pytest.mark.parametrize("code", [2, 5])
def test_permanent_exit_has_the_longest_backoff_and_shows_the_log(code: int) -> None:
    story = Story()
    assert ShowLog() in story.exit(code)
    assert story.wait_until_due() == pytest.approx(BACKOFF_S_MAX)


def test_log_is_shown_after_errors_and_crashes_only() -> None:
    for code, shown in [(1, True), (-signal.SIGSEGV, True), (0, False), (-signal.SIGKILL, False)]:
        assert (ShowLog() in Story().exit(code)) is shown


def test_unresponsive_process_is_killed_and_restarted() -> None:
    """A process that has answered before is killed after 10 s without an answer, and restarted as after any exit."""
    story = Story()
    story.ready()
    done = story.be_silent(UNRESPONSIVE_S_MAX)
    assert texts(done) == ["broker-1 did not answer for 10 s; killing it"]
    assert Kill(story.pid) in done
    assert story.be_silent(5) == []  # it is killed once
    assert texts(story.exit(-signal.SIGKILL)) == ["broker-1 was killed; restarting in 0.2 s"]
    story.wait_until_due()
    assert texts(story.ready()) == ["broker-1 recovered after 15.2 s, pid 2"]


def test_one_answer_resets_the_unresponsive_timer() -> None:
    story = Story()
    story.ready()
    for _ in range(5):
        assert story.be_silent(UNRESPONSIVE_S_MAX - 1) == []
        story.ready()


def test_paused_supervisor_kills_no_process() -> None:
    """Ctrl-Z and fg: one probe was lost, and an hour has passed."""
    story = Story()
    story.ready()
    assert story.feed(Probed(story.pid, alive=False)) == []
    assert story.after(3600, Probed(story.pid, alive=False)) == []
    assert story.ready() == []


def test_start_limit_doubles_after_each_timeout() -> None:
    """A broker reads its log before it answers, so it gets more time after each kill."""
    story = Story()
    assert story.be_silent(START_S_MAX - 1) == []
    assert Kill(story.pid) in story.be_silent(START_S_MAX)
    story.exit(-signal.SIGKILL)
    story.wait_until_due()
    assert story.be_silent(2 * START_S_MAX - 1) == []
    assert Kill(story.pid) in story.be_silent(2)


def test_unready_process_is_reported_but_not_killed() -> None:
    story = Story()
    assert story.feed(Probed(1, alive=True, reason="recovering")) == []  # it was never ready: that is no news
    assert story.child.reason == "recovering"
    story.ready()
    assert texts(story.feed(Probed(1, alive=True, reason="no broker"))) == ["broker-1 is not ready: no broker"]
    assert story.after(3600, Probed(1, alive=True, reason="no broker")) == []
    assert texts(story.ready()) == ["broker-1 is ready again"]


def test_events_of_earlier_processes_are_ignored() -> None:
    story = Story()
    story.exit(1)
    story.wait_until_due()
    before = story.child
    assert story.feed(Exited(1, 0)) == []
    assert story.feed(Probed(1, alive=True, ready=True)) == []
    assert story.child == before


def test_early_timer_starts_nothing() -> None:
    story = Story()
    story.exit(1)
    assert story.feed(TimerFired()) == []
    assert story.child.due is not None


def test_failed_start_is_retried() -> None:
    child, actions = step(ProcessState("writer"), StartFailed("Resource temporarily unavailable"), 7.0)
    assert texts(actions) == ["writer could not be started: Resource temporarily unavailable; restarting in 0.2 s"]
    assert child.due == pytest.approx(7.2)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exited with code 0"),
        (1, "exited with code 1"),
        (2, "exited with code 2: invalid settings"),
        (4, "exited with code 4: port in use"),
        (5, "exited with code 5: database is behind the brokers"),
        (-9, "was killed (SIGKILL)"),
        (-11, "crashed (SIGSEGV)"),
        (-63, "crashed (signal 63)"),
    ],
)
def test_exit_codes_are_described(code: int, text: str) -> None:
    assert describe_exit(code) == text


def test_backoff_is_bounded() -> None:
    assert backoff_s(0) == BACKOFF_S_MIN
    assert backoff_s(1_000_000) == BACKOFF_S_MAX
