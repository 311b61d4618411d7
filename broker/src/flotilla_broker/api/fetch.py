"""Fetch: whole batches from an offset or a time on, up to a size, with an optional wait for new records.

`GET /v1/fetch?topic=t&partition=0&offset=5`. The response is a sequence of batches; the first may begin before the
offset. Only committed records are returned.
"""

import asyncio

from flotilla.access import Scope as Permission
from flotilla.protocol import fetches
from flotilla.protocol.asgi import Buffer, Headers, number
from flotilla.protocol.errors import Refusal
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.log import EntryMissing, GroupUnknown, LogError
from flotilla_broker.partition.partition import Partition
from flotilla_broker.partition.reading import select_batches
from flotilla_broker.server import Broker
from flotilla_server.asgi import ClientDisconnected, Receive, Scope, Send, respond, wait_for_disconnect
from flotilla_server.authorization import caller_of, recheck
from flotilla_server.limits import InFlight

_ATTEMPTS_MAX = 5


class FetchEndpoint:
    """ASGI endpoint of /v1/fetch."""

    def __init__(self, broker: Broker, lookup: Lookup, metrics: Metrics) -> None:
        self._broker = broker
        self._lookup = lookup
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.in_flight = InFlight(broker.settings.in_flight_bytes_max)  # responses to slow clients
        metrics.watch("fetch", lambda: self.in_flight.bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["method"] != "GET":
            raise Refusal("method_not_allowed", "fetch: method not allowed, use GET")
        query = fetches.read_query(scope["query_string"])
        settings = self._broker.settings
        bytes_max = min(number(query, "max_bytes", fetches.BYTES_DEFAULT), settings.fetch_bytes_max)
        deadline = self._loop.time() + min(number(query, "wait_ms", 0), settings.wait_ms_max) / 1000
        self._lookup.require(caller_of(scope), Permission.CONSUME, *fetches.partition(query))
        partition = self._find(query)
        offset = find_offset(partition, query)
        while True:
            if offset < partition.committed_offset or offset < partition.start_offset:
                with self.in_flight.hold(bytes_max):
                    batches = await self._read(partition, offset, bytes_max)
                    self._metrics.fetched(sum(len(batch) for batch in batches))
                    await respond(send, 200, _headers(partition, offset), batches)
                return
            if not await self._wait(partition, offset, deadline, receive):
                await respond(send, 200, _headers(partition, offset), [])
                return
            recheck(scope)
            found = self._find(query)
            if found.meta.topic_id != partition.meta.topic_id:
                raise Refusal("unknown_partition", "the topic was deleted, and another topic has its name")
            partition = found

    def _find(self, query: dict[str, str]) -> Partition:
        topic, index = fetches.partition(query)
        if query.get("replica", "leader") == "any":
            return self._lookup.replica(topic, index)
        return self._lookup.leader_with_commit(topic, index)

    async def _read(self, partition: Partition, offset: int, bytes_max: int) -> list[Buffer]:
        """Read batches; retry if the log was trimmed or replaced during the read."""
        for _ in range(_ATTEMPTS_MAX):
            if offset < partition.start_offset:
                raise out_of_range(partition, f"offset {offset} is below the first offset, {partition.start_offset}")
            log, committed_index = partition.log, partition.applied_index
            try:
                entries = await self._broker.read_entries(
                    log.number, self._broker.log.find_offset(log.number, offset), bytes_max
                )
            except (EntryMissing, GroupUnknown):
                continue
            except LogError as error:
                raise Refusal("broken", f"replica on this broker cannot be read: {error}") from error
            if offset >= partition.start_offset:  # otherwise deleted during the read
                return select_batches(entries, offset, committed_index, bytes_max)
        raise Refusal("not_settled", "the log changed during the read; retry")

    async def _wait(self, partition: Partition, offset: int, deadline: float, receive: Receive) -> bool:
        """Wait for records at `offset`; return False on timeout. Raises ClientDisconnected."""
        left = deadline - self._loop.time()
        if left <= 0:
            return False
        if offset < partition.committed_offset:
            return True
        changed = asyncio.Event()
        undo = partition.watch(changed.set)
        timer = self._loop.call_later(left, changed.set)
        disconnected = self._loop.create_task(wait_for_disconnect(receive))
        disconnected.add_done_callback(lambda _: changed.set())
        try:
            await changed.wait()
            if disconnected.done():
                raise ClientDisconnected
        finally:
            undo()
            timer.cancel()
            disconnected.cancel()
        return self._loop.time() < deadline or offset < partition.committed_offset


def find_offset(partition: Partition, query: dict[str, str]) -> int:
    """Return the offset to start at: `offset` (a number, `earliest` or `latest`), or by `timestamp_ms`."""
    if "timestamp_ms" in query:
        return partition.offset_at_time(number(query, "timestamp_ms", None))
    text = query.get("offset")
    if text == "earliest":
        return partition.start_offset
    if text == "latest":
        return partition.committed_offset
    offset = number(query, "offset", None)
    if offset > partition.committed_offset and partition.raft.has_committed_in_term:  # other replicas may lag behind
        next_offset = partition.committed_offset
        raise out_of_range(partition, f"offset {offset} is above the next offset, {next_offset}")
    return offset


def out_of_range(partition: Partition, text: str) -> Refusal:
    """Reject an offset, with the first and next offset in the details."""
    return Refusal(
        "offset_out_of_range", text, first_offset=partition.start_offset, next_offset=partition.committed_offset
    )


def _headers(partition: Partition, offset: int) -> Headers:
    return fetches.headers(offset, partition.start_offset, partition.committed_offset)
