"""`/v1/append` and `/v1/fetch` of the fake, as brokers handle them and managers forward them."""

import asyncio
from collections.abc import Callable
from typing import Any

from flotilla.limits import BODY_BYTES_MAX_DEFAULT, FETCH_BYTES_MAX_DEFAULT, WAIT_MS_MAX_DEFAULT
from flotilla.protocol import fetches
from flotilla.protocol.appends import APPENDS_TYPE, PARTITION_MAX, appended, check_batch_size, read_appends, result
from flotilla.protocol.asgi import JSON, check_size, number, parse_query
from flotilla.protocol.errors import Refusal
from flotilla.protocol.json_batches import read_batch, write_fetched
from flotilla.records import Buffer
from flotilla.testing.http import Request, Response
from flotilla.testing.partition import Partition
from flotilla.testing.routing import PathParams, Routes
from flotilla.testing.state import ClusterState

_JSON_TYPE = b"application/json"
_NO_STORE = (b"cache-control", b"no-store")


class DataApi:
    """Handlers of appends and fetches."""

    def __init__(self, state: ClusterState, now_ms: Callable[[], int]) -> None:
        self._state = state
        self._now_ms = now_ms

    @property
    def routes(self) -> Routes:
        """The routes."""
        return {("POST", "/v1/append"): self.append, ("GET", "/v1/fetch"): self.fetch}

    def append(self, request: Request, _: PathParams) -> dict[str, Any]:
        """Append one batch, or several."""
        check_size(len(request.body), BODY_BYTES_MAX_DEFAULT)
        kind = request.headers.get(b"content-type")
        if kind == APPENDS_TYPE:
            return {"results": self._append_all(request.body)}
        query = parse_query(request.query)
        batch: Buffer = read_batch(request.body) if kind == _JSON_TYPE else request.body
        return self._append(query.get("topic", ""), number(query, "partition", None, PARTITION_MAX), batch)

    def _append_all(self, body: bytes) -> list[dict[str, Any]]:
        results = []
        for one in read_appends(body):
            try:
                results.append(result(one, self._append(one.topic, one.partition, one.batch)))
            except Refusal as refusal:
                results.append(result(one, refusal))
        return results

    def _append(self, name: str, index: int, batch: Buffer) -> dict[str, Any]:
        topic, partition = self._state.require_partition(name, index)
        check_batch_size(topic.name, len(batch), topic.settings.batch_bytes_max)
        return appended(*partition.append(batch, self._now_ms()))

    async def fetch(self, request: Request, _: PathParams) -> Response:
        """Return batches from an offset on; with `wait_ms`, wait for new ones."""
        query = fetches.read_query(request.query)
        bytes_max = min(number(query, "max_bytes", fetches.BYTES_DEFAULT), FETCH_BYTES_MAX_DEFAULT)
        wait_s = min(number(query, "wait_ms", 0), WAIT_MS_MAX_DEFAULT) / 1000
        named = fetches.partition(query)
        topic, partition = self._state.require_partition(*named)
        offset = find_offset(partition, query)
        if wait_s and offset == partition.next_offset:
            await _wait(partition, wait_s)
            if self._state.require_partition(*named)[0].id != topic.id:
                raise Refusal("unknown_partition", "the topic was deleted, and another topic has its name")
        batches = partition.read(offset, bytes_max)
        if _JSON_TYPE in request.headers.get(b"accept", b""):
            body = write_fetched(b"".join(batches), offset, partition.first_offset, partition.next_offset)
            return Response(200, [JSON, _NO_STORE], [body])
        return Response(200, fetches.headers(offset, partition.first_offset, partition.next_offset), batches)


def find_offset(partition: Partition, query: dict[str, str]) -> int:
    """Return the offset to start at: an offset, a timestamp, `earliest` or `latest`. Raises Refusal."""
    if "timestamp_ms" in query:
        return partition.offset_at_time(number(query, "timestamp_ms", None))
    text = query.get("offset")
    if text == "earliest":
        return partition.first_offset
    if text == "latest":
        return partition.next_offset
    offset = number(query, "offset", None)
    partition.require_reached(offset, f"offset {offset}")
    return offset


async def _wait(partition: Partition, seconds: float) -> None:
    """Wait until a partition changes, or until the timeout."""
    changed = asyncio.Event()
    undo = partition.watch(changed.set)
    timer = asyncio.get_running_loop().call_later(seconds, changed.set)
    try:
        await changed.wait()
    finally:
        undo()
        timer.cancel()
