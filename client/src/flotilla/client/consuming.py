"""The core of a consumer: partitions with their positions, what comes next, and commits.

The faces ask for what comes next with `ask`, which never waits, from their own thread; with `wait` on the loop they
wait until there is something. So records are decoded and counted where they are used, and the loop only fetches.

A record is finished with when the next one is asked for. `commit` takes everything that was handed out; commits that
come by themselves take what is finished with.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from flotilla.client.cluster import TopicInfo
from flotilla.client.config import ConsumerConfig
from flotilla.client.engine import Engine
from flotilla.client.errors import ClientClosed, ConfigInvalid, FlotillaError, TopicMissing
from flotilla.client.fetching import Fetcher
from flotilla.client.lanes import Chunk, Lane
from flotilla.client.offsets import Offsets
from flotilla.client.positions import EARLIEST, LATEST, Place, Share, Start, Wanted, parse_start

CLOSE_S = 10.0
_LOOK_S = 5.0  # how often topics are asked whether they have grown

log = logging.getLogger("flotilla.client")


class Kind(Enum):
    """What has become of partitions."""

    ASSIGNED = auto()
    REVOKED = auto()  # to be finished and let go of
    LOST = auto()  # they are somebody else's already


@dataclass(frozen=True)
class Change:
    """Partitions came or go. The faces tell the user, then `settle` it."""

    kind: Kind
    lanes: tuple[Lane, ...]

    @property
    def places(self) -> list[Place]:
        """Which."""
        return [lane.place for lane in self.lanes]

    def still_true(self) -> "Change":
        """Leave out what is not true any more, or no news: whoever asks may do so long after it happened."""
        if self.kind is Kind.LOST:
            return Change(self.kind, tuple(lane for lane in self.lanes if lane.is_told))
        lanes = tuple(lane for lane in self.lanes if not lane.is_lost)
        for lane in lanes:
            lane.is_told = True
        return Change(self.kind, lanes)


class Consuming:
    """A consumer of partitions that it chooses itself. Made and used on the loop, but for what says otherwise."""

    is_patient = False  # whether a topic that seems to be gone is waited for

    def __init__(self, engine: Engine, config: ConsumerConfig, wanted: Wanted) -> None:
        self.engine = engine
        self.config = config
        self.wanted = wanted
        self.fetcher = Fetcher(
            engine.router, config, engine.clock, self.wake, self.interrupt, is_patient=self.is_patient
        )
        self.offsets = None if wanted.group is None else Offsets(engine.managers, wanted.group)
        self.changes: deque[Change] = deque()
        self.error: FlotillaError | None = None
        self.asks = 0
        self.is_waited_for = False  # somebody waits for a record
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._chunk: Chunk | None = None
        self._is_started = self._is_stopping = self.is_closed = False
        self._starting = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._committing = asyncio.Lock()
        self._first_seen: frozenset[Share] = frozenset()
        self._committed: dict[Lane, int] = {}

    # -- beginning and end ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin, once: find all partitions and where to start. Raises Refused, ServerUnreachable."""
        if not self._is_started:
            async with self._starting:
                await self._start()

    async def _start(self) -> None:
        if self._is_started:
            return
        await self.begin()
        self._is_started = True
        if self.offsets is not None and self.config.auto_commit_s is not None:
            self.run(self._commit_now_and_then(self.config.auto_commit_s))

    async def begin(self) -> None:
        """Have all the partitions that are wanted."""
        shares = await self.find_shares()
        committed = {} if self.offsets is None else await self.offsets.load(self.engine.config.request_s)
        await self.open(shares, committed, self.engine.config.request_s)
        if self.wanted.partitions is None:
            self.run(self._look_for_more())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside all else until the end; what goes wrong there is told to whoever asks next."""
        task = self._loop.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error if isinstance(error, FlotillaError) else FlotillaError(f"a mistake of ours: {error!r}")
            self.wake()

    async def close(self, timeout_s: float = CLOSE_S, *, is_finished: bool = True) -> None:
        """End; commit first, if that happens by itself. Without `is_finished` the last record counts as unfinished."""
        if self.is_closed:
            return
        if is_finished:
            self.finish()
        self.end_tasks()
        try:
            async with asyncio.timeout(timeout_s):
                if self.offsets is not None and self.config.auto_commit_s is not None and self.error is None:
                    await self.commit_quietly(list(self.fetcher.lanes.values()))
                await self.leave()
        except TimeoutError:
            log.warning("group '%s': nobody answered to a last commit in %s s", self.wanted.group, timeout_s)
        finally:
            self.is_closed = True
            self.fetcher.close()
            self.wake()

    def end_tasks(self) -> None:
        """End what goes on beside all else."""
        for task in self._tasks:
            task.cancel()

    async def leave(self) -> None:
        """Tell others that this one ends. Nobody is to be told."""

    # -- what comes next ------------------------------------------------------------------------------------

    def ask(self) -> Chunk | Change | None:
        """Return what comes next, or None if there is nothing yet. From any thread, one at a time.

        Raises ClientClosed, and whatever stands in the way.
        """
        if self.is_closed:
            raise ClientClosed("the consumer is closed")
        self.finish()
        self.asks += 1
        if (chunk := self._chunk) is not None:
            chunk.is_open = True  # before the look at what may have closed it
        if self.changes:
            return self.changes.popleft()
        if self.error is not None:
            raise self.error
        if chunk is None or not chunk.is_valid or chunk.lane.position >= chunk.batch.next_offset:
            chunk = self._chunk = self.fetcher.pop()
            if chunk is not None and not chunk.is_valid:
                chunk.is_open = False  # its partition was moved while it was decoded, when `interrupt` did not know it
        return chunk

    def finish(self) -> None:
        """Note that the user has finished with what was handed out."""
        if self._chunk is not None:
            self._chunk.lane.finish()

    async def wait(self, deadline: float | None) -> bool:
        """Wait until it makes sense to look again; False if the time is over before."""
        if self.is_closed or self._is_stopping or self.changes or self.error:
            return True
        self._ready.clear()
        if self.fetcher.has_any():
            return True
        self.is_waited_for = True
        try:
            async with asyncio.timeout_at(deadline):
                return await self._ready.wait()
        except TimeoutError:
            return False
        finally:
            self.is_waited_for = False

    def wake(self) -> None:
        """Have those who wait look again."""
        self._ready.set()

    def interrupt(self) -> None:
        """Have whoever hands out records come back before the next one."""
        if (chunk := self._chunk) is not None:
            chunk.is_open = False
        self.wake()

    def stop(self) -> None:
        """End the iteration that is under way, or the next one. From any thread."""
        self._is_stopping = True
        if (chunk := self._chunk) is not None:
            chunk.is_open = False
        self.call_soon(self.wake)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Have something called on the loop. From any thread."""
        self._loop.call_soon_threadsafe(function)

    def take_stop(self) -> bool:
        """Tell once that somebody wants it to stop. From any thread."""
        was, self._is_stopping = self._is_stopping, False
        return was

    async def settle(self, change: Change) -> None:
        """Go on after the user was told of a change."""

    # -- positions ------------------------------------------------------------------------------------------

    def lane(self, place: Place) -> Lane:
        """Find a partition. Raises ConfigInvalid."""
        found = self.fetcher.lanes.get(place)
        if found is None:
            raise ConfigInvalid(f"partition {place.partition} of '{place.topic}' is not with this consumer")
        return found

    def lanes(self, places: Iterable[Place] | None = None) -> list[Lane]:
        """Find some partitions, or all. Raises ConfigInvalid."""
        if places is not None:
            return [self.lane(Place(*place)) for place in places]
        return [lane for lane in self.fetcher.lanes.values() if not lane.is_stopped]

    async def seek(self, place: Place, to: int | Start) -> None:
        """Go on elsewhere; a number is an offset. Raises ConfigInvalid, Refused, ServerUnreachable."""
        lane = self.lane(place)
        if isinstance(to, int) and to >= 0:
            offset = to
        else:
            where = parse_start(to, "to", "an offset")
            offset = await self._resolve(lane.topic, lane.index, where, self.engine.config.request_s)
        self.fetcher.seek(lane, offset)

    async def ends(self) -> dict[Place, int]:
        """Ask where each partition ends by now. Raises Refused, ServerUnreachable."""
        lanes, seconds = self.lanes(), self.engine.config.request_s
        found = await asyncio.gather(*(self._resolve(one.topic, one.index, LATEST, seconds) for one in lanes))
        return {lane.place: end for lane, end in zip(lanes, found, strict=True)}

    async def lag(self) -> dict[Place, int]:
        """Tell how many records are yet to be handed out. Raises Refused, ServerUnreachable."""
        ends = await self.ends()
        lanes = self.fetcher.lanes
        return {place: max(0, end - lanes[place].position) for place, end in ends.items() if place in lanes}

    def has_reached(self, ends: Mapping[Place, int]) -> bool:
        """Tell whether everything before these offsets was handed out, but for what is paused. From any thread."""
        lanes = ((self.fetcher.lanes.get(place), end) for place, end in ends.items())
        return all(lane is None or lane.is_paused or lane.position >= end for lane, end in lanes)

    # -- commits --------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit what was handed out, or what is given. Raises ConfigInvalid, Refused, ServerUnreachable."""
        if offsets is None:
            lanes = list(self.fetcher.lanes.values())  # also those that are about to go: that is the last chance
            for lane in lanes:
                lane.finish()
            await self.commit_lanes(lanes)
        else:
            given = {self.lane(Place(*place)): offset for place, offset in offsets.items()}
            async with self._committing:
                await self._commit(given)

    async def commit_lanes(self, lanes: Iterable[Lane]) -> None:
        """Commit what is finished with, where that is news. Raises Refused, ServerUnreachable."""
        async with self._committing:
            news = {lane: lane.done for lane in lanes if self._committed.get(lane) != lane.done}
            if news or self.offsets is None:
                await self._commit(news)

    async def _commit(self, offsets: Mapping[Lane, int]) -> None:
        if self.offsets is None:
            raise ConfigInvalid("commit is for consumers with a group: give one, as in group='billing'")
        shares = {share_of(lane): offset for lane, offset in offsets.items()}
        await self.send_commit(self.offsets, shares)
        self._committed.update(offsets)

    async def send_commit(self, offsets: Offsets, shares: Mapping[Share, int]) -> None:
        """Send a commit. Raises Refused, ServerUnreachable."""
        await offsets.commit(shares, None, self.engine.config.request_s)

    def forget(self, lane: Lane) -> None:
        """Drop a partition."""
        self.fetcher.remove(lane)
        self._committed.pop(lane, None)

    async def _commit_now_and_then(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self.commit_quietly(list(self.fetcher.lanes.values()))

    async def commit_quietly(self, lanes: Iterable[Lane]) -> None:
        """Commit what is finished with; what cannot be committed is logged, and tried again with the next commit."""
        try:
            await self.commit_lanes(lanes)
        except FlotillaError as error:
            log.warning("group '%s': what was finished with is not committed yet: %s", self.wanted.group, error)

    # -- partitions -----------------------------------------------------------------------------------------

    async def open(self, shares: Iterable[Share], committed: Mapping[Place, int], seconds: float) -> list[Lane]:
        """Begin with partitions: where the group is, else where the user wants. Raises Refused, ServerUnreachable."""
        wanted = list(shares)
        topics = [await self._find(share) for share in wanted]
        found = await asyncio.gather(
            *(
                self._begin_at(topic, share, committed.get(share.place), seconds)
                for topic, share in zip(topics, wanted, strict=True)
            )
        )
        lanes = []
        for topic, share, offset in zip(topics, wanted, found, strict=True):
            lane = self.fetcher.add(topic, share.partition, offset)
            if share.place in committed:
                self._committed[lane] = offset
            lanes.append(lane)
        return lanes

    async def _begin_at(self, topic: TopicInfo, share: Share, committed: int | None, seconds: float) -> int:
        if committed is not None:
            return committed
        # What was not there in the beginning has come since: whoever began with the latest wants all of it.
        query = self.wanted.query if share in self._first_seen else EARLIEST
        return await self._resolve(topic, share.partition, query, seconds)

    async def _resolve(self, topic: TopicInfo, index: int, query: str, seconds: float) -> int:
        """Turn a question for a place into an offset, so that it stays the same however often it is asked."""
        is_earliest = query == EARLIEST
        asked = LATEST if is_earliest else query  # that brings no records along
        deadline = self.engine.clock() + seconds
        found = await self.engine.router.fetch(topic, index, asked, max_bytes=1, wait_s=0.0, deadline=deadline)
        return found.first_offset if is_earliest else found.offset

    async def _find(self, share: Share) -> TopicInfo:
        """Find the topic of a partition, looking again if it is not known yet. Raises Refused, ServerUnreachable."""
        topic = await self.engine.cluster.find(share.topic)
        if topic.id != share.topic_id or share.partition >= len(topic.partitions):
            topic = await self.engine.cluster.refresh(share.topic)
        if topic.id != share.topic_id or share.partition >= len(topic.partitions):
            raise TopicMissing(f"there is no partition {share.partition} of this '{share.topic}'", "not_found", {})
        return topic

    async def find_shares(self) -> list[Share]:
        """List the partitions that are wanted, as of now. Raises Refused, ServerUnreachable."""
        found = []
        for name in self.wanted.topics:
            topic = await self.engine.cluster.refresh(name)
            all_ = range(len(topic.partitions))
            some = all_ if self.wanted.partitions is None else self.wanted.partitions[name]
            found += [Share(name, topic.id, at) for at in some]
        self._first_seen = self._first_seen or frozenset(found)
        return found

    async def _look_for_more(self) -> None:
        """Take partitions in that topics get while they are read, from their beginning."""
        while True:
            await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(FlotillaError):  # a topic that is gone is told by its partitions
                new = [share for share in await self.find_shares() if share.place not in self.fetcher.lanes]
                await self.open(new, {}, self.engine.config.request_s)


def share_of(lane: Lane) -> Share:
    """Name the partition of a lane."""
    return Share(lane.topic.name, lane.topic.id, lane.index)
