"""Reads a range of records, several partitions concurrently, as encoded batches. Runs on the event loop.

Invariants:

- The offsets of the range are resolved once, at the start, so that the result is well defined while producers append.
- The chunks of a partition are returned in order, without gaps or duplicates. Those of different partitions are
  returned as they arrive.
- Memory is bounded: a limited number of partitions at a time with one response each, and a few responses that wait.

The caller decodes the chunks, so that this does not block the event loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from flotilla.client.cluster import TopicInfo
from flotilla.client.engine import Engine
from flotilla.client.errors import (
    ClientClosed,
    DataInvalid,
    OffsetOutOfRange,
    ServerUnreachable,
    TopicMissing,
)
from flotilla.client.positions import EARLIEST, LATEST, TopicPartition
from flotilla.client.ranges import Range, Span
from flotilla.client.router import FetchResult
from flotilla.records import BatchHeader, BatchInvalid, split

FETCH_BYTES = 4 << 20  # of one response; a single batch may be larger
PARTITIONS_MAX = 8  # fetched concurrently
_AHEAD_MAX = 4  # responses that wait for the caller
_WAIT_S = 1.0  # a new leader first has to commit an entry of its term

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RangeChunk:
    """Consecutive batches of one partition; the range includes their records from `start`, before `end`."""

    topic_partition: TopicPartition
    start: int
    end: int
    body: bytes


class RangeReader:
    """Reads a range, once. Create and use it on the event loop."""

    def __init__(self, engine: Engine, wanted: Range) -> None:
        self._engine = engine
        self._wanted = wanted
        self._topic: TopicInfo | None = None
        self._spans: deque[Span] = deque()
        self._chunks: asyncio.Queue[RangeChunk | Exception | None] = asyncio.Queue(_AHEAD_MAX)
        self._tasks: list[asyncio.Task[TopicInfo] | asyncio.Task[None]] = []
        self._working: int | None = None  # tasks that are not done; None before the first has started
        self.is_closed = False

    async def begin(self) -> TopicInfo:
        """Resolve the offsets of the range, once. Raises Refused, ServerUnreachable, ClientClosed."""
        if self.is_closed:
            raise ClientClosed("the client is closed")
        if self._topic is None:
            resolving = asyncio.get_running_loop().create_task(self._resolve_all())
            self._tasks.append(resolving)
            try:
                self._topic = await resolving
            except BaseException as error:
                if self.is_closed and resolving.cancelled():
                    raise ClientClosed("the client was closed during the call") from error
                self.stop()
                raise
        return self._topic

    async def _resolve_all(self) -> TopicInfo:
        topic = await self._engine.cluster.refresh(self._wanted.topic)
        left = deque(self._partitions(topic))
        found: list[Span] = []

        async def resolve_some() -> None:
            while left:
                found.append(await self._resolve(topic, left.popleft()))

        # The response to a query by time has a batch, so the number of concurrent requests is limited.
        finding = [asyncio.ensure_future(resolve_some()) for _ in range(min(PARTITIONS_MAX, len(left)))]
        try:
            await asyncio.gather(*finding)
        finally:
            for task in finding:  # after an error of one, the others are not needed
                task.cancel()
        self._spans.extend(span for span in sorted(found) if span.start < span.end)
        return topic

    def _partitions(self, topic: TopicInfo) -> Sequence[int]:
        count = len(topic.partitions)
        wanted = range(count) if self._wanted.partitions is None else self._wanted.partitions
        if wanted and wanted[-1] >= count:  # sorted
            text = f"topic '{topic.name}' has no partition {wanted[-1]}, only 0 to {count - 1}"
            raise TopicMissing(text, "unknown_partition", {})
        return wanted

    async def _resolve(self, topic: TopicInfo, partition: int) -> Span:
        """Resolve the offsets of one partition."""
        bounds = await self._fetch_offsets(topic, partition, LATEST)
        edges = self._wanted.edges(partition)
        start, end = [await self._resolve_edge(topic, partition, edge, bounds) for edge in edges]
        span = Span(partition, start, end, may_begin_later=not isinstance(edges[0], int)).clamp(bounds.next_offset)
        return self._skip(span, bounds.first_offset, bounds.next_offset)

    async def _resolve_edge(self, topic: TopicInfo, partition: int, edge: int | str, bounds: FetchResult) -> int:
        if isinstance(edge, int):
            return edge
        if edge in {EARLIEST, LATEST}:
            return bounds.first_offset if edge == EARLIEST else bounds.next_offset
        return (await self._fetch_offsets(topic, partition, edge)).offset

    async def _fetch_offsets(self, topic: TopicInfo, partition: int, query: str) -> FetchResult:
        deadline = self._engine.clock() + self._engine.config.request_s
        return await self._engine.router.fetch(topic, partition, query, max_bytes=1, wait_s=0.0, deadline=deadline)

    # -- chunks ---------------------------------------------------------------------------------------------

    async def next(self) -> RangeChunk | None:
        """Return the next chunk, or None at the end. Raises Refused, ServerUnreachable, DataInvalid, ClientClosed."""
        topic = await self.begin()
        if self._working is None:
            self._working = min(PARTITIONS_MAX, len(self._spans))
            self._tasks = [asyncio.get_running_loop().create_task(self._work(topic)) for _ in range(self._working)]
        while self._working:
            found = await self._chunks.get()
            if self.is_closed:
                raise ClientClosed("the client was closed during the call")
            if isinstance(found, Exception):
                self.stop()
                raise found
            if found is not None:
                return found
            self._working -= 1
        return None

    async def _work(self, topic: TopicInfo) -> None:
        """Fetch partitions, one after the other, until none is left. Errors are raised by `next`."""
        try:
            while self._spans:
                await self._fetch_all(topic, self._spans.popleft())
            await self._chunks.put(None)
        except Exception as error:  # noqa: BLE001 - `next` raises it
            await self._chunks.put(error)

    async def _fetch_all(self, topic: TopicInfo, span: Span) -> None:
        topic_partition = TopicPartition(topic.name, span.partition)
        give_up_at = self._deadline()
        while span.start < span.end:
            try:
                fetched = await self._engine.router.fetch(
                    topic, span.partition, f"offset={span.start}",
                    max_bytes=FETCH_BYTES, wait_s=_WAIT_S, deadline=self._deadline(),
                )  # fmt: skip
            except OffsetOutOfRange as error:
                if error.first_offset <= span.start:
                    raise
                span = self._skip(span, error.first_offset, error.next_offset)
                continue
            if end := _end_of(fetched.body, span):
                await self._chunks.put(RangeChunk(topic_partition, span.start, span.end, fetched.body))
                span = Span(span.partition, end, span.end)
                give_up_at = self._deadline()
            elif self._engine.clock() > give_up_at:
                raise ServerUnreachable(f"{topic_partition}: no server returned offset {span.start} in time")

    def _deadline(self) -> float:
        return self._engine.clock() + self._engine.config.request_s

    def _skip(self, span: Span, first_offset: int, next_offset: int) -> Span:
        left = span.skip_gone(self._wanted, first_offset, next_offset)
        if left.start > span.start and not span.may_begin_later:
            logger.warning(
                "deleted records skipped partition=%s-%d records=%d offset=%d",
                self._wanted.topic, span.partition, left.start - span.start, span.start,
            )  # fmt: skip
        return left

    # -- close ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Cancel all fetches, and drop the chunks that were not returned."""
        self.is_closed = True
        self._spans.clear()
        for task in self._tasks:
            task.cancel()
        while not self._chunks.empty():
            self._chunks.get_nowait()

    def close(self) -> None:
        """Stop, and wake the caller of `next`, which raises ClientClosed."""
        self.stop()
        self._chunks.put_nowait(None)


def _end_of(body: bytes, span: Span) -> int:
    """Return the offset after the last record; 0 if there is none. Raises DataInvalid.

    Whether the batches are consecutive is checked when they are decoded, outside of the event loop.
    """
    try:
        last = None
        for view in split(body):
            last = view
        if last is None:
            return 0
        end = BatchHeader.from_bytes(last).next_offset
    except BatchInvalid as error:
        raise DataInvalid(f"partition {span.partition}: invalid fetch response: {error}") from error
    if end <= span.start:
        raise DataInvalid(f"partition {span.partition}: fetch response ends at {end}, requested {span.start}")
    return end
