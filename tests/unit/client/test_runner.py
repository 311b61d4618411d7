import asyncio
import os
import threading
import time

import pytest

from flotilla.client.errors import ClientClosed, ClientForked
from flotilla.client.runner import Runner


async def answer(what: object = 42) -> object:
    await asyncio.sleep(0)
    if isinstance(what, Exception):
        raise what
    return what


def test_runner_runs_coroutines_for_any_thread() -> None:
    runner = Runner()
    found: list[object] = []
    threads = [threading.Thread(target=lambda at=at: found.append(runner.run(answer(at)))) for at in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        runner.run(answer(KeyError("x")))
    runner.close()


def test_run_cancels_the_coroutine_after_the_timeout() -> None:
    runner = Runner()
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        runner.run(work(), timeout_s=0.01)
    assert ended.wait(5)
    runner.close()


def test_close_cancels_running_calls_and_rejects_later_ones() -> None:
    runner = Runner()
    caught: list[BaseException] = []
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.sleep(60)

    def wait() -> None:
        try:
            runner.run(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test looks at it
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(5)
    runner.close()
    thread.join(5)
    assert [type(error) for error in caught] == [ClientClosed]
    assert not runner.is_usable
    with pytest.raises(ClientClosed):
        runner.run(answer())
    runner.close()
    assert runner.loop.is_closed()


def test_run_on_the_loops_own_thread_raises() -> None:
    runner = Runner()

    async def work() -> None:
        runner.run(answer())

    async def close() -> None:
        runner.close()

    with pytest.raises(RuntimeError, match="must not call blocking methods"):
        runner.run(work())
    with pytest.raises(RuntimeError, match="must not call blocking methods"):
        runner.run(close())
    assert runner.run(answer()) == 42
    runner.close()


def test_forked_child_gets_client_forked_and_the_parent_continues() -> None:
    runner = Runner()
    pid = os.fork()
    if pid == 0:
        try:
            runner.close()  # of no effect: it is the parent's
            runner.run(answer())
        except ClientForked:
            os._exit(7)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 10
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 7
    assert runner.run(answer()) == 42
    runner.close()
