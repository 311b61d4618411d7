"""Fetches ahead: for each partition one request at a time, and what came until somebody asks for it.

What holds:

- What is handed out of a partition is in order, with nothing left out and nothing twice, whatever happens to servers:
  every fetch asks for the offset behind the last batch that came, by number.
- Memory is bounded: each partition has an equal share of `prefetch_bytes`, and asks for no more than is left of it.
  Only a batch that is larger than that exceeds it, as a batch is never cut.
- Partitions take turns, a batch each.

Tasks on the loop fetch; any thread may take what came, so that it is decoded there and not on the loop. A lock guards
what both touch. Whatever changes where a partition goes on (`seek`, `pause`, its removal) raises the lane's `version`,
and calls `on_change`: what was taken before is not handed out any further.
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
    Refused,
    ServerUnreachable,
    TopicMissing,
)
from flotilla.client.lanes import Answer, Chunk, Lane
from flotilla.client.positions import ConsumerBatch, Place
from flotilla.client.routing import Fetched, Router
from flotilla.records import BatchHeader, BatchInvalid, decode, split

_PATIENCE_S = 30.0  # after this, that nobody answers is worth a line in the log; it is tried on and on
_PAUSE_S = 0.5  # after trouble that did not take any time

log = logging.getLogger("flotilla.client")


class Fetcher:
    """Keeps lanes supplied. Everything but `pop` and `has_any` is for the loop."""

    def __init__(
        self,
        router: Router,
        config: ConsumerConfig,
        clock: Callable[[], float],
        on_ready: Callable[[], None],
        on_change: Callable[[], None],
        *,
        is_patient: bool = False,
    ) -> None:
        self._router = router
        self._config = config
        self._clock = clock
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._is_patient = is_patient  # a topic that seems to be gone may come back, or this lane is removed
        self._lock = threading.Lock()
        self._turns: deque[Lane] = deque()
        self.lanes: dict[Place, Lane] = {}

    def add(self, topic: TopicInfo, index: int, offset: int) -> Lane:
        """Have one more partition, from an offset on."""
        lane = Lane(topic, index, offset)
        self.lanes[lane.place] = lane
        with self._lock:
            self._turns.append(lane)
        self._begin(lane, offset)
        return lane

    def stop(self, lane: Lane) -> None:
        """Hand nothing of a partition out any more."""
        lane.is_stopped = True
        self._halt(lane)

    def remove(self, lane: Lane) -> None:
        """Forget a partition."""
        self.stop(lane)
        with self._lock:
            if lane in self._turns:
                self._turns.remove(lane)
        if self.lanes.get(lane.place) is lane:
            del self.lanes[lane.place]

    def seek(self, lane: Lane, offset: int) -> None:
        """Go on at another offset. What lies before it counts as finished with."""
        self._halt(lane)
        lane.position = lane.done = offset
        if not (lane.is_paused or lane.is_stopped):
            self._begin(lane, offset)

    def pause(self, lane: Lane) -> None:
        """Hand nothing out until `resume`; what was fetched ahead is dropped."""
        if not lane.is_paused:
            lane.is_paused = True
            self._halt(lane)

    def resume(self, lane: Lane) -> None:
        """Go on."""
        if lane.is_paused:
            lane.is_paused = False
            if not lane.is_stopped:
                self._begin(lane, lane.position)

    def close(self) -> None:
        """Stop everything."""
        for lane in list(self.lanes.values()):
            self.remove(lane)

    # -- what any thread may do -----------------------------------------------------------------------------

    def has_any(self) -> bool:
        """Tell whether there is anything to take, or to say."""
        with self._lock:
            return any(lane.answers or lane.error for lane in self._turns)

    def pop(self) -> Chunk | None:
        """Take the next batch; None if there is none yet. Raises what stands in the way of a partition."""
        taken = self._take()
        if taken is None:
            return None
        lane, version, view = taken
        try:
            batch = decode(view)
            start = max(0, lane.position - batch.header.base_offset)
            return Chunk(lane, version, ConsumerBatch(lane.place.topic, lane.index, batch, start))
        except BatchInvalid as error:
            self._loop.call_soon_threadsafe(self._again, lane, version)
            text = f"what was fetched of {lane.place.topic}, partition {lane.index}, is damaged: {error}"
            raise DataInvalid(text) from error

    def _take(self) -> tuple[Lane, int, memoryview] | None:
        with self._lock:
            for _ in range(len(self._turns)):
                lane = self._turns[0]
                self._turns.rotate(-1)
                if lane.answers:
                    return lane, lane.version, self._take_from(lane)
                if lane.error is not None:
                    raise lane.error
        return None

    def _take_from(self, lane: Lane) -> memoryview:
        answer = lane.answers[0]
        view = answer.batches.pop()
        if not answer.batches:
            lane.answers.popleft()
            lane.held_bytes -= answer.size
            if lane.held_bytes <= self._share() // 2 and not lane.room.is_set():
                self._loop.call_soon_threadsafe(lane.room.set)
        return view

    def _share(self) -> int:
        return max(1, self._config.prefetch_bytes // max(1, len(self._turns)))

    # -- what happens on the loop ---------------------------------------------------------------------------

    def _begin(self, lane: Lane, offset: int) -> None:
        lane.fetch_at = offset
        lane.room.set()
        lane.task = self._loop.create_task(self._run(lane))

    def _halt(self, lane: Lane) -> None:
        """Stop fetching, drop what was fetched, and make void what was taken."""
        if lane.task is not None:
            lane.task.cancel()
            lane.task = None
        with self._lock:
            lane.version += 1
            lane.answers.clear()
            lane.held_bytes = 0
            lane.error = None
        self._on_change()

    def _again(self, lane: Lane, version: int) -> None:
        """Fetch anew what could not be read."""
        if lane.version == version and not lane.is_stopped:
            self._halt(lane)
            self._begin(lane, lane.position)

    async def _run(self, lane: Lane) -> None:
        try:
            while True:
                await lane.room.wait()
                await self._fetch(lane)
                if lane.held_bytes > self._share() // 2:
                    lane.room.clear()
        except Refused as error:
            self._fail(lane, error)
        except BatchInvalid as error:
            self._fail(lane, DataInvalid(f"an answer about {lane.place} cannot be read: {error}"))

    async def _fetch(self, lane: Lane) -> None:
        wait_s, bytes_max = self._config.wait_s, max(1, self._share() - lane.held_bytes)
        try:
            fetched = await self._router.fetch(
                lane.topic,
                lane.index,
                f"offset={lane.fetch_at}",
                max_bytes=min(self._config.fetch_bytes, bytes_max),
                wait_s=wait_s,
                deadline=self._clock() + wait_s + _PATIENCE_S,
            )
        except OffsetOutOfRange as error:
            self._skip(lane, error)
        except (ServerUnreachable, TopicMissing) as error:
            if isinstance(error, TopicMissing) and not self._is_patient:
                raise
            log.warning("%s, partition %d: %s; still trying", lane.place.topic, lane.index, error)
            await asyncio.sleep(_PAUSE_S)
        else:
            self._put(lane, fetched)

    def _put(self, lane: Lane, fetched: Fetched) -> None:
        views = list(split(fetched.body))
        if not views:
            return
        end = follow(views, lane.fetch_at)
        size = len(fetched.body)
        with self._lock:
            lane.answers.append(Answer(views, size))
            lane.held_bytes += size
        lane.fetch_at = end
        self._on_ready()

    def _skip(self, lane: Lane, error: OffsetOutOfRange) -> None:
        """Go on where there are records. Raises the error if that is for the user to decide."""
        if self._config.on_gone == OnGone.RAISE:
            raise error
        to = error.first_offset if self._config.on_gone == OnGone.EARLIEST else error.next_offset
        log.warning(
            "%s, partition %d: there is no offset %d (any more); going on at %d",
            lane.place.topic, lane.index, lane.fetch_at, to,
        )  # fmt: skip
        if lane.position == lane.fetch_at:  # everything before is handed out, so there is nothing to wait for
            lane.position = to
        lane.fetch_at = to
        self._on_ready()

    def _fail(self, lane: Lane, error: FlotillaError) -> None:
        lane.error = error
        self._on_ready()


def follow(views: Sequence[memoryview], offset: int) -> int:
    """Check that batches follow each other and that `offset` is in the first; return the offset behind the last.

    Raises BatchInvalid: a server that leaves records out, or sends them twice, is not believed.
    """
    end = offset
    for at, view in enumerate(views):
        header = BatchHeader.from_bytes(view)
        is_next = header.base_offset == end if at else header.base_offset <= end
        if not is_next or header.base_offset + header.count <= end:
            raise BatchInvalid(f"a batch begins at offset {header.base_offset}, where {end} should come")
        end = header.base_offset + header.count
    return end
