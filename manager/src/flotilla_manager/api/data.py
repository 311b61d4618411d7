"""Batches in and out through a manager, for programs that cannot reach brokers: passed on to the leader unopened."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from flotilla.records import NO_PRODUCER, BatchHeader, BatchInvalid
from flotilla.serving.asgi import (
    JSON,
    Gone,
    Receive,
    Scope,
    Send,
    check_size,
    content_length,
    number,
    parse_query,
    read_body,
    respond,
)
from flotilla.serving.errors import Refusal
from flotilla.serving.limits import InFlight
from flotilla_manager.api.endpoint import away
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Topic

T = TypeVar("T")

_BATCH_HEADERS = (b"content-type", b"cache-control", b"flotilla-first-offset", b"flotilla-next-offset")
_PARTITION_MAX = (1 << 32) - 1
_ID = "id:"


class AppendEndpoint:
    """`POST /v1/append?topic=&partition=`, as brokers have it."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.in_flight = InFlight(manager.settings.in_flight_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            raise Refusal("method_not_allowed", "append takes POST")
        settings = self._manager.settings
        check_size(content_length(scope) or 0, settings.body_bytes_max)
        query = parse_query(scope["query_string"])
        with self.in_flight.hold(0) as held:
            batch = await read_body(receive, settings.body_bytes_max, held.add)
            repeatable = is_repeatable(batch)
            topic, index = await find_partition(self._manager, query)
            appended = await self._manager.gateway.append(
                topic, index, batch, seconds=settings.request_s_max, repeatable=repeatable
            )
        answer = {"status": "ok", "base_offset": appended.base_offset, "append_time_ms": appended.append_time_ms}
        await respond(send, 200, [JSON], [msgspec.json.encode(answer)])


class FetchEndpoint:
    """`GET /v1/fetch?topic=&partition=&offset=`, as brokers have it."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.in_flight = InFlight(manager.settings.in_flight_bytes_max)  # answers on their way to slow readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "GET":
            raise Refusal("method_not_allowed", "fetch takes GET")
        settings = self._manager.settings
        query = parse_query(scope["query_string"])
        wait_ms = min(number(query, "wait_ms", 0), settings.wait_ms_max)
        topic, index = await find_partition(self._manager, query)
        rest = {name: value for name, value in query.items() if name not in {"topic", "partition"}}
        if wait_ms:
            rest["wait_ms"] = str(wait_ms)  # a broker may have more patience than we
        fetching = self._manager.gateway.fetch(
            topic, index, urlencode(rest), seconds=settings.request_s_max, wait_s=wait_ms / 1000
        )
        response = await (while_there(fetching, receive) if wait_ms else fetching)
        headers = [(name, response.headers[name]) for name in _BATCH_HEADERS if name in response.headers]
        with self.in_flight.hold(len(response.body)):
            await respond(send, 200, headers, [response.body, b""])  # the end is sent when the client has read enough


async def while_there(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Do what a client waits for, unless it hangs up: nobody should wait on its behalf then. Raises Gone."""
    loop = asyncio.get_running_loop()
    working, leaving = loop.create_task(work), loop.create_task(_leave(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _leave(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def is_repeatable(batch: bytes) -> bool:
    """Tell whether a batch may be sent again: its producer has given it a place in a sequence."""
    try:
        return BatchHeader.from_bytes(batch).producer_id != NO_PRODUCER
    except BatchInvalid as error:
        raise Refusal("bad_batch", str(error)) from error


async def find_partition(manager: Manager, query: Mapping[str, str]) -> tuple[Topic, int]:
    """Find what a request is about. Raises Refusal."""
    name, index = query.get("topic", ""), number(dict(query), "partition", None, _PARTITION_MAX)
    try:
        topic = await manager.view.find_topic(name) if not name.startswith(_ID) else await _by_id(manager, name)
    except MetadataError as error:
        raise away(error) from error
    if topic is None or index >= len(topic.partitions):
        raise Refusal("unknown_partition", f"there is no partition {index} of a topic {name[:200]!r}")
    return topic, index


async def _by_id(manager: Manager, name: str) -> Topic | None:
    id_ = name.removeprefix(_ID)
    topic = manager.view.topic_by_id(id_)
    if topic is None:
        await manager.view.refresh()
        topic = manager.view.topic_by_id(id_)
    return topic
