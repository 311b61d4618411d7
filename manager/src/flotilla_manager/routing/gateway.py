"""Requests to the leader of a partition, retried until there is a response or the timeout ends.

Leaders change, and brokers stop and return. A client that waits does not notice. Idempotent requests (reads, and
batches with a producer's sequence) are sent again. Any other request whose response is lost ends as unknown.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from flotilla.net import Disconnected, Pool, Response
from flotilla.net.verdicts import Step
from flotilla.protocol.appends import AppendResult
from flotilla.protocol.errors import Refusal
from flotilla.records import Buffer
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Broker, Partition, Topic
from flotilla_manager.routing.leaders import Leaders
from flotilla_manager.routing.verdicts import leader_in, next_step, refusal_in
from flotilla_server import request_ids

_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.25
_TRY_S_MAX = 3.0  # timeout of one attempt, if the request can be repeated
_TIMER_S = 0.01  # timers can fire this much early
_SEND_AGAIN = "send the batch again with the same producer id and sequence"
_READ_FIRST = "read the partition before you send the batch again"
_BATCH = (("content-type", "application/vnd.flotilla.batch"),)


class DeleteResult(msgspec.Struct, frozen=True):
    """Offsets of a partition after delete-records."""

    first_offset: int
    next_offset: int


_appended = msgspec.json.Decoder(AppendResult)
_delete_result = msgspec.json.Decoder(DeleteResult)


class Offsets(NamedTuple):
    """First and next offset of a partition."""

    first: int
    next: int


@dataclass(frozen=True, kw_only=True)
class LeaderRequest:
    """A request to the leader of a partition."""

    topic: Topic
    index: int
    method: str
    target: str
    body: Buffer = b""
    wait_s: float = 0.0  # long-poll time of the request
    repeatable: bool = True
    done: str = "stored"  # past participle for error messages
    advice: str = ""  # what the client can do if the outcome is unknown

    @property
    def changes(self) -> bool:
        """Whether a lost response leaves the outcome unknown."""
        return self.method != "GET"


class Gateway:
    """Sends requests to partition leaders."""

    def __init__(
        self,
        appends: Pool,
        fetches: Pool,
        metadata: MetadataCache,
        clock: Callable[[], float],
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`headers` authenticate this manager to brokers."""
        self._headers = headers
        self._batch_headers = (*_BATCH, *headers)
        self._appends = appends
        self._fetches = fetches
        self._metadata = metadata
        self._clock = clock
        self.leaders = Leaders()

    async def append(
        self,
        topic: Topic,
        index: int,
        batch: Buffer,
        *,
        timeout_s: float,
        repeatable: bool = True,
        advice: str | None = None,
    ) -> AppendResult:
        """Append a batch. Raises Refusal, with `unknown_outcome` if the batch may be stored.

        `advice` ends the message of an unknown outcome. By default, it is for a client that sent the batch itself.
        """
        request = LeaderRequest(
            topic=topic,
            index=index,
            method="POST",
            target=f"/v1/append?topic=id:{topic.id}&partition={index}",
            body=batch,
            repeatable=repeatable,
            advice=advice or (_SEND_AGAIN if repeatable else _READ_FIRST),
        )
        response = await self.send(request, timeout_s)
        try:
            return _appended.decode(response.body)
        except msgspec.DecodeError as error:
            raise _unknown(request, f"invalid response from a broker: {error}") from error

    async def fetch(self, topic: Topic, index: int, query: str, *, timeout_s: float, wait_s: float = 0.0) -> Response:
        """Fetch batches; `query` has the remaining parameters."""
        target = f"/v1/fetch?topic=id:{topic.id}&partition={index}" + (f"&{query}" if query else "")
        return await self.send(
            LeaderRequest(topic=topic, index=index, method="GET", target=target, wait_s=wait_s), timeout_s + wait_s
        )

    async def delete_records(self, topic: Topic, index: int, below: int | str, *, timeout_s: float) -> Offsets:
        """Delete records below an offset, or all current ones (`latest`); return the new offsets. Idempotent."""
        target = f"/v1/delete-records?topic=id:{topic.id}&partition={index}&offset={below}"
        request = LeaderRequest(
            topic=topic, index=index, method="POST", target=target, done="deleted", advice="send the request again"
        )
        response = await self.send(request, timeout_s)
        try:
            found = _delete_result.decode(response.body)
        except msgspec.DecodeError as error:
            raise _unknown(request, f"invalid response from a broker: {error}") from error
        return Offsets(found.first_offset, found.next_offset)

    async def offsets(self, topic: Topic, index: int, *, timeout_s: float) -> Offsets:
        """Return the offsets of a partition."""
        response = await self.fetch(topic, index, "offset=latest&max_bytes=1", timeout_s=timeout_s)
        return offsets_in(response)

    async def describe(self, topic: Topic, partition: Partition, *, timeout_s: float) -> dict[str, Any]:
        """Describe a partition, from its leader or any member that responds; empty if none does."""
        found: dict[str, Any] = {}
        target = f"/v1/replicas/{topic.id}/{partition.index}/{partition.epoch}"
        first = self.leaders.guess(topic, partition)
        candidates = [first, *(member for member in partition.members if member != first)]
        while candidates:
            broker = self._metadata.broker(candidates.pop(0))
            if broker is None:
                continue
            try:
                response = await self._fetches.request(
                    broker.url, "GET", target, headers=self._headers, timeout_s=timeout_s
                )
            except (Disconnected, TimeoutError, OSError):
                continue
            if response.status != 200:  # noqa: PLR2004 - the replica is not open there
                continue
            found = response.json()
            if found["role"] == "leader":
                return found
            if found["leader"] in candidates:
                candidates = [found["leader"]]
        return {**found, "leader": None}

    async def send(self, request: LeaderRequest, timeout_s: float) -> Response:
        """Send until there is a response. Raises Refusal."""
        attempts = _Attempts(request, timeout_s, self._clock)
        while True:
            try:
                topic, partition = self._find(request)
                broker = self._choose(topic, partition)
            except Refusal as refusal:
                raise attempts.end(refusal) from refusal
            left_s = attempts.left_s
            if left_s <= 0:
                raise attempts.end()
            try:
                response = await self._try(request, broker, left_s)
            except (Disconnected, TimeoutError, OSError) as error:
                attempts.lost(error, broker)
                self.leaders.skip(topic, partition, broker.id)
                await self._pause(attempts)
                continue
            step = next_step(response.status, response.body)
            if step is Step.DONE:
                self.leaders.learn(topic, partition.index, broker.id)
                return response
            attempts.answered(step, response.body, broker)
            self._choose_next(step, response, topic, partition, broker)
            if step is not Step.MOVE or attempts.pause_s:
                await self._pause(attempts)
            attempts.pause_s = attempts.pause_s or _PAUSE_S_MIN

    def _find(self, request: LeaderRequest) -> tuple[Topic, Partition]:
        """Look up the partition again: it may have moved, or its topic may be deleted."""
        topic = self._metadata.topic_by_id(request.topic.id)
        if topic is None or request.index >= len(topic.partitions):
            raise Refusal("unknown_partition", "the topic was deleted")
        return topic, topic.partitions[request.index]

    def _choose(self, topic: Topic, partition: Partition) -> Broker:
        for _ in partition.members:
            guess = self.leaders.guess(topic, partition)
            broker = self._metadata.broker(guess)
            if broker is not None:
                return broker
            self.leaders.skip(topic, partition, guess)
        raise Refusal("unavailable", "no broker that holds the partition is registered")

    async def _try(self, request: LeaderRequest, broker: Broker, left_s: float) -> Response:
        timeout_s = min(left_s, _TRY_S_MAX + request.wait_s) if request.repeatable else left_s
        headers = self._batch_headers if request.body else self._headers
        request_id = request_ids.current()
        if request_id is not None:
            headers = (*headers, ("x-request-id", request_id))
        pool = self._appends if request.changes else self._fetches
        return await pool.request(
            broker.url, request.method, request.target, request.body, headers, timeout_s=timeout_s
        )

    def _choose_next(self, step: Step, response: Response, topic: Topic, partition: Partition, broker: Broker) -> None:
        leader = leader_in(response.body) if step is Step.MOVE else None
        if leader in partition.members and leader != broker.id:
            self.leaders.learn(topic, partition.index, leader)
        else:
            self.leaders.skip(topic, partition, broker.id)
        if step is Step.ELSEWHERE:
            self._metadata.refresh_soon()

    async def _pause(self, attempts: "_Attempts") -> None:
        """Wait with exponential backoff."""
        attempts.pause_s = min(max(_PAUSE_S_MIN, attempts.pause_s * 2), _PAUSE_S_MAX)
        await asyncio.sleep(max(0.0, min(attempts.pause_s, attempts.left_s)))


class _Attempts:
    """Attempts of a request. Once in doubt, its outcome is unknown whatever error follows."""

    def __init__(self, request: LeaderRequest, timeout_s: float, clock: Callable[[], float]) -> None:
        self._request = request
        self._timeout_s = timeout_s
        self._clock = clock
        self._deadline = clock() + timeout_s
        self._doubt: str | None = None  # the cause of the first unknown outcome
        self._last = Refusal("unavailable", "no broker that holds the partition responds")
        self.pause_s = 0.0

    @property
    def left_s(self) -> float:
        """Time until the deadline."""
        return self._deadline - self._clock()

    def lost(self, error: Exception, broker: Broker) -> None:
        """Record a missing response. Raises Refusal if the request must not be repeated."""
        self._last = Refusal("unavailable", f"broker {broker.label} is unreachable")
        if may_be_sent(error):
            self._set_in_doubt(f"broker {broker.label} did not respond: {str(error) or type(error).__name__}")

    def answered(self, step: Step, body: bytes, broker: Broker) -> None:
        """Record an error response. Raises Refusal if it is final."""
        if step is Step.ELSEWHERE:  # the partition exists according to the cache
            self._last = Refusal("unavailable", "the partition is not open on its brokers yet; try again")
        elif step is not Step.DOUBT or not self._request.changes:
            self._last = refusal_in(body)
        if step is Step.REFUSED:
            raise self.end(self._last)
        if step is Step.DOUBT:
            self._set_in_doubt(f"broker {broker.label} responded: {refusal_in(body)}")

    def end(self, refusal: Refusal | None = None) -> Refusal:
        """Return the final error: `refusal` or the last one, or an unknown outcome with its cause."""
        if self._doubt is None:
            return refusal or self._last
        if refusal is not None:
            return _unknown(self._request, f"{self._doubt}; a later attempt failed: {refusal}")
        if self.left_s <= _TIMER_S:
            return _unknown(self._request, f"timed out after {self._timeout_s:g} s: {self._doubt}")
        return _unknown(self._request, self._doubt)

    def _set_in_doubt(self, cause: str) -> None:
        if self._request.changes and self._doubt is None:
            self._doubt = cause
        if not self._request.repeatable:
            raise self.end()


def _unknown(request: LeaderRequest, cause: str) -> Refusal:
    """Return the error of a request whose outcome is unknown."""
    return Refusal("unknown_outcome", f"{cause}; the records may be {request.done} or not: {request.advice}")


def offsets_in(response: Response) -> Offsets:
    """Parse the offsets in the headers of a fetch response."""
    return Offsets(int(response.headers[b"flotilla-first-offset"]), int(response.headers[b"flotilla-next-offset"]))


def may_be_sent(error: BaseException) -> bool:
    """Return whether a failed request may have reached the server."""
    return not isinstance(error, Disconnected) or error.sent
