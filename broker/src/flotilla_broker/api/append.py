"""Append: one batch, or several batches of several partitions in one request.

`POST /v1/append?topic=t&partition=0` takes one batch as its body. `POST /v1/append` with the content type
`application/vnd.flotilla.appends` takes a msgpack list of [topic, partition, batch] and returns an outcome for each.
"""

import asyncio
import time
from typing import Any

import msgspec

from flotilla.access import Scope as Permission
from flotilla.protocol.appends import (
    APPENDS_TYPE,
    PARTITION_MAX,
    Append,
    appended,
    check_batch_size,
    read_appends,
    result,
)
from flotilla.protocol.asgi import JSON, check_size, number, parse_query
from flotilla.protocol.errors import Refusal
from flotilla.records import BatchInvalid, Buffer, check
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.log import DiskFull
from flotilla_broker.partition.appends import Appended, Done, Failed, Outcome, Unknown
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import NotLeader
from flotilla_broker.server import Broker
from flotilla_server.asgi import Receive, Scope, Send, content_length, header, read_body, respond
from flotilla_server.authorization import caller_of
from flotilla_server.callers import Caller
from flotilla_server.limits import InFlight


class AppendEndpoint:
    """ASGI endpoint of /v1/append."""

    def __init__(self, broker: Broker, lookup: Lookup, metrics: Metrics) -> None:
        self._broker = broker
        self._lookup = lookup
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.in_flight = InFlight(broker.settings.in_flight_bytes_max)
        metrics.watch("append", lambda: self.in_flight.bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["method"] != "POST":
            raise Refusal("method_not_allowed", "append: method not allowed, use POST")
        bytes_max = self._broker.settings.body_bytes_max
        size = content_length(scope)
        check_size(size or 0, bytes_max)
        caller = caller_of(scope)
        target = None if header(scope, b"content-type") == APPENDS_TYPE else self._target(caller, scope["query_string"])
        with self.in_flight.hold(0) as held:
            body = await read_body(receive, bytes_max, held.add)
            if target is None:
                answer: Any = {"results": await self._append_all(caller, body)}
            else:
                answer = self._answer(*target, await self._append(*target, body))
        await respond(send, 200, [JSON], [msgspec.json.encode(answer)])

    def _target(self, caller: Caller, text: bytes) -> tuple[str, int]:
        """Parse topic and partition, and check the scope before the body is read."""
        query = parse_query(text)
        topic, index = query.get("topic", ""), number(query, "partition", None, PARTITION_MAX)
        self._lookup.require(caller, Permission.PRODUCE, topic, index)
        return topic, index

    async def _append_all(self, caller: Caller, body: bytes) -> list[dict[str, Any]]:
        appends = read_appends(body)
        futures = [self._try(caller, append) for append in appends]
        return [
            self._result(append, await future if isinstance(future, asyncio.Future) else future)
            for append, future in zip(appends, futures, strict=True)
        ]

    def _try(self, caller: Caller, append: Append) -> "asyncio.Future[Outcome] | Refusal":
        try:
            self._lookup.require(caller, Permission.PRODUCE, append.topic, append.partition)
            return self._append(append.topic, append.partition, append.batch)
        except Refusal as refusal:
            return refusal

    def _result(self, append: Append, outcome: Outcome | Refusal) -> dict[str, Any]:
        if isinstance(outcome, Refusal):
            return result(append, outcome)
        try:
            return result(append, self._answer(append.topic, append.partition, outcome))
        except Refusal as refusal:
            return result(append, refusal)

    def _append(self, topic: str, index: int, batch: Buffer) -> "asyncio.Future[Outcome]":
        """Submit a batch; return a future of its outcome."""
        try:
            checked = check(batch)
        except BatchInvalid as error:
            raise Refusal("bad_batch", str(error)) from error
        partition = self._lookup.leader(topic, index)
        check_batch_size(partition.meta.topic, checked.total_bytes, partition.meta.batch_bytes_max)
        self._admit(partition, checked.total_bytes)
        future: asyncio.Future[Outcome] = self._loop.create_future()
        began = time.perf_counter()

        def done(outcome: Outcome) -> None:
            if not future.done():
                timer.cancel()
                future.set_result(outcome)
                self._metrics.appended(outcome, checked, time.perf_counter() - began)

        timer = self._loop.call_later(self._broker.settings.append_s_max, self._time_out, done)
        try:
            partition.submit(checked, batch, done)
        except NotLeader:
            timer.cancel()
            raise self._lookup.not_leader(partition) from None
        self._broker.engine.schedule(partition.key)
        self._broker.wake()
        return future

    def _admit(self, partition: Partition, size: int) -> None:
        """Check the disk space before the batch is proposed; transfer leadership if the disk is full."""
        try:
            self._broker.log.admit(size + 1, pending=max(0, self.in_flight.bytes - size))
        except DiskFull as error:
            self._broker.try_transfer_leadership(partition)
            raise Refusal("disk_full", str(error)) from error

    def _time_out(self, done: Done) -> None:
        limit = self._broker.settings.append_s_max
        done(Unknown(f"not committed within {limit:g} s, and may still be: retry with the same sequence"))

    def _answer(self, topic: str, index: int, outcome: Outcome) -> dict[str, Any]:
        if isinstance(outcome, Appended):
            return appended(outcome.base_offset, None if outcome.retried else outcome.time_ms)
        if isinstance(outcome, Failed):
            if outcome.code == "not_leader":
                raise self._lookup.not_leader(self._lookup.replica(topic, index))
            raise Refusal(outcome.code, outcome.message, **outcome.details)
        raise Refusal("unknown_outcome", outcome.message)
