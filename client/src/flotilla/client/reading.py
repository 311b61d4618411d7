"""Fetches a range of records, partitions side by side, as bytes; on the loop.

What holds:

- What is there when it begins is asked for once, so the result is well defined while others produce.
- The pieces of a partition come in order, with nothing left out and nothing twice. Those of different partitions come
  as they arrive.
- Memory is bounded: some partitions at a time, one answer each, and a few answers that wait to be taken.

Whoever asks decodes what comes, so that it happens there and not on the loop.
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
from flotilla.client.positions import EARLIEST, LATEST, Place
from flotilla.client.ranges import Range, Span
from flotilla.client.routing import Fetched
from flotilla.records import BatchHeader, BatchInvalid, split

FETCH_BYTES = 4 << 20  # of one answer; a single batch may be larger
PARTITIONS_MAX = 8  # at a time
_AHEAD_MAX = 4  # answers that wait to be taken
_WAIT_S = 1.0  # a leader that is new may need a moment until it knows what it may show

log = logging.getLogger("flotilla.client")


@dataclass(frozen=True)
class Piece:
    """Batches of one partition, back to back; of their records, those from `start` on and before `end` are meant."""

    place: Place
    start: int
    end: int
    body: bytes


class Reading:
    """Reads a range, once. Made and used on the loop."""

    def __init__(self, engine: Engine, wanted: Range) -> None:
        self._engine = engine
        self._wanted = wanted
        self._topic: TopicInfo | None = None
        self._spans: deque[Span] = deque()
        self._pieces: asyncio.Queue[Piece | Exception | None] = asyncio.Queue(_AHEAD_MAX)
        self._tasks: list[asyncio.Task[TopicInfo] | asyncio.Task[None]] = []
        self._working: int | None = None  # tasks that have not said that they are done; None before the first began
        self.is_closed = False

    async def begin(self) -> TopicInfo:
        """Find out what is there, once. Raises Refused, ServerUnreachable, ClientClosed."""
        if self.is_closed:
            raise ClientClosed("the client is closed")
        if self._topic is None:
            finding = asyncio.get_running_loop().create_task(self._find_all())
            self._tasks.append(finding)
            try:
                self._topic = await finding
            except BaseException as error:
                if self.is_closed and finding.cancelled():
                    raise ClientClosed("the client was closed meanwhile") from error
                self.stop()
                raise
        return self._topic

    async def _find_all(self) -> TopicInfo:
        topic = await self._engine.cluster.refresh(self._wanted.topic)
        left = deque(self._partitions(topic))
        found: list[Span] = []

        async def find_some() -> None:
            while left:
                found.append(await self._find(topic, left.popleft()))

        # A question about a time is answered with a batch, so not all are asked at once.
        finding = [asyncio.ensure_future(find_some()) for _ in range(min(PARTITIONS_MAX, len(left)))]
        try:
            await asyncio.gather(*finding)
        finally:
            for task in finding:  # whatever went wrong with one, nobody waits for the others
                task.cancel()
        self._spans.extend(span for span in sorted(found) if span.start < span.end)
        return topic

    def _partitions(self, topic: TopicInfo) -> Sequence[int]:
        count = len(topic.partitions)
        wanted = range(count) if self._wanted.partitions is None else self._wanted.partitions
        if wanted and wanted[-1] >= count:  # they are in order
            text = f"there is no partition {wanted[-1]} of '{topic.name}': it has {count}"
            raise TopicMissing(text, "unknown_partition", {})
        return wanted

    async def _find(self, topic: TopicInfo, partition: int) -> Span:
        """Turn what is wanted of a partition into offsets."""
        bounds = await self._ask(topic, partition, LATEST)
        edges = self._wanted.edges(partition)
        start, end = [await self._resolve(topic, partition, edge, bounds) for edge in edges]
        span = Span(partition, start, end, may_begin_later=not isinstance(edges[0], int)).clamp(bounds.next_offset)
        return self._skip(span, bounds.first_offset, bounds.next_offset)

    async def _resolve(self, topic: TopicInfo, partition: int, edge: int | str, bounds: Fetched) -> int:
        if isinstance(edge, int):
            return edge
        if edge in {EARLIEST, LATEST}:
            return bounds.first_offset if edge == EARLIEST else bounds.next_offset
        return (await self._ask(topic, partition, edge)).offset

    async def _ask(self, topic: TopicInfo, partition: int, query: str) -> Fetched:
        deadline = self._engine.clock() + self._engine.config.request_s
        return await self._engine.router.fetch(topic, partition, query, max_bytes=1, wait_s=0.0, deadline=deadline)

    # -- pieces ---------------------------------------------------------------------------------------------

    async def next(self) -> Piece | None:
        """Return what comes next, or None at the end. Raises Refused, ServerUnreachable, DataInvalid, ClientClosed."""
        topic = await self.begin()
        if self._working is None:
            self._working = min(PARTITIONS_MAX, len(self._spans))
            self._tasks = [asyncio.get_running_loop().create_task(self._work(topic)) for _ in range(self._working)]
        while self._working:
            found = await self._pieces.get()
            if self.is_closed:
                raise ClientClosed("the client was closed meanwhile")
            if isinstance(found, Exception):
                self.stop()
                raise found
            if found is not None:
                return found
            self._working -= 1
        return None

    async def _work(self, topic: TopicInfo) -> None:
        """Fetch partitions, one after the other, until none is left."""
        try:
            while self._spans:
                await self._fetch_all(topic, self._spans.popleft())
            await self._pieces.put(None)
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asks is told
            await self._pieces.put(error)

    async def _fetch_all(self, topic: TopicInfo, span: Span) -> None:
        place = Place(topic.name, span.partition)
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
                await self._pieces.put(Piece(place, span.start, span.end, fetched.body))
                span = Span(span.partition, end, span.end)
                give_up_at = self._deadline()
            elif self._engine.clock() > give_up_at:
                raise ServerUnreachable(f"{place}: nobody has offset {span.start}, which was there before")

    def _deadline(self) -> float:
        return self._engine.clock() + self._engine.config.request_s

    def _skip(self, span: Span, first_offset: int, next_offset: int) -> Span:
        left = span.skip_gone(self._wanted, first_offset, next_offset)
        if left.start > span.start and not span.may_begin_later:
            log.warning(
                "%s, partition %d: %d records from offset %d on were removed, and are left out",
                self._wanted.topic, span.partition, left.start - span.start, span.start,
            )  # fmt: skip
        return left

    # -- the end --------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End; what was not taken is dropped."""
        self.is_closed = True
        self._spans.clear()
        for task in self._tasks:
            task.cancel()
        while not self._pieces.empty():
            self._pieces.get_nowait()

    def close(self) -> None:
        """End, and have whoever waits told so."""
        self.stop()
        self._pieces.put_nowait(None)


def _end_of(body: bytes, span: Span) -> int:
    """Find the offset behind the last record; 0 if there is none. Raises DataInvalid.

    Whether batches follow each other is looked at when they are opened, and not here on the loop.
    """
    try:
        last = None
        for view in split(body):
            last = view
        if last is None:
            return 0
        end = BatchHeader.from_bytes(last).next_offset
    except BatchInvalid as error:
        raise DataInvalid(f"an answer about partition {span.partition} cannot be read: {error}") from error
    if end <= span.start:
        raise DataInvalid(f"an answer about partition {span.partition} ends at {end}; {span.start} was asked for")
    return end
