"""A loop in a thread of its own, for those who do not have one: runs coroutines, and waits for them.

Threads and loops do not survive a fork. A child that uses its parent's client is told so, and does not disturb the
parent: nothing of the parent's connections is touched.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from flotilla.client.errors import ClientClosed, ClientForked
from flotilla.client.once import Once

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
        except BaseException:
            work.close()
            raise
        errand = _Errand(work)
        try:
            self.loop.call_soon_threadsafe(self._begin, errand)
        except RuntimeError as error:
            work.close()
            raise ClientClosed("the client is closed") from error
        try:
            is_over = errand.ended.wait(timeout_s)
        except BaseException:  # Ctrl-C: nobody waits for it any more
            self.loop.call_soon_threadsafe(errand.cancel)
            raise
        if not is_over:
            self.loop.call_soon_threadsafe(errand.cancel)
            raise TimeoutError(f"it was not done after {timeout_s} s")
        try:
            return errand.result()
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise ClientClosed("the client was closed meanwhile") from error
            raise

    def _begin(self, errand: "_Errand[Any]") -> None:
        if self._is_closed:
            errand.refuse()
        else:
            errand.begin(self.loop)

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
        last = _Errand(_cancel_all())
        self.loop.call_soon_threadsafe(last.begin, self.loop)
        last.ended.wait(_CLOSE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self.loop.close()


class _Errand(Generic[T]):
    """Work on its way to the loop and back. All but `ended` and `result` is for the loop."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.ended = Once()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go."""
        self._task = loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self.ended.set())

    def refuse(self) -> None:
        """Do not go."""
        self._work.close()
        self.ended.set()

    def cancel(self) -> None:
        """Stop; nobody wants to know."""
        if self._task is not None:
            self._task.cancel()
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def result(self) -> T:
        """Return what came of it, now that it has ended. Raises what was raised."""
        if self._task is None:
            raise asyncio.CancelledError
        return self._task.result()


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
