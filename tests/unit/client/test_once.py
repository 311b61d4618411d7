"""What happens once: those who wait are told, and whoever tells them never waits."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from flotilla.client.once import Once
from flotilla.client.runner import Runner


def test_all_who_wait_are_told_and_so_is_who_comes_later() -> None:
    once, told = Once(), []
    threads = [threading.Thread(target=lambda: told.append(once.wait(10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    once.set()
    for thread in threads:
        thread.join(10)
    assert told == [True] * 8
    assert once.wait()
    once.set()


def test_who_waits_in_vain_is_told_so_and_leaves_nothing_behind() -> None:
    once = Once()
    assert not any(once.wait(0.0) for _ in range(100))
    assert not once.wait(0.001)
    assert once._waiting == []


def test_who_gives_up_while_all_are_told_disturbs_nobody() -> None:
    """A thread that looks may see somebody who is gone when it reaches for them: time was over just then."""

    class Fleeting(list[threading.Lock]):
        def __len__(self) -> int:
            return 1

    once = Once()
    once._waiting = Fleeting()
    once.set()
    assert once.wait()


_INTERRUPTS = 5000
_SENDER = """
import os, sys, time
while True:
    time.sleep(0.0003)
    os.kill(int(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # an interrupt may come before it is handed over,
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # or where nobody can be told of it
def test_a_client_survives_an_interrupt_at_any_moment() -> None:
    """Ctrl-C may come between any two steps of whoever waits: the loop must not wait for them ever after.

    It comes from another process: one of this process would only come where threads take turns.
    """
    runner = Runner()
    interrupts, is_armed = 0, False

    async def answer() -> int:
        return 42

    def raise_once(*_: object) -> None:
        nonlocal interrupts, is_armed
        if is_armed:
            is_armed = False
            interrupts += 1
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, raise_once)
    sender = subprocess.Popen([sys.executable, "-c", _SENDER, str(os.getpid()), str(int(signal.SIGINT))])
    try:
        while interrupts < _INTERRUPTS and sender.poll() is None:
            with suppress(KeyboardInterrupt):
                is_armed = True
                assert runner.run(answer(), timeout_s=20) == 42
                is_armed = False
    finally:
        sender.kill()
        sender.wait()
        signal.signal(signal.SIGINT, before)
    assert interrupts == _INTERRUPTS
    assert runner.run(answer(), timeout_s=5) == 42, "the loop still answers"
    runner.close()


def test_time_that_is_over_is_an_error() -> None:
    runner = Runner()

    async def wait() -> None:
        await runner.loop.create_future()

    with pytest.raises(TimeoutError, match="not done after"):
        runner.run(wait(), timeout_s=0.01)
    runner.close()
