"""A loop in a thread of its own, for those who do not have one: runs coroutines, and waits for them.

Threads and loops do not survive a fork. A child that uses its parent's client is told so, and does not disturb the
parent: nothing of the parent's connections is touched.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from flotilla.client.errors import ClientClosed, ClientForked

T = TypeVar("T")

_CLOSE_S = 5.0


class Runner:
    """Runs coroutines on a loop of its own, for any thread but that one."""

    def __init__(self, name: str = "flotilla") -> None:
        self._pid = os.getpid()
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_closed = False
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def check(self) -> None:
        """Raise ClientForked or ClientClosed if this cannot be used."""
        if os.getpid() != self._pid:
            raise ClientForked
        if self._is_closed:
            raise ClientClosed("the client is closed")

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run something to its end, and return what it returns. Raises what it raises, or TimeoutError."""
        try:
            self.check()
            self.check_thread()
            under_way = asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise
        try:
            return under_way.result(timeout_s)
        except CancelledError as error:
            if self._is_closed:
                raise ClientClosed("the client was closed meanwhile") from error
            raise
        except BaseException:  # a timeout, or Ctrl-C: nobody waits for it any more
            under_way.cancel()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and of this process."""
        return not self._is_closed and os.getpid() == self._pid

    def check_thread(self) -> None:
        """Raise RuntimeError where waiting would be waiting for oneself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback runs on the client's own thread, and must not wait for it")

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Have something called on the loop."""
        self.loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """End the thread. Whatever is still under way is cancelled."""
        if not self.is_usable:
            return
        self.check_thread()
        self._is_closed = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result(_CLOSE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self.loop.close()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_CLOSE_S / 2)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make a loop: uvloop's, which is faster, where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - it is optional
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
