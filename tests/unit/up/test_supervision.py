"""What is done about one process, in virtual time."""

import signal
from collections.abc import Sequence

import pytest

from flotilla.up import backoff
from flotilla.up.supervision import (
    SILENCE_S_MAX,
    START_S_MAX,
    WELL_S,
    Action,
    Due,
    Event,
    Exited,
    Kill,
    NotStarted,
    Phase,
    Probed,
    Say,
    ShowLog,
    Start,
    Started,
    Watched,
    describe_end,
    step,
)


class Story:
    """One child and its time. Whatever is to be started is started, under a new process id."""

    def __init__(self) -> None:
        self.now = 100.0
        self.child = Watched("broker-1")
        self.pid = 0
        self.feed(Due())

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
        assert self.feed(Due()) == [Start()]
        return waited

    def be_silent(self, seconds: float, every: float = 1.0) -> list[Action]:
        done: list[Action] = self.feed(Probed(self.pid, alive=False))
        for _ in range(int(seconds / every)):
            done += self.after(every, Probed(self.pid, alive=False))
        return done


def texts(actions: Sequence[Action]) -> list[str]:
    return [action.text for action in actions if isinstance(action, Say)]


def test_it_is_started_at_once_and_nothing_is_said() -> None:
    story = Story()
    phases = [story.child.phase]
    assert story.ready() == []
    phases.append(story.child.phase)
    assert phases == [Phase.STARTING, Phase.READY]


def test_what_was_killed_is_started_again_and_both_are_said() -> None:
    story = Story()
    story.ready()
    assert texts(story.exit(-signal.SIGKILL)) == ["broker-1 was killed (SIGKILL); starts again in 0.2 s"]
    story.wait_until_due()
    story.now += 1.0
    assert texts(story.ready()) == ["broker-1 is back after 1.2 s, as process 2"]


def test_the_wait_doubles_with_each_end_in_a_row_up_to_the_longest() -> None:
    story = Story()
    waits = []
    for _ in range(9):
        story.exit(1)
        waits.append(round(story.wait_until_due(), 3))
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]


def test_the_wait_starts_over_after_it_was_well_for_a_while() -> None:
    story = Story()
    for _ in range(5):
        story.exit(1)
        story.wait_until_due()
    story.ready()
    story.now += WELL_S - 0.1
    story.exit(1)
    assert story.wait_until_due() > 1.0
    story.ready()
    story.now += WELL_S
    story.exit(1)
    assert story.wait_until_due() == pytest.approx(backoff.FIRST_S)


@pytest.mark.parametrize("code", [2, 5])
def test_what_trying_again_does_not_help_waits_longest_and_shows_its_log(code: int) -> None:
    story = Story()
    assert ShowLog() in story.exit(code)
    assert story.wait_until_due() == pytest.approx(backoff.MAX_S)


def test_the_log_is_shown_of_what_ended_in_error_and_not_of_what_somebody_killed() -> None:
    for code, shown in [(1, True), (-signal.SIGSEGV, True), (0, False), (-signal.SIGKILL, False)]:
        assert (ShowLog() in Story().exit(code)) is shown


def test_what_hangs_is_killed_and_started_again() -> None:
    """A process that answered before and is silent for 10 s is killed; its end is an end like any other."""
    story = Story()
    story.ready()
    done = story.be_silent(SILENCE_S_MAX)
    assert texts(done) == ["broker-1 has not answered for 10 s; it is killed"]
    assert Kill(story.pid) in done
    assert story.be_silent(5) == []  # it is killed once
    assert texts(story.exit(-signal.SIGKILL)) == ["broker-1 is gone; starts again in 0.2 s"]
    story.wait_until_due()
    assert texts(story.ready()) == ["broker-1 is back after 15.2 s, as process 2"]


def test_one_answer_ends_the_silence() -> None:
    story = Story()
    story.ready()
    for _ in range(5):
        assert story.be_silent(SILENCE_S_MAX - 1) == []
        story.ready()


def test_a_supervisor_that_was_stopped_for_an_hour_kills_nobody() -> None:
    """Ctrl-Z and fg: one question was lost, and an hour has passed. That is our silence, not theirs."""
    story = Story()
    story.ready()
    assert story.feed(Probed(story.pid, alive=False)) == []
    assert story.after(3600, Probed(story.pid, alive=False)) == []
    assert story.ready() == []


def test_a_start_may_take_longer_and_longer_still_when_it_was_too_short() -> None:
    """A broker reads its log before it answers: whoever kills it for that must give it more time the next time."""
    story = Story()
    assert story.be_silent(START_S_MAX - 1) == []
    assert Kill(story.pid) in story.be_silent(START_S_MAX)
    story.exit(-signal.SIGKILL)
    story.wait_until_due()
    assert story.be_silent(2 * START_S_MAX - 1) == []
    assert Kill(story.pid) in story.be_silent(2)


def test_what_is_alive_but_not_ready_is_said_with_the_reason_and_nobody_is_killed() -> None:
    story = Story()
    assert story.feed(Probed(1, alive=True, reason="recovering")) == []  # it was never ready: that is no news
    assert story.child.reason == "recovering"
    story.ready()
    assert texts(story.feed(Probed(1, alive=True, reason="no broker"))) == ["broker-1 is not ready: no broker"]
    assert story.after(3600, Probed(1, alive=True, reason="no broker")) == []
    assert texts(story.ready()) == ["broker-1 is ready again"]


def test_news_of_an_earlier_process_changes_nothing() -> None:
    story = Story()
    story.exit(1)
    story.wait_until_due()
    before = story.child
    assert story.feed(Exited(1, 0)) == []
    assert story.feed(Probed(1, alive=True, ready=True)) == []
    assert story.child == before


def test_a_timer_that_rings_too_early_starts_nothing() -> None:
    story = Story()
    story.exit(1)
    assert story.feed(Due()) == []
    assert story.child.due is not None


def test_a_process_that_the_system_would_not_make_is_tried_again() -> None:
    child, actions = step(Watched("writer"), NotStarted("Resource temporarily unavailable"), 7.0)
    assert texts(actions) == ["writer could not be started: Resource temporarily unavailable; starts again in 0.2 s"]
    assert child.due == pytest.approx(7.2)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "ended with exit code 0"),
        (1, "ended with exit code 1"),
        (2, "ended with exit code 2: its settings were refused"),
        (4, "ended with exit code 4: its port is taken"),
        (5, "ended with exit code 5: the database is behind the brokers"),
        (-9, "was killed (SIGKILL)"),
        (-11, "crashed (SIGSEGV)"),
        (-63, "crashed (signal 63)"),
    ],
)
def test_ends_are_described(code: int, text: str) -> None:
    assert describe_end(code) == text


def test_waits_stay_bounded_after_any_number_of_ends() -> None:
    assert backoff.delay_s(0) == backoff.FIRST_S
    assert backoff.delay_s(1_000_000) == backoff.MAX_S
