"""Cache of recently fetched records, so that the next message of a consumer needs no request to a broker.

Committed records never change, but they can be deleted. Cached records are therefore used for `FRESH_S` only, and a
delete-records request responds after that time: then no manager returns a deleted record. Concurrent misses share a
fetch. Otherwise each would decode the same batches, all would take longer than `FRESH_S`, and no result could be
shared.

Brokers do not decode batches. A batch with a valid checksum that cannot be decoded is skipped, so that it does not
block the records after it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from flotilla.protocol.errors import Refusal
from flotilla.records import BatchHeader, BatchInvalid, check, decode, split
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway

logger = logging.getLogger(__name__)

FRESH_S = 1.0
_FETCH_BYTES = 128 << 10
_OPEN_BYTES_MAX = 1 << 20  # decoded bytes per fetch, plus one batch: compression may be high
_BYTES_MAX = 64 << 20
_CHUNKS_MAX = 4  # per partition, for consumers at different offsets
_FETCHES_MAX = 100  # per record
_GRACE_S = 0.1  # the fetch itself should time out first


class Found(NamedTuple):
    """A record and its offset."""

    offset: int
    value: bytes


class RecordRange(NamedTuple):
    """Consecutive records of one partition; None stands for an unreadable one."""

    base: int
    values: list[bytes | None]
    size: int
    started_at: float = 0.0  # start of the fetch

    @property
    def end(self) -> int:
        """Offset after the last record."""
        return self.base + len(self.values)

    def at(self, offset: int) -> Found | None:
        """Return the record at the offset, or the next readable one in the range."""
        if offset < self.base:
            return None
        for index in range(offset - self.base, len(self.values)):
            value = self.values[index]
            if value is not None:
                return Found(self.base + index, value)
        return None


class PendingFetch(NamedTuple):
    """A fetch in flight."""

    offset: int
    started_at: float
    task: "asyncio.Task[RecordRange]"


class RecordCache:
    """Returns one record at a time, and fetches many."""

    def __init__(self, gateway: Gateway, timeout_s: float, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self.timeout_s = timeout_s  # default timeout of requests to leaders
        self._chunks: OrderedDict[tuple[str, int], list[RecordRange]] = OrderedDict()
        self._fetches: dict[tuple[str, int], PendingFetch] = {}
        self.size = 0

    async def at(self, topic: Topic, index: int, offset: int, timeout_s: float | None = None) -> Found | None:
        """Return the first record at or after `offset`; None at the end. Raises Refusal."""
        found = self._find_cached(topic.id, index, offset)
        if found is not None:
            return found
        began, timeout_s = self._clock(), self.timeout_s if timeout_s is None else timeout_s
        for step in range(_FETCHES_MAX):
            fetch = self._join_or_start(topic, index, offset, began, timeout_s, alone=step > 0)
            try:
                records_found = await _wait(fetch.task, timeout_s)
            except Refusal as refusal:
                first = refusal.details.get("first_offset")
                if refusal.code != "offset_out_of_range" or not isinstance(first, int) or first <= fetch.offset:
                    raise
                offset = max(offset, first)  # deleted, by retention or by request
                continue
            found = records_found.at(max(offset, records_found.base))
            if found is not None:
                return found
            if records_found.end <= offset and fetch.offset == offset and fetch.started_at >= began:
                return None
            offset = max(offset, records_found.end)
        raise Refusal("unavailable", f"no readable record found up to offset {offset}; try again")

    def _find_cached(self, topic_id: str, index: int, offset: int) -> Found | None:
        chunks = self._chunks.get((topic_id, index), [])
        self._drop_old(chunks)
        for at, records_found in enumerate(chunks):
            found = records_found.at(offset)
            if found is not None:
                if at:  # least recently used is dropped first
                    chunks.insert(0, chunks.pop(at))
                return found
        return None

    def _drop_old(self, chunks: list[RecordRange]) -> None:
        since = self._clock() - FRESH_S
        self.size -= sum(records_found.size for records_found in chunks if records_found.started_at <= since)
        chunks[:] = [records_found for records_found in chunks if records_found.started_at > since]

    def _join_or_start(
        self, topic: Topic, index: int, offset: int, began: float, timeout_s: float, *, alone: bool
    ) -> PendingFetch:
        """Start a fetch, or join one in flight that is younger than `FRESH_S`.

        A fetch from an earlier offset may end before `offset`, so it is joined only once. A finished fetch is not
        joined: the loop would not end.
        """
        key = (topic.id, index)
        fetch = self._fetches.get(key)
        is_usable = fetch is not None and not fetch.task.done() and fetch.started_at > began - FRESH_S
        if fetch is not None and is_usable and (fetch.offset == offset or (fetch.offset < offset and not alone)):
            return fetch
        started_at = self._clock()
        task = asyncio.get_running_loop().create_task(self._fetch(topic, index, offset, timeout_s, started_at))
        fetch = self._fetches[key] = PendingFetch(offset, started_at, task)
        task.add_done_callback(lambda _: self._finish(key, fetch))
        return fetch

    def _finish(self, key: tuple[str, int], fetch: PendingFetch) -> None:
        if self._fetches.get(key) is fetch:
            del self._fetches[key]
        if not fetch.task.cancelled():
            fetch.task.exception()  # the waiting requests may be cancelled

    async def _fetch(self, topic: Topic, index: int, offset: int, timeout_s: float, started_at: float) -> RecordRange:
        query = f"offset={offset}&max_bytes={_FETCH_BYTES}"
        response = await self._gateway.fetch(topic, index, query, timeout_s=timeout_s)
        records_found = decode_batches(response.body, offset)._replace(started_at=started_at)
        if records_found.values:
            self._keep((topic.id, index), records_found)
        return records_found

    def _keep(self, key: tuple[str, int], records_found: RecordRange) -> None:
        chunks = self._chunks.setdefault(key, [])
        self._chunks.move_to_end(key)
        chunks.insert(0, records_found)
        self.size += records_found.size
        self.size -= sum(old.size for old in chunks[_CHUNKS_MAX:])
        del chunks[_CHUNKS_MAX:]
        while self.size > _BYTES_MAX and len(self._chunks) > 1:
            _, dropped = self._chunks.popitem(last=False)
            self.size -= sum(old.size for old in dropped)


async def _wait(task: "asyncio.Task[RecordRange]", timeout_s: float) -> RecordRange:
    """Wait for a shared fetch, without cancelling it for the others."""
    try:
        async with asyncio.timeout(timeout_s + _GRACE_S):
            return await asyncio.shield(task)
    except TimeoutError:
        raise Refusal("unavailable", "timed out waiting for the partition's leader; try again") from None


def decode_batches(body: bytes, offset: int) -> RecordRange:
    """Decode fetched batches from `offset` on, as long as they are consecutive.

    Records before `offset` in the first batch may be deleted, and are left out.
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
            found = decode_batch(part)
            values += found
            size += header.body_bytes + 100 * len(found)
    except BatchInvalid as error:
        raise Refusal("unavailable", f"invalid batch from a broker: {error}") from error
    skipped = max(0, offset - base) if values else 0
    return RecordRange(base + skipped, values[skipped:], size)


def decode_batch(part: memoryview) -> list[bytes] | list[None]:
    """Decode a batch. Raises BatchInvalid if its checksum fails; records that cannot be decoded are None."""
    try:
        return decode(part).values
    except BatchInvalid as error:
        header = check(part)
        logger.warning(
            "unreadable batch skipped offset=%d records=%d error=%r", header.base_offset, header.count, str(error)
        )
        return [None] * header.count
