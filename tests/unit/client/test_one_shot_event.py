"""One-shot events: `set` wakes all waiting threads, and never blocks."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from flotilla.client.one_shot_event import OneShotEvent
from flotilla.client.runner import Runner


def test_set_wakes_all_waiting_threads_and_later_waits_return_at_once() -> None:
    event, results = OneShotEvent(), []
    threads = [threading.Thread(target=lambda: results.append(event.wait(10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join(10)
    assert results == [True] * 8
    assert event.wait()
    event.set()


def test_wait_times_out_and_removes_its_lock() -> None:
    event = OneShotEvent()
    assert not any(event.wait(0.0) for _ in range(100))
    assert not event.wait(0.001)
    assert event._waiting == []


def test_wait_that_times_out_during_set_is_harmless() -> None:
    """`set` may find a lock whose thread timed out and removed it just then."""

    class Fleeting(list[threading.Lock]):
        def __len__(self) -> int:
            return 1

    event = OneShotEvent()
    event._waiting = Fleeting()
    event.set()
    assert event.wait()


_INTERRUPTS = 5000
_SENDER = """
import os, sys, time
while True:
    time.sleep(0.0003)
    os.kill(int(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.skipif(sys.gettrace() is not None, reason="an interrupt inside coverage.py leaves its lock locked")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # an interrupt may hit before the loop has it,
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # or where it cannot be raised
def test_client_survives_a_keyboard_interrupt_at_any_step() -> None:
    """Ctrl-C may hit between any two steps of the waiting thread: the event loop must not block afterwards.

    The signal comes from another process: a signal of this process would only hit where threads switch.
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


def test_run_raises_timeout_error() -> None:
    runner = Runner()

    async def wait() -> None:
        await runner.loop.create_future()

    with pytest.raises(TimeoutError, match="no result after"):
        runner.run(wait(), timeout_s=0.01)
    runner.close()
