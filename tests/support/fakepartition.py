"""In-memory partitions, and a router to them that responds like servers: whole batches, offsets and errors."""

import asyncio
from dataclasses import dataclass, field

from flotilla.client.cluster import PartitionInfo, TopicInfo
from flotilla.client.errors import OffsetOutOfRange
from flotilla.client.router import FetchResult
from flotilla.records import assign, encode


@dataclass
class FakePartition:
    """Consecutive batches; records before `first` are deleted."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # base offset, count, bytes
    first: int = 0
    next: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def append(self, count: int, padding: int = 0) -> None:
        """Append a batch; each value starts with the offset."""
        values = [f"{self.next + at} ".encode() + bytes(padding) for at in range(count)]
        batch = encode(values)
        assign(batch, self.next, 1)
        self.batches.append((self.next, count, bytes(batch)))
        self.next += count
        self.grown.set()
        self.grown = asyncio.Event()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches, at least one if there is any."""
        if not self.first <= offset <= self.next:
            bounds = {"first_offset": self.first, "next_offset": self.next}
            raise OffsetOutOfRange(f"there is no offset {offset}", "offset_out_of_range", bounds)
        found = b""
        for base, count, batch in self.batches:
            if base + count > offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return found


class FakeRouter:
    """Router to in-memory partitions. It counts fetches, and can fail."""

    def __init__(self, *partitions: FakePartition) -> None:
        self.partitions = partitions
        self.asked: list[tuple[int, str, int]] = []
        self.trouble: Exception | None = None
        self.damage = False

    async def fetch(
        self, topic: TopicInfo, index: int, query: str, *, max_bytes: int, wait_s: float, deadline: float
    ) -> FetchResult:
        """Respond like a server."""
        assert topic.name == "t"
        assert deadline > 0
        self.asked.append((index, query, max_bytes))
        await asyncio.sleep(0)
        if self.trouble is not None:
            raise self.trouble
        partition = self.partitions[index]
        where = query.removeprefix("offset=")
        offset = {"earliest": partition.first, "latest": partition.next}.get(where)
        offset = int(where) if offset is None else offset
        body = partition.read(offset, max_bytes)
        if not body and wait_s:
            await asyncio.wait([asyncio.ensure_future(partition.grown.wait())], timeout=wait_s)
            body = partition.read(offset, max_bytes)
        if self.damage:
            body = body[:-1] + bytes([body[-1] ^ 1])
        return FetchResult(body, offset, partition.first, partition.next)


def topic_of(router: FakeRouter) -> TopicInfo:
    """Describe the topic of these partitions."""
    partitions = tuple(PartitionInfo(at, 1, ("b",), "b") for at in range(len(router.partitions)))
    return TopicInfo("t", "1" * 32, partitions)
