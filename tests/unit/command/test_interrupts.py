"""Signals in commands that produce or consume."""

import os
import signal

import pytest

from flotilla.command.interrupts import Interrupts, handle_interrupts


def ask(interrupts: Interrupts, number: int) -> str:
    """Send a signal; return the result."""
    try:
        interrupts.handle(number)
    except (KeyboardInterrupt, SystemExit) as raised:
        return repr(raised)
    return "goes on"


def test_first_signal_requests_stop_and_second_raises() -> None:
    """Work in progress is finished, unless a second signal comes."""
    interrupts, stopped = Interrupts(), []
    interrupts.raise_pending()
    interrupts.stop = lambda: stopped.append("stopped")
    assert ask(interrupts, signal.SIGINT) == "goes on"
    assert stopped == ["stopped"]
    with pytest.raises(KeyboardInterrupt):
        interrupts.raise_pending()
    assert ask(interrupts, signal.SIGTERM) == "SystemExit(143)"
    assert (interrupts.count, stopped) == (2, ["stopped"])


def test_interruptible_block_is_left_at_once_and_not_entered_after_a_signal() -> None:
    interrupts = Interrupts()
    with interrupts.interruptible():
        assert ask(interrupts, signal.SIGINT) == "KeyboardInterrupt()"
    with pytest.raises(KeyboardInterrupt), interrupts.interruptible():
        pytest.fail("it was begun")


def test_third_signal_exits() -> None:
    codes: list[int] = []
    interrupts = Interrupts(codes.append)
    for _ in range(3):
        ask(interrupts, signal.SIGINT)
    assert codes == [130]


def test_handlers_are_restored_and_ignored_signals_stay_ignored() -> None:
    """A command under nohup, or after `&` in a script, ignores Ctrl-C."""
    before = signal.getsignal(signal.SIGTERM)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with handle_interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(SystemExit), interrupts.interruptible():
                os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.count == 1
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGINT, interrupt)
