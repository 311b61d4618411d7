"""Signals, as the commands take them through which records flow."""

import os
import signal

import pytest

from flotilla.command.piping import Ending, endable


def ask(ending: Ending, number: int) -> str:
    """Ask for the end; tell what comes of it."""
    try:
        ending.ask(number)
    except (KeyboardInterrupt, SystemExit) as raised:
        return repr(raised)
    return "goes on"


def test_a_first_signal_says_that_the_end_is_near_and_a_second_one_raises() -> None:
    """What is under way is finished, unless somebody insists."""
    ending, stopped = Ending(), []
    ending.end()
    ending.stop = lambda: stopped.append("stopped")
    assert ask(ending, signal.SIGINT) == "goes on"
    assert stopped == ["stopped"]
    with pytest.raises(KeyboardInterrupt):
        ending.end()
    assert ask(ending, signal.SIGTERM) == "SystemExit(143)"
    assert (ending.asked, stopped) == (2, ["stopped"])


def test_what_is_harmless_to_leave_is_left_at_once_and_not_begun_when_the_end_is_near() -> None:
    ending = Ending()
    with ending.at_once():
        assert ask(ending, signal.SIGINT) == "KeyboardInterrupt()"
    with pytest.raises(KeyboardInterrupt), ending.at_once():
        pytest.fail("it was begun")


def test_a_third_signal_ends_the_process() -> None:
    codes: list[int] = []
    ending = Ending(codes.append)
    for _ in range(3):
        ask(ending, signal.SIGINT)
    assert codes == [130]


def test_signals_are_heeded_for_a_while_and_those_that_are_ignored_stay_so() -> None:
    """A command under nohup, or behind `&` in a script, is not to be ended by the Ctrl-C that ends others."""
    before = signal.getsignal(signal.SIGTERM)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with endable() as ending:
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(SystemExit), ending.at_once():
                os.kill(os.getpid(), signal.SIGTERM)
        assert ending.asked == 1
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGINT, interrupt)
