"""`/v1/append` and `/v1/fetch` of managers: forward batches to the partition's leader without decoding them."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from flotilla.access import Scope as Permission
from flotilla.net import Response
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
from flotilla.protocol.json_batches import read_batch, write_fetched
from flotilla.records import NO_PRODUCER, BatchHeader, BatchInvalid, Buffer
from flotilla_manager.api.endpoint import database_refusal
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import offsets_in
from flotilla_server.asgi import (
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    content_length,
    header,
    read_body,
    respond,
    wait_for_disconnect,
)
from flotilla_server.authorization import caller_of, missing_scope, recheck, require_scope
from flotilla_server.callers import Caller
from flotilla_server.limits import InFlight

T = TypeVar("T")

_BATCH_HEADERS = (
    b"content-type",
    b"cache-control",
    b"flotilla-offset",
    b"flotilla-first-offset",
    b"flotilla-next-offset",
)
_JSON_TYPE = b"application/json"
_ID = "id:"
_SHOWN_MAX = 200


class AppendEndpoint:
    """`POST /v1/append?topic=&partition=`, with one batch or several, as on brokers."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.in_flight = InFlight(manager.settings.in_flight_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["method"] != "POST":
            raise Refusal("method_not_allowed", "append: method not allowed, use POST")
        settings = self._manager.settings
        check_size(content_length(scope) or 0, settings.body_bytes_max)
        query = parse_query(scope["query_string"])
        kind, caller = header(scope, b"content-type"), caller_of(scope)
        if kind != APPENDS_TYPE:
            check_named(caller, Permission.PRODUCE, query.get("topic", ""))  # reject before the body is read
        with self.in_flight.hold(0) as held:
            body = await read_body(receive, settings.body_bytes_max, held.add)
            if kind == APPENDS_TYPE:
                answer: Any = {"results": await self._append_all(caller, read_appends(body))}
            else:
                batch = read_batch(body) if kind == _JSON_TYPE else body
                index = number(query, "partition", None, PARTITION_MAX)
                answer = await self._append(caller, query.get("topic", ""), index, batch)
        await respond(send, 200, [JSON], [msgspec.json.encode(answer)])

    async def _append(self, caller: Caller, name: str, index: int, batch: Buffer) -> dict[str, Any]:
        repeatable = is_repeatable(batch)
        topic = await find_partition(self._manager, caller, Permission.PRODUCE, name, index)
        check_batch_size(topic.name, len(batch), topic.batch_bytes_max)
        found = await self._manager.gateway.append(
            topic, index, batch, timeout_s=self._manager.settings.request_s_max, repeatable=repeatable
        )
        return appended(found.base_offset, found.append_time_ms)

    async def _append_all(self, caller: Caller, appends: Sequence[Append]) -> list[dict[str, Any]]:
        """Append all batches: partitions concurrently, batches of a partition in order."""
        results: list[dict[str, Any]] = [{}] * len(appends)
        by_partition: dict[tuple[str, int], list[int]] = {}
        for at, one in enumerate(appends):
            by_partition.setdefault((one.topic, one.partition), []).append(at)

        async def send_one_by_one(mine: Sequence[int]) -> None:
            for at in mine:
                one = appends[at]
                try:
                    results[at] = result(one, await self._append(caller, one.topic, one.partition, one.batch))
                except Refusal as refusal:
                    results[at] = result(one, refusal)

        await asyncio.gather(*map(send_one_by_one, by_partition.values()))
        return results


class FetchEndpoint:
    """`GET /v1/fetch?topic=&partition=&offset=`, as on brokers."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.in_flight = InFlight(manager.settings.in_flight_bytes_max)  # responses not yet read by slow clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["method"] != "GET":
            raise Refusal("method_not_allowed", "fetch: method not allowed, use GET")
        settings = self._manager.settings
        query = parse_query(scope["query_string"])
        wait_ms = min(number(query, "wait_ms", 0), settings.wait_ms_max)
        index = number(query, "partition", None, PARTITION_MAX)
        caller = caller_of(scope)
        topic = await find_partition(self._manager, caller, Permission.CONSUME, query.get("topic", ""), index)
        rest = {name: value for name, value in query.items() if name not in {"topic", "partition"}}
        if wait_ms:
            rest["wait_ms"] = str(wait_ms)  # the limit of brokers may be higher
        fetching = self._manager.gateway.fetch(
            topic, index, urlencode(rest), timeout_s=settings.request_s_max, wait_s=wait_ms / 1000
        )
        response = await (cancel_on_disconnect(fetching, receive) if wait_ms else fetching)
        if wait_ms:
            recheck(scope)
        if _JSON_TYPE in (header(scope, b"accept") or b""):
            await respond(send, 200, [JSON, (b"cache-control", b"no-store")], [_write_json(response)])
            return
        headers = [(name, response.headers[name]) for name in _BATCH_HEADERS if name in response.headers]
        with self.in_flight.hold(len(response.body)):
            await respond(
                send, 200, headers, [response.body, b""]
            )  # the end is sent after the client has read the body


def _write_json(response: Response) -> bytes:
    first, end = offsets_in(response)
    return write_fetched(response.body, int(response.headers[b"flotilla-offset"]), first, end)


async def cancel_on_disconnect(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Run `work` until it ends or the client disconnects. Raises ClientDisconnected."""
    loop = asyncio.get_running_loop()
    working, leaving = loop.create_task(work), loop.create_task(wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


def is_repeatable(batch: Buffer) -> bool:
    """Return whether a batch can be retried: it has a producer id and a sequence."""
    try:
        return BatchHeader.from_bytes(batch).producer_id != NO_PRODUCER
    except BatchInvalid as error:
        raise Refusal("bad_batch", str(error)) from error


def check_named(caller: Caller, what: Permission, name: str) -> None:
    """Check the scope of a caller on a topic that is given by name. Raises Refusal."""
    if not name.startswith(_ID):
        require_scope(caller, what, name)


async def find_partition(manager: Manager, caller: Caller, what: Permission, name: str, index: int) -> Topic:
    """Find a topic with a partition on which the caller has a scope. Raises Refusal.

    A cache miss refreshes the cache. Without the scope, the caller does not learn whether the topic exists. A topic
    that is given by id is looked up first, because ids cannot be guessed.
    """
    check_named(caller, what, name)
    topic = await _find_partition(manager, name, index)
    if name.startswith(_ID) and not caller.allows(what, topic.name):
        raise missing_scope(what, name)
    return topic


async def _find_partition(manager: Manager, name: str, index: int) -> Topic:
    topic = _known(manager, name, index)
    if topic is None:
        try:
            await manager.metadata.refresh()
        except MetadataError as error:
            raise database_refusal(error) from error
        topic = _known(manager, name, index)
    if topic is None:
        raise Refusal("unknown_partition", f"topic {name[:_SHOWN_MAX]!r} does not exist or has no partition {index}")
    return topic


def _known(manager: Manager, name: str, index: int) -> Topic | None:
    metadata = manager.metadata
    topic = metadata.topic_by_id(name.removeprefix(_ID)) if name.startswith(_ID) else metadata.topic(name)
    return topic if topic is not None and index < len(topic.partitions) else None
