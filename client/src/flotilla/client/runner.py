"""An event loop in a thread of its own, which runs coroutines for blocking callers.

Threads and event loops do not survive a fork. A child process that uses its parent's client gets ClientForked, and the
parent's connections are not touched.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from flotilla.client.errors import ClientClosed, ClientForked
from flotilla.client.one_shot_event import OneShotEvent

T = TypeVar("T")

_CLOSE_S = 5.0


class Runner:
    """Runs coroutines on an event loop of its own, for every thread except the loop's."""

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
        """Run a coroutine and return its result. Raises its exception, or TimeoutError."""
        try:
            self.check()
            self.check_thread()
        except BaseException:
            work.close()
            raise
        call = _Call(work)
        try:
            self.loop.call_soon_threadsafe(self._begin, call)
        except RuntimeError as error:
            work.close()
            raise ClientClosed("the client is closed") from error
        try:
            has_ended = call.ended.wait(timeout_s)
        except BaseException:  # Ctrl-C: the result is no longer needed
            self.loop.call_soon_threadsafe(call.cancel)
            raise
        if not has_ended:
            self.loop.call_soon_threadsafe(call.cancel)
            raise TimeoutError(f"no result after {timeout_s} s")
        try:
            return call.result()
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise ClientClosed("the client was closed during the call") from error
            raise

    def _begin(self, call: "_Call[Any]") -> None:
        if self._is_closed:
            call.refuse()
        else:
            call.begin(self.loop)

    @property
    def is_usable(self) -> bool:
        """Whether it is open and belongs to this process."""
        return not self._is_closed and os.getpid() == self._pid

    def check_thread(self) -> None:
        """Raise RuntimeError on the event loop's own thread, where waiting would deadlock."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback runs on the client's own thread and must not call blocking methods")

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Schedule a call on the event loop."""
        self.loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Stop the thread, and cancel all running tasks."""
        if not self.is_usable:
            return
        self.check_thread()
        self._is_closed = True
        last = _Call(_cancel_all())
        self.loop.call_soon_threadsafe(last.begin, self.loop)
        last.ended.wait(_CLOSE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self.loop.close()


class _Call(Generic[T]):
    """A coroutine and its result. Only `ended` and `result` may be used outside of the event loop."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.ended = OneShotEvent()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the task."""
        self._task = loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self.ended.set())

    def refuse(self) -> None:
        """Drop the coroutine without starting it."""
        self._work.close()
        self.ended.set()

    def cancel(self) -> None:
        """Cancel the task, and ignore its outcome."""
        if self._task is not None:
            self._task.cancel()
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def result(self) -> T:
        """Return the result after `ended`. Raises the task's exception."""
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
    """Create an event loop: uvloop's, which is faster, if it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - it is optional
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
