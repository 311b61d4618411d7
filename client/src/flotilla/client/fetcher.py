"""The fetcher of a consumer: prefetches batches, with one request at a time per partition.

Invariants:

- Records of a partition are returned in order, without gaps or duplicates, whatever happens to servers: every fetch
  requests the offset after the last batch that was received.
- Memory is bounded: each partition has an equal share of `prefetch_bytes`, and requests no more than what is left of
  it. Only a single batch that is larger exceeds it, because batches are never split.
- Partitions take turns, one batch each.

Tasks on the event loop fetch; any thread may take batches, so that they are decoded there and not on the event loop. A
lock guards the shared state. Whatever changes the position of a partition (`seek`, `pause`, its removal) increases its
`version` and calls `on_change`: batches that were taken before are no longer returned.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from flotilla.client.cluster import TopicInfo
from flotilla.client.config import ConsumerConfig, OnGone
from flotilla.client.errors import (
    DataInvalid,
    FlotillaError,
    OffsetOutOfRange,
    ServerUnreachable,
    TopicMissing,
    to_flotilla_error,
)
from flotilla.client.partition_fetch import BatchCursor, CompletedFetch, PartitionFetch
from flotilla.client.positions import ConsumerBatch, TopicPartition
from flotilla.client.router import FetchResult, Router
from flotilla.records import BatchHeader, BatchInvalid, decode, split

_LOG_AFTER_S = 30.0  # time without a response before it is logged; fetches are retried without limit
_RETRY_S = 0.5  # pause after a failed fetch

logger = logging.getLogger(__name__)


class Fetcher:
    """Prefetches batches. Everything except `pop` and `has_any` runs on the event loop."""

    def __init__(
        self,
        router: Router,
        config: ConsumerConfig,
        clock: Callable[[], float],
        on_ready: Callable[[], None],
        on_change: Callable[[], None],
        *,
        retries_missing_topic: bool = False,
    ) -> None:
        self._router = router
        self._config = config
        self._clock = clock
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._retries_missing_topic = retries_missing_topic  # retry until the group revokes the partition
        self._lock = threading.Lock()
        self._turns: deque[PartitionFetch] = deque()
        self.fetches: dict[TopicPartition, PartitionFetch] = {}

    def add(self, topic: TopicInfo, index: int, offset: int) -> PartitionFetch:
        """Add a partition, and fetch it from an offset."""
        fetch = PartitionFetch(topic, index, offset)
        self.fetches[fetch.topic_partition] = fetch
        with self._lock:
            self._turns.append(fetch)
        self._start_task(fetch, offset)
        return fetch

    def stop(self, fetch: PartitionFetch) -> None:
        """Stop a partition permanently: return no further record of it."""
        fetch.is_stopped = True
        self._reset(fetch)

    def remove(self, fetch: PartitionFetch) -> None:
        """Stop and remove a partition."""
        self.stop(fetch)
        with self._lock:
            if fetch in self._turns:
                self._turns.remove(fetch)
        if self.fetches.get(fetch.topic_partition) is fetch:
            del self.fetches[fetch.topic_partition]

    def seek(self, fetch: PartitionFetch, offset: int) -> None:
        """Continue at another offset. Records before it count as processed."""
        self._reset(fetch)
        fetch.position = fetch.processed = offset
        if not (fetch.is_paused or fetch.is_stopped):
            self._start_task(fetch, offset)

    def pause(self, fetch: PartitionFetch) -> None:
        """Return no records of a partition until `resume`; drop prefetched ones."""
        if not fetch.is_paused:
            fetch.is_paused = True
            self._reset(fetch)

    def resume(self, fetch: PartitionFetch) -> None:
        """Continue a paused partition at its position."""
        if fetch.is_paused:
            fetch.is_paused = False
            if not fetch.is_stopped:
                self._start_task(fetch, fetch.position)

    def close(self) -> None:
        """Remove all partitions."""
        for fetch in list(self.fetches.values()):
            self.remove(fetch)

    # -- taking batches, from any thread --------------------------------------------------------------------

    def has_any(self) -> bool:
        """Return whether `pop` has a batch or an error."""
        with self._lock:
            return any(fetch.completed or fetch.error for fetch in self._turns)

    def pop(self) -> BatchCursor | None:
        """Take the next batch; None if there is none yet. Raises the error of a partition that cannot be fetched."""
        taken = self._take()
        if taken is None:
            return None
        fetch, version, view = taken
        try:
            batch = decode(view)
            start = max(0, fetch.position - batch.header.base_offset)
            return BatchCursor(fetch, version, ConsumerBatch(fetch.topic_partition.topic, fetch.index, batch, start))
        except BatchInvalid as error:
            self._loop.call_soon_threadsafe(self._refetch, fetch, version)
            text = f"{fetch.topic_partition}: fetched data is damaged: {error}"
            raise DataInvalid(text) from error

    def _take(self) -> tuple[PartitionFetch, int, memoryview] | None:
        with self._lock:
            for _ in range(len(self._turns)):
                fetch = self._turns[0]
                self._turns.rotate(-1)
                if fetch.completed:
                    return fetch, fetch.version, self._take_from(fetch)
                if fetch.error is not None:
                    raise fetch.error
        return None

    def _take_from(self, fetch: PartitionFetch) -> memoryview:
        completed = fetch.completed[0]
        view = completed.batches.pop()
        if not completed.batches:
            fetch.completed.popleft()
            fetch.buffered_bytes -= completed.size
            if fetch.buffered_bytes <= self._share() // 2 and not fetch.has_room.is_set():
                self._loop.call_soon_threadsafe(fetch.has_room.set)
        return view

    def _share(self) -> int:
        return max(1, self._config.prefetch_bytes // max(1, len(self._turns)))

    # -- fetching, on the event loop ------------------------------------------------------------------------

    def _start_task(self, fetch: PartitionFetch, offset: int) -> None:
        fetch.next_fetch_offset = offset
        fetch.has_room.set()
        fetch.task = self._loop.create_task(self._run(fetch))

    def _reset(self, fetch: PartitionFetch) -> None:
        """Cancel the fetch task, drop prefetched batches, and invalidate those that were taken."""
        if fetch.task is not None:
            fetch.task.cancel()
            fetch.task = None
        with self._lock:
            fetch.version += 1
            fetch.completed.clear()
            fetch.buffered_bytes = 0
            fetch.error = None
        self._on_change()

    def _refetch(self, fetch: PartitionFetch, version: int) -> None:
        """Fetch again from the position, after a damaged batch."""
        if fetch.version == version and not fetch.is_stopped:
            self._reset(fetch)
            self._start_task(fetch, fetch.position)

    async def _run(self, fetch: PartitionFetch) -> None:
        """Fetch a partition until it is cancelled. `pop` raises any error: without its task, no record would follow."""
        try:
            while True:
                await fetch.has_room.wait()
                await self._fetch_once(fetch)
                if fetch.buffered_bytes > self._share() // 2:
                    fetch.has_room.clear()
        except BatchInvalid as error:
            self._fail(fetch, DataInvalid(f"{fetch.topic_partition}: invalid fetch response: {error}"))
        except Exception as error:  # noqa: BLE001 - `pop` raises it
            self._fail(fetch, to_flotilla_error(error))

    async def _fetch_once(self, fetch: PartitionFetch) -> None:
        wait_s, bytes_max = self._config.wait_s, max(1, self._share() - fetch.buffered_bytes)
        try:
            fetched = await self._router.fetch(
                fetch.topic,
                fetch.index,
                f"offset={fetch.next_fetch_offset}",
                max_bytes=min(self._config.fetch_bytes, bytes_max),
                wait_s=wait_s,
                deadline=self._clock() + wait_s + _LOG_AFTER_S,
            )
        except OffsetOutOfRange as error:
            self._skip(fetch, error)
        except (ServerUnreachable, TopicMissing) as error:
            if isinstance(error, TopicMissing) and not self._retries_missing_topic:
                raise
            logger.warning("fetch failed, retrying partition=%s error=%r", fetch.topic_partition, str(error))
            await asyncio.sleep(_RETRY_S)
        else:
            self._put(fetch, fetched)

    def _put(self, fetch: PartitionFetch, fetched: FetchResult) -> None:
        views = list(split(fetched.body))
        if not views:
            return
        end = check_consecutive(views, fetch.next_fetch_offset)
        size = len(fetched.body)
        with self._lock:
            fetch.completed.append(CompletedFetch(views, size))
            fetch.buffered_bytes += size
        fetch.next_fetch_offset = end
        self._on_ready()

    def _skip(self, fetch: PartitionFetch, error: OffsetOutOfRange) -> None:
        """Move to the first or next offset, as `on_gone` says. Raises the error with `on_gone="raise"`."""
        if self._config.on_gone == OnGone.RAISE:
            raise error
        to = error.first_offset if self._config.on_gone == OnGone.EARLIEST else error.next_offset
        logger.warning(
            "offset out of range, position moved partition=%s offset=%d new_offset=%d",
            fetch.topic_partition, fetch.next_fetch_offset, to,
        )  # fmt: skip
        if fetch.position == fetch.next_fetch_offset:  # all prefetched records were returned
            fetch.position = to
        fetch.next_fetch_offset = to
        self._on_ready()

    def _fail(self, fetch: PartitionFetch, error: FlotillaError) -> None:
        fetch.error = error
        self._on_ready()


def check_consecutive(views: Sequence[memoryview], offset: int) -> int:
    """Check that batches follow each other and that `offset` is in the first; return the offset after the last.

    Raises BatchInvalid if a server omits or repeats records.
    """
    end = offset
    for at, view in enumerate(views):
        header = BatchHeader.from_bytes(view)
        is_next = header.base_offset == end if at else header.base_offset <= end
        if not is_next or header.base_offset + header.count <= end:
            raise BatchInvalid(f"batch at offset {header.base_offset}, expected {end}")
        end = header.base_offset + header.count
    return end
