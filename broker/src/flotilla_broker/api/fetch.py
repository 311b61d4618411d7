"""Fetch: whole batches from an offset or a time on, up to a size; waits for new ones if asked to.

`GET /v1/fetch?topic=t&partition=0&offset=5`. The answer's body is batches, one behind the other; the first may begin
before the offset. Only what is committed is ever shown.
"""

import asyncio

from flotilla_broker.api.asgi import Buffer, Headers, Receive, Scope, Send, number, parse_query, respond
from flotilla_broker.api.errors import Refusal
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.log import EntryMissing, LogError
from flotilla_broker.partition.partition import Partition
from flotilla_broker.partition.reading import select_batches
from flotilla_broker.server import Broker

BATCH_TYPE = (b"content-type", b"application/vnd.flotilla.batch")
_BYTES_DEFAULT = 1 << 20
_PARTITION_MAX = (1 << 32) - 1


class FetchEndpoint:
    """The plain ASGI endpoint."""

    def __init__(self, broker: Broker, lookup: Lookup, metrics: Metrics) -> None:
        self._broker = broker
        self._lookup = lookup
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - there is no body
        """Answer one request."""
        if scope["method"] != "GET":
            raise Refusal("method_not_allowed", "fetch takes GET")
        query = parse_query(scope["query_string"])
        topic, index = query.get("topic", ""), number(query, "partition", None, _PARTITION_MAX)
        settings = self._broker.settings
        bytes_max = min(number(query, "max_bytes", _BYTES_DEFAULT), settings.fetch_bytes_max)
        wait_ms = min(number(query, "wait_ms", 0), settings.wait_ms_max)
        any_replica = query.get("replica", "leader") == "any"
        deadline = self._loop.time() + wait_ms / 1000
        partition = self._find(topic, index, any_replica=any_replica)
        offset = find_offset(partition, query)
        batches: list[Buffer] = []
        while True:
            batches = await self._read(partition, offset, bytes_max)
            if batches or not await self._wait(partition, offset, deadline):
                break
            partition = self._find(topic, index, any_replica=any_replica)
        size = sum(len(batch) for batch in batches)
        self._metrics.fetched(size)
        await respond(send, 200, _headers(partition), batches)

    def _find(self, topic: str, index: int, *, any_replica: bool) -> Partition:
        return self._lookup.replica(topic, index) if any_replica else self._lookup.settled_leader(topic, index)

    async def _read(self, partition: Partition, offset: int, bytes_max: int) -> list[Buffer]:
        if offset < partition.start_offset:
            raise Refusal(
                "offset_out_of_range",
                f"offset {offset} is gone: records begin at {partition.start_offset}",
                first_offset=partition.start_offset,
                next_offset=partition.committed_offset,
            )
        if offset >= partition.committed_offset:
            return []
        number = partition.log.number
        at = self._broker.log.find_offset(number, offset)
        committed_index = partition.applied_index
        try:
            entries = await self._broker.read_entries(number, at, bytes_max)
        except EntryMissing as error:
            raise Refusal("not_settled", f"the records were moved while they were read; ask again ({error})") from error
        except LogError as error:
            raise Refusal("broken", f"this replica cannot be read: {error}") from error
        return select_batches(entries, offset, committed_index, bytes_max)

    async def _wait(self, partition: Partition, offset: int, deadline: float) -> bool:
        """Wait for records at `offset`; return False when time is over."""
        left = deadline - self._loop.time()
        if left <= 0:
            return False
        if offset < partition.committed_offset:
            return True
        changed = asyncio.Event()
        undo = partition.watch(changed.set)
        timer = self._loop.call_later(left, changed.set)
        try:
            await changed.wait()
        finally:
            undo()
            timer.cancel()
        return self._loop.time() < deadline or offset < partition.committed_offset


def find_offset(partition: Partition, query: dict[str, str]) -> int:
    """Tell where to begin: at an offset, at a time, at the earliest record or behind the latest."""
    if "timestamp_ms" in query:
        return partition.offset_at_time(number(query, "timestamp_ms", None))
    text = query.get("offset")
    if text == "earliest":
        return partition.start_offset
    if text == "latest":
        return partition.committed_offset
    offset = number(query, "offset", None)
    if offset > partition.committed_offset:
        raise Refusal(
            "offset_out_of_range",
            f"offset {offset} is yet to come: the next record gets {partition.committed_offset}",
            first_offset=partition.start_offset,
            next_offset=partition.committed_offset,
        )
    return offset


def _headers(partition: Partition) -> Headers:
    return [
        BATCH_TYPE,
        (b"cache-control", b"no-store"),
        (b"flotilla-first-offset", str(partition.start_offset).encode()),
        (b"flotilla-next-offset", str(partition.committed_offset).encode()),
    ]
