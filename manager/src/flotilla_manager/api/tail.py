"""`GET /v1/tail`: stream the records of a topic as server-sent events, as they are committed.

The id of an event has the next offset of every partition. A client resumes by sending it as `Last-Event-ID`, as
browsers do. Records of one partition are in order; partitions are interleaved. A slow client delays only its own
stream. Records that were deleted while they were queued are skipped.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from flotilla.access import Scope as Permission
from flotilla.limits import INT64_MAX
from flotilla.protocol.appends import PARTITION_MAX
from flotilla.protocol.asgi import Headers, number, parse_query
from flotilla.protocol.errors import Refusal
from flotilla.protocol.json_batches import write_records
from flotilla_manager.api.data import find_partition
from flotilla_manager.manager import Manager
from flotilla_manager.model import Topic
from flotilla_manager.record_cache import FRESH_S
from flotilla_manager.routing.gateway import offsets_in
from flotilla_server.asgi import Receive, Scope, Send, header, wait_for_disconnect
from flotilla_server.authorization import caller_of, recheck
from flotilla_server.quotas import Meter

_PARAMETERS = {"topic", "partition", "offset"}
_WAIT_MS = 10_000
_KEEP_ALIVE_S = 15.0
_FETCH_BYTES = 256 << 10
_TAIL_STREAMS_MAX = 500
_QUEUE_MAX = 8  # fetched chunks that wait for a slow client
_AGAIN_S = 0.5
_CHECK_S = 1.0  # interval of access checks
_STILL_HERE = b": still here\n\n"
_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # prevents buffering in proxies
]


class TailEndpoint:
    """ASGI endpoint of tail streams."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, until the client disconnects."""
        if scope["method"] != "GET":
            raise Refusal("method_not_allowed", "tail: method not allowed, use GET")
        query = parse_query(scope["query_string"])
        check_query(query)
        one = number(query, "partition", None, PARTITION_MAX) if "partition" in query else None
        topic = await find_partition(
            self._manager, caller_of(scope), Permission.CONSUME, query.get("topic", ""), one or 0
        )
        indexes = range(len(topic.partitions)) if one is None else (one,)
        before = read_id(header(scope, b"last-event-id"))
        begin = query.get("offset", "latest")
        positions = {
            index: before[index] if index in before else await self._begin(topic, index, begin) for index in indexes
        }
        stream, tail_streams = Stream(self._manager, topic, positions), self._manager.tail_streams
        if len(tail_streams) >= _TAIL_STREAMS_MAX:
            raise Refusal("busy", f"this manager serves {_TAIL_STREAMS_MAX} tail streams, the limit; try again later")
        tail_streams.add(stream.end)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._stream(stream, scope, receive, send)
        finally:
            tail_streams.discard(stream.end)

    async def _begin(self, topic: Topic, index: int, begin: str) -> int:
        response = await self._manager.gateway.fetch(
            topic, index, f"offset={begin}&max_bytes=1", timeout_s=self._manager.settings.request_s_max
        )
        return offsets_in(response).first if begin == "earliest" else offsets_in(response).next

    async def _stream(self, stream: "Stream", scope: Scope, receive: Receive, send: Send) -> None:
        """Send events at the rate of the quota, until the client, the topic or the token is gone."""
        meter: Meter | None = scope.get("meter")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(stream.follow(index)) for index in stream.positions]
            tasks.append(group.create_task(stream.watch(scope)))
            leaving = group.create_task(wait_for_disconnect(receive))
            leaving.add_done_callback(lambda _: stream.end())
            try:
                await send({"type": "http.response.body", "body": b": listening\n\n", "more_body": True})
                async for event in stream:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
                    while meter is not None and await stream.rest(meter.debt_s):
                        await send({"type": "http.response.body", "body": _STILL_HERE, "more_body": True})
            finally:
                for task in (*tasks, leaving):
                    task.cancel()
        await send({"type": "http.response.body", "body": b""})


class Piece(NamedTuple):
    """Fetched records of a partition, and the next offset."""

    partition: int
    records: list[dict[str, Any]]
    next_offset: int
    fetched_at: float


class Stream:
    """Stream of the records of some partitions."""

    def __init__(self, manager: Manager, topic: Topic, positions: Mapping[int, int]) -> None:
        self._manager = manager
        self._topic = topic
        self._queue: asyncio.Queue[Piece] = asyncio.Queue(_QUEUE_MAX)
        self._now = asyncio.get_running_loop().time
        self._ended = asyncio.Event()
        self._last = b""
        self.positions = dict(positions)

    def end(self, last: bytes = b"") -> None:
        """End the stream, with an optional last event."""
        self._last = self._last or last
        self._ended.set()

    async def watch(self, scope: Scope) -> None:
        """End the stream after the client's token was revoked or has expired."""
        while not self._ended.is_set():
            await asyncio.sleep(_CHECK_S)
            try:
                recheck(scope)
            except Refusal as refusal:
                self._fail(refusal)

    async def rest(self, seconds: float) -> bool:
        """Wait up to the keep-alive interval; return whether a keep-alive is due and more time is left."""
        if seconds <= 0 or self._ended.is_set():
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), min(seconds, _KEEP_ALIVE_S))
        return seconds > _KEEP_ALIVE_S and not self._ended.is_set()

    def _fail(self, refusal: Refusal) -> None:
        self.end(b"event: error\ndata: " + refusal.to_bytes() + b"\n\n")

    async def follow(self, index: int) -> None:
        """Fetch the records of one partition until the stream ends."""
        offset = self.positions[index]
        while not self._ended.is_set():
            try:
                query = f"offset={offset}&max_bytes={_FETCH_BYTES}&wait_ms={_WAIT_MS}"
                timeout_s = self._manager.settings.request_s_max
                response = await self._manager.gateway.fetch(
                    self._topic, index, query, timeout_s=timeout_s, wait_s=_WAIT_MS / 1000
                )
                records, offset = write_records(response.body, offset)
            except Refusal as refusal:
                first = refusal.details.get("first_offset")
                if refusal.code == "offset_out_of_range" and isinstance(first, int) and first > offset:
                    offset = first  # deleted by retention
                elif refusal.is_retryable:
                    await asyncio.sleep(_AGAIN_S)
                else:
                    self._fail(refusal)
                continue
            if records:
                await self._queue.put(Piece(index, records, offset, self._now()))

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> bytes:
        """Return the next events or a keep-alive; stop when the stream has ended."""
        getting = asyncio.ensure_future(self._queue.get())
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((getting, ending), timeout=_KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.is_set():
                return self._final()
            return await self._show(getting.result()) if getting.done() else _STILL_HERE
        finally:
            for task in (getting, ending):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _final(self) -> bytes:
        last, self._last = self._last, b""
        if not last:
            raise StopAsyncIteration
        return last

    async def _show(self, piece: Piece) -> bytes:
        """Encode a chunk without records that were deleted while it was queued.

        If that cannot be checked, end the stream; the client resumes.
        """
        first = 0
        if self._now() - piece.fetched_at >= FRESH_S:
            try:
                timeout_s = self._manager.settings.request_s_max
                first = (await self._manager.gateway.offsets(self._topic, piece.partition, timeout_s=timeout_s)).first
            except Refusal as refusal:
                self._fail(refusal)
                return self._final()
        return self._write(piece, first)

    def _write(self, piece: Piece, first: int) -> bytes:
        events = [_STILL_HERE] if piece.records[-1]["offset"] < first else []
        for record in piece.records:
            if record["offset"] >= first:
                self.positions[piece.partition] = record["offset"] + 1
                data = msgspec.json.encode({"partition": piece.partition, **record})
                events.append(b"id: " + write_id(self.positions) + b"\ndata: " + data + b"\n\n")
        self.positions[piece.partition] = piece.next_offset
        return b"".join(events)


def check_query(query: Mapping[str, str]) -> None:
    """Reject unknown parameters and values."""
    unknown = sorted(query.keys() - _PARAMETERS)
    if unknown:
        raise Refusal("bad_request", f"unknown parameter {unknown[0][:40]!r}; use {', '.join(sorted(_PARAMETERS))}")
    if query.get("offset", "latest") not in {"latest", "earliest"}:
        raise Refusal("bad_request", f"offset is {query['offset'][:40]!r}; it must be latest or earliest")


def write_id(positions: Mapping[int, int]) -> bytes:
    """Encode the next offset of every partition."""
    return ",".join(f"{index}:{offset}" for index, offset in sorted(positions.items())).encode()


def read_id(text: bytes | None) -> dict[int, int]:
    """Decode an event id; return an empty dict if it is missing or invalid."""
    if not text:
        return {}
    try:
        pairs = [part.split(":") for part in text.decode("ascii").split(",")]
        found = {int(index): int(offset) for index, offset in pairs}
    except ValueError:
        return {}
    return found if all(0 <= offset <= INT64_MAX for offset in found.values()) else {}
