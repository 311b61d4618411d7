"""Records that were fetched a moment ago, so that the next message of a consumer costs no way to a broker.

What is committed never changes, but it may be deleted. So what is kept here is used for a moment only, `FRESH_S`, and
whoever deletes records waits that long before it says that they are gone: then no manager hands them out any more.
Consumers that miss at the same time share a fetch: otherwise each would open the same batches for itself, all of them
would take longer than that moment, and what they fetched would be too old for anybody else.

Brokers store batches unopened. One that turns out to hold nothing that can be read, although it is whole, will never
be readable for anybody: it is passed over, so that it does not keep what lies behind it from everybody.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from flotilla.records import BatchHeader, BatchInvalid, check, decode, split
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway

logger = logging.getLogger(__name__)

FRESH_S = 1.0
_FETCH_BYTES = 128 << 10
_OPEN_BYTES_MAX = 1 << 20  # of what was fetched, no more is opened than this and one batch: it may be compressed well
_BYTES_MAX = 64 << 20
_CHUNKS_MAX = 4  # per partition: for consumers that are at different places
_FETCHES_MAX = 100  # for one record
_GRACE_S = 0.1  # the one who fetches knows better why there was no answer in time


class Found(NamedTuple):
    """A record, and where it is."""

    offset: int
    value: bytes


class Chunk(NamedTuple):
    """Records of one partition, one behind the other; None stands for one that nobody can read."""

    base: int
    values: list[bytes | None]
    size: int
    asked_at: float = 0.0  # none of it was deleted then

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self.base + len(self.values)

    def at(self, offset: int) -> Found | None:
        """Find the record, or the next one that can be read, if it is here."""
        if offset < self.base:
            return None
        for place in range(offset - self.base, len(self.values)):
            value = self.values[place]
            if value is not None:
                return Found(self.base + place, value)
        return None


class Flight(NamedTuple):
    """A fetch that is under way."""

    offset: int
    asked_at: float
    task: "asyncio.Task[Chunk]"


class Records:
    """Finds one record at a time, and fetches many."""

    def __init__(self, gateway: Gateway, seconds: float, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self.seconds = seconds  # how long a partition's leader is tried to be reached
        self._chunks: OrderedDict[tuple[str, int], list[Chunk]] = OrderedDict()
        self._flights: dict[tuple[str, int], Flight] = {}
        self.size = 0

    async def at(self, topic: Topic, index: int, offset: int, seconds: float | None = None) -> Found | None:
        """Find the first record from `offset` on; None if there is none yet. Raises Refusal."""
        found = self._kept(topic.id, index, offset)
        if found is not None:
            return found
        began, seconds = self._clock(), self.seconds if seconds is None else seconds
        for step in range(_FETCHES_MAX):
            flight = self._board(topic, index, offset, began, seconds, alone=step > 0)
            try:
                chunk = await _wait(flight.task, seconds)
            except Refusal as refusal:
                first = refusal.details.get("first_offset")
                if refusal.code != "offset_out_of_range" or not isinstance(first, int) or first <= flight.offset:
                    raise
                offset = max(offset, first)  # what was there is gone, by retention or because somebody deleted it
                continue
            found = chunk.at(max(offset, chunk.base))
            if found is not None:
                return found
            if chunk.end <= offset and flight.offset == offset and flight.asked_at >= began:
                return None
            offset = max(offset, chunk.end)
        raise Refusal("unavailable", f"no record that can be read was found up to offset {offset}; try again")

    def _kept(self, topic_id: str, index: int, offset: int) -> Found | None:
        chunks = self._chunks.get((topic_id, index), [])
        self._drop_old(chunks)
        for at, chunk in enumerate(chunks):
            found = chunk.at(offset)
            if found is not None:
                if at:  # what is used last is dropped last
                    chunks.insert(0, chunks.pop(at))
                return found
        return None

    def _drop_old(self, chunks: list[Chunk]) -> None:
        since = self._clock() - FRESH_S
        self.size -= sum(chunk.size for chunk in chunks if chunk.asked_at <= since)
        chunks[:] = [chunk for chunk in chunks if chunk.asked_at > since]

    def _board(self, topic: Topic, index: int, offset: int, began: float, seconds: float, *, alone: bool) -> Flight:
        """Begin a fetch, or find one that is under way. What it brings may be used: see `FRESH_S`.

        One from an earlier offset may end before ours: that is tried once. One that is over, although nobody was told
        yet, has nothing to wait for: asking it again and again would never end.
        """
        key = (topic.id, index)
        flight = self._flights.get(key)
        is_usable = flight is not None and not flight.task.done() and flight.asked_at > began - FRESH_S
        if flight is not None and is_usable and (flight.offset == offset or (flight.offset < offset and not alone)):
            return flight
        asked_at = self._clock()
        task = asyncio.get_running_loop().create_task(self._fetch(topic, index, offset, seconds, asked_at))
        flight = self._flights[key] = Flight(offset, asked_at, task)
        task.add_done_callback(lambda _: self._land(key, flight))
        return flight

    def _land(self, key: tuple[str, int], flight: Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.cancelled():
            flight.task.exception()  # whoever waited may have left

    async def _fetch(self, topic: Topic, index: int, offset: int, seconds: float, asked_at: float) -> Chunk:
        query = f"offset={offset}&max_bytes={_FETCH_BYTES}"
        response = await self._gateway.fetch(topic, index, query, seconds=seconds)
        chunk = open_chunk(response.body, offset)._replace(asked_at=asked_at)
        if chunk.values:
            self._keep((topic.id, index), chunk)
        return chunk

    def _keep(self, key: tuple[str, int], chunk: Chunk) -> None:
        chunks = self._chunks.setdefault(key, [])
        self._chunks.move_to_end(key)
        chunks.insert(0, chunk)
        self.size += chunk.size
        self.size -= sum(old.size for old in chunks[_CHUNKS_MAX:])
        del chunks[_CHUNKS_MAX:]
        while self.size > _BYTES_MAX and len(self._chunks) > 1:
            _, dropped = self._chunks.popitem(last=False)
            self.size -= sum(old.size for old in dropped)


async def _wait(task: "asyncio.Task[Chunk]", seconds: float) -> Chunk:
    """Wait for a fetch, and leave it to the others if time is over, or if whoever waits leaves."""
    try:
        async with asyncio.timeout(seconds + _GRACE_S):
            return await asyncio.shield(task)
    except TimeoutError:
        raise Refusal("unavailable", "the broker that leads the partition does not answer in time; try again") from None


def open_chunk(body: bytes, offset: int) -> Chunk:
    """Open the batches that a fetch brought, from `offset` on: they must follow each other.

    Of the batch that `offset` is in, what lies before may have been deleted.
    """
    values: list[bytes | None] = []
    base = size = 0
    try:
        for part in split(body):
            header = BatchHeader.from_bytes(part)
            if header.base_offset + header.count <= offset:
                continue
            if not values:
                base = header.base_offset
            elif header.base_offset != base + len(values) or size > _OPEN_BYTES_MAX:
                break
            found = open_batch(part)
            values += found
            size += header.body_bytes + 100 * len(found)
    except BatchInvalid as error:
        raise Refusal("unavailable", f"a broker sent records that cannot be read: {error}") from error
    skipped = max(0, offset - base) if values else 0
    return Chunk(base + skipped, values[skipped:], size)


def open_batch(part: memoryview) -> list[bytes] | list[None]:
    """Open a batch. Raises BatchInvalid if it was damaged on its way; what its producer made unreadable is nothing."""
    try:
        return decode(part).values
    except BatchInvalid as error:
        header = check(part)
        logger.warning("%d records from offset %d on cannot be read: %s", header.count, header.base_offset, error)
        return [None] * header.count
