"""Helpers for tests of the data plane: an event loop with virtual time, a topology, and fake brokers."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from flotilla.net import Disconnected, Pool, Response, TimedOut
from flotilla.producers.errors import ProducerRefused
from flotilla.producers.table import ProducerTable
from flotilla.protocol.errors import STATUS_OF
from flotilla.records import Buffer, assign, check, decode, encode
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Broker, Partition, Snapshot, Topic, TopicState, Writer
from flotilla_manager.routing.gateway import Gateway

T = TypeVar("T")

MEMBERS = ("a", "b", "c")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop with virtual time: when idle, it advances to the next timer."""

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__()

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready and scheduled:
            self._now = max(self._now, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def on_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def make_topic(
    name: str = "t",
    partitions: int = 1,
    id_: str = "ab" * 16,
    members: Sequence[str] = MEMBERS,
    **options: Any,  # noqa: ANN401 - any field
) -> Topic:
    return Topic(
        id=id_,
        name=name,
        state=options.pop("state", TopicState.READY),
        partitions=tuple(Partition(index=at, epoch=1, members=tuple(members)) for at in range(partitions)),
        retention_ms=None,
        retention_bytes=None,
        **options,
    )


def make_snapshot(*topics: Topic, version: int = 1, brokers: Sequence[str] = MEMBERS) -> Snapshot:
    return Snapshot(
        version=version,
        cluster_id="cc" * 16,
        writer=Writer(epoch=1, url="http://writer", heartbeat=1),
        topics=topics,
        brokers=tuple(Broker(id=id_, host=id_, port=80, peer_host=id_, peer_port=81) for id_ in brokers),
    )


def make_metadata(*topics: Topic, brokers: Sequence[str] = MEMBERS) -> MetadataCache:
    """Make a metadata cache with these topics, which a refresh does not change."""

    async def load(_: int) -> Snapshot | None:
        return None

    metadata = MetadataCache(load, asyncio.get_running_loop().time)
    metadata.snapshot = make_snapshot(*topics, brokers=brokers)
    return metadata


def refusal(code: str, message: str = "no", **details: object) -> Response:
    """Refusal in the format of brokers."""
    body = {"code": code, "message": message, "details": details, "retryable": False}
    return Response(STATUS_OF[code], {}, json.dumps(body).encode())


def appended(offset: int) -> Response:
    return Response(200, {}, json.dumps({"status": "ok", "base_offset": offset, "append_time_ms": 5}).encode())


LOST = Disconnected("the server hung up", sent=True)
UNREACHABLE = Disconnected("connection refused", sent=False)


@dataclass
class Request:
    """Request to a broker."""

    broker: str
    method: str
    target: str
    body: Buffer
    timeout_s: float


Answer = Response | Exception
Answerer = Callable[[Request], Awaitable[Answer]]


@dataclass
class Brokers:
    """Fake connection pool to brokers. `answer` returns the response to a request."""

    answer: Answerer
    asked: list[Request] = field(default_factory=list)

    async def request(
        self,
        url: str,
        method: str,
        target: str,
        body: Buffer = b"",
        headers: Sequence[tuple[str, str]] = (),  # noqa: ARG002 - as the pool has it
        timeout_s: float = 30.0,
    ) -> Response:
        request = Request(url.removeprefix("http://").removesuffix(":80"), method, target, bytes(body), timeout_s)
        self.asked.append(request)
        try:
            async with asyncio.timeout(timeout_s):
                found = await self.answer(request)
        except TimeoutError:
            raise TimedOut("there was no answer", sent=True) from None
        if isinstance(found, Exception):
            raise found
        return found

    @property
    def order(self) -> str:
        """Addresses of the requested brokers, in order."""
        return "".join(request.broker for request in self.asked)


def scripted(*answers: Answer) -> Brokers:
    """Make brokers that give these responses in order, and repeat the last one."""
    left = list(answers)

    async def answer(_: Request) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    return Brokers(answer)


async def hang() -> Answer:
    """Never respond."""
    await asyncio.Event().wait()
    raise AssertionError


def make_gateway(brokers: Brokers, metadata: MetadataCache) -> Gateway:
    pool = cast("Pool", brokers)
    return Gateway(pool, pool, metadata, asyncio.get_running_loop().time)


class PartitionLog:
    """Leader of one partition: a log, and the real producer table."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.producers = ProducerTable()
        self.first = self.next = 0

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in decode(batch).values]

    def append(self, body: Buffer) -> Response:
        """Append a batch, or detect a duplicate."""
        header = check(body)
        try:
            retry = self.producers.check(header)
        except ProducerRefused as error:
            return refusal(error.code, str(error))
        if retry is not None:
            return appended(retry.base_offset)
        batch, index = bytearray(body), len(self.batches) + 1
        assign(batch, self.next, 5)
        self.producers.append(index, header, self.next, 5)
        self.producers.commit(index)
        self.batches.append(bytes(batch))
        self.next += header.count
        return appended(self.next - header.count)

    def fetch(self, offset: int) -> Response:
        """Return batches from an offset."""
        if not self.first <= offset <= self.next:
            return refusal("offset_out_of_range", first_offset=self.first, next_offset=self.next)
        found = [batch for batch in self.batches if (head := check(batch)).base_offset + head.count > offset]
        headers = {b"flotilla-first-offset": b"%d" % self.first, b"flotilla-next-offset": b"%d" % self.next}
        return Response(200, headers, b"".join(found))


def batch_at(offset: int, values: Sequence[bytes], **options: Any) -> bytes:  # noqa: ANN401 - as encode has them
    """Batch in the format of a fetch response."""
    batch = bytearray(encode(values, **options))
    assign(batch, offset, 5)
    return bytes(batch)
