"""Asyncio front end of the store: calls run in a thread pool, each with a deadline.

A call that exceeds the deadline may still be running in its thread, so its outcome is unknown. Statement and lock
timeouts are shorter than the deadline, so only an unresponsive server exceeds it. Then all connections to the server
are aborted, which frees the threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

from flotilla_manager.metadata.errors import DatabaseUnavailable, OutcomeUnknown
from flotilla_manager.metadata.store import Store

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_S = 10.0
CLOSE_S = 2.0  # time for running calls to finish at shutdown


class AsyncMetadata:
    """Calls methods of a store without blocking the event loop."""

    def __init__(self, store: Store, threads: int = 4, deadline_s: float = DEADLINE_S) -> None:
        self.store = store
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="metadata")
        self._closed = False
        self._running: set[Future[Any]] = set()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of the store. Raises its errors; after the deadline, DatabaseUnavailable or OutcomeUnknown."""
        if self._closed:
            raise DatabaseUnavailable("the manager is shutting down")
        call = self._threads.submit(function, *args, **kwargs)
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        result = asyncio.wrap_future(call)
        result.add_done_callback(_retrieve_exception)
        await asyncio.wait([result], timeout=self._deadline_s)
        if result.cancelled():
            raise DatabaseUnavailable("the manager is shutting down")
        if result.done():
            return result.result()
        if call.cancel():
            raise DatabaseUnavailable(f"database unavailable: no thread was free within {self._deadline_s:g} s")
        self.store.abort_connections()
        raise OutcomeUnknown(f"database unavailable: no response within {self._deadline_s:g} s")

    def close(self) -> None:
        """Stop the threads and close the connections. Running calls are aborted after `CLOSE_S`."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if wait(set(self._running), CLOSE_S).not_done:
            self.store.abort_connections()
        self._threads.shutdown()
        self.store.close()


def _retrieve_exception(result: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned call. Otherwise asyncio logs that it was never retrieved."""
    if not result.cancelled():
        result.exception()
