"""Records that were fetched a moment ago, so that the next message of a consumer costs no way to a broker.

What is committed never changes, so what is kept here is never wrong; it is dropped when there is too much of it.
"""

from collections import OrderedDict
from typing import NamedTuple

from flotilla.records import BatchInvalid, decode, split
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import Gateway

_FETCH_BYTES = 128 << 10
_BYTES_MAX = 64 << 20
_CHUNKS_MAX = 4  # per partition: for consumers that are at different places


class Found(NamedTuple):
    """A record, and where it is."""

    offset: int
    value: bytes


class Chunk(NamedTuple):
    """Records of one partition, one behind the other."""

    base: int
    values: list[bytes]
    size: int

    def at(self, offset: int) -> Found | None:
        """Find a record, if it is here."""
        place = offset - self.base
        return Found(offset, self.values[place]) if 0 <= place < len(self.values) else None


class Records:
    """Finds one record at a time, and fetches many."""

    def __init__(self, gateway: Gateway, seconds: float) -> None:
        self._gateway = gateway
        self._seconds = seconds
        self._chunks: OrderedDict[tuple[str, int], list[Chunk]] = OrderedDict()
        self.size = 0

    async def at(self, topic: Topic, index: int, offset: int) -> Found | None:
        """Find the first record from `offset` on; None if there is none yet. Raises Refusal."""
        kept = self._chunks.get((topic.id, index), ())
        for chunk in kept:
            found = chunk.at(offset)
            if found is not None:
                return found
        chunk = await self._fetch(topic, index, offset)
        if not chunk.values:
            return None
        self._keep((topic.id, index), chunk)
        return chunk.at(max(offset, chunk.base))

    async def _fetch(self, topic: Topic, index: int, offset: int) -> Chunk:
        try:
            response = await self._gateway.fetch(
                topic, index, f"offset={offset}&max_bytes={_FETCH_BYTES}", seconds=self._seconds
            )
        except Refusal as refusal:
            first = refusal.details.get("first_offset")
            if refusal.code != "offset_out_of_range" or not isinstance(first, int) or first <= offset:
                raise
            return await self._fetch(topic, index, first)  # retention has removed what was there
        return open_chunk(response.body)

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


def open_chunk(body: bytes) -> Chunk:
    """Open the batches that a fetch brought: they follow each other without a gap."""
    values: list[bytes] = []
    base = None
    try:
        for part in split(body):
            batch = decode(part)
            base = batch.header.base_offset if base is None else base
            values += batch.values
    except BatchInvalid as error:
        raise Refusal("unavailable", f"a broker sent records that cannot be read: {error}") from error
    return Chunk(base or 0, values, sum(map(len, values)) + 100 * len(values))
