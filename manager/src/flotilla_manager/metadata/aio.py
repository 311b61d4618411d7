"""The store for asyncio: calls run in a few threads of their own, and none is waited for longer than a deadline.

A call whose deadline has passed may still be under way in its thread, so its outcome is unknown. The limits of
statements and locks are shorter than the deadline; when it passes all the same, the server says nothing, and all
connections to it are given up, which frees the threads.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, TypeVar

from flotilla_manager.metadata.errors import DatabaseAway, OutcomeUnknown
from flotilla_manager.metadata.store import Store

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_S = 10.0
CLOSE_S = 2.0  # for what is under way when everything ends


class AsyncMetadata:
    """Calls methods of a store without holding up the loop."""

    def __init__(self, store: Store, threads: int = 4, deadline_s: float = DEADLINE_S) -> None:
        self.store = store
        self._deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="metadata")
        self._closed = False
        self._under_way: set[Future[Any]] = set()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of the store. Raises what it raises; DatabaseAway or OutcomeUnknown after the deadline."""
        if self._closed:
            raise DatabaseAway("this manager is ending: it asks the database no more")
        under_way = self._threads.submit(function, *args, **kwargs)
        self._under_way.add(under_way)
        under_way.add_done_callback(self._under_way.discard)
        answer = asyncio.wrap_future(under_way)
        answer.add_done_callback(_retrieve)
        await asyncio.wait([answer], timeout=self._deadline_s)
        if answer.cancelled():
            raise DatabaseAway("this manager is ending: it did not ask the database")
        if answer.done():
            return answer.result()
        if under_way.cancel():
            raise DatabaseAway(f"the database is away: no thread was free within {self._deadline_s:g} s")
        self.store.give_up_connections()
        raise OutcomeUnknown(f"the database is away: no answer within {self._deadline_s:g} s")

    def close(self) -> None:
        """End the threads and the connections. What is under way gets a moment, and is then given up."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if wait(set(self._under_way), CLOSE_S).not_done:
            self.store.give_up_connections()
        self._threads.shutdown()
        self.store.close()


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more, which asyncio would complain about."""
    if not answer.cancelled():
        answer.exception()
