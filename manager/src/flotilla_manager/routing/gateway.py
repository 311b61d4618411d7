"""Asks the leader of a partition, whoever that is by now, until there is an answer or time is over.

Leaders change, brokers stop and return; none of that should reach a client that is willing to wait a little. What may
be asked twice (a question, or a batch with a producer's sequence) is asked again; anything else whose answer was lost
ends as unknown.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from flotilla.net import Disconnected, Pool, Response
from flotilla.records import Buffer
from flotilla.serving import request_ids
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Broker, Partition, Topic
from flotilla_manager.routing.leaders import Leaders
from flotilla_manager.routing.verdicts import Step, leader_in, next_step, refusal_in
from flotilla_manager.view import View

logger = logging.getLogger(__name__)

_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.25
_TRY_S_MAX = 3.0  # a broker that hangs is left alone after this, if the question may be asked again
_BATCH = (("content-type", "application/vnd.flotilla.batch"),)


class Appended(NamedTuple):
    """A batch is on the disks of a majority."""

    base_offset: int
    append_time_ms: int | None


class Offsets(NamedTuple):
    """Where a partition begins, and where its committed records end."""

    first: int
    next: int


@dataclass(frozen=True, kw_only=True)
class Question:
    """One request to whoever leads a partition."""

    topic: Topic
    index: int
    method: str
    target: str
    body: Buffer = b""
    wait_s: float = 0.0  # how long the leader may take on purpose
    repeatable: bool = True

    @property
    def changes(self) -> bool:
        """Whether a lost answer leaves something in doubt."""
        return self.method != "GET"


class Gateway:
    """The way to leaders."""

    def __init__(self, appends: Pool, fetches: Pool, view: View, clock: Callable[[], float]) -> None:
        self._appends = appends
        self._fetches = fetches
        self._view = view
        self._clock = clock
        self.leaders = Leaders()

    async def append(
        self, topic: Topic, index: int, batch: Buffer, *, seconds: float, repeatable: bool = True
    ) -> Appended:
        """Append a batch. Raises Refusal; the code `unknown_outcome` means that nobody knows."""
        target = f"/v1/append?topic=id:{topic.id}&partition={index}"
        question = Question(topic=topic, index=index, method="POST", target=target, body=batch, repeatable=repeatable)
        response = await self.ask(question, seconds)
        found = msgspec.json.decode(response.body)
        return Appended(found["base_offset"], found["append_time_ms"])

    async def fetch(self, topic: Topic, index: int, query: str, *, seconds: float, wait_s: float = 0.0) -> Response:
        """Fetch batches; `query` says which ones."""
        target = f"/v1/fetch?topic=id:{topic.id}&partition={index}&{query}"
        return await self.ask(
            Question(topic=topic, index=index, method="GET", target=target, wait_s=wait_s), seconds + wait_s
        )

    async def offsets(self, topic: Topic, index: int, *, seconds: float) -> Offsets:
        """Ask where a partition begins and ends."""
        response = await self.fetch(topic, index, "offset=latest&max_bytes=1", seconds=seconds)
        return offsets_in(response)

    async def describe(self, topic: Topic, partition: Partition, *, seconds: float) -> dict[str, Any]:
        """Ask a partition's leader about it; without one, any member that answers. Empty if nobody does."""
        found: dict[str, Any] = {}
        target = f"/v1/replicas/{topic.id}/{partition.index}/{partition.epoch}"
        first = self.leaders.guess(topic, partition)
        asked = [first, *(member for member in partition.members if member != first)]
        while asked:
            broker = self._view.broker(asked.pop(0))
            if broker is None:
                continue
            try:
                response = await self._fetches.request(broker.url, "GET", target, timeout_s=seconds)
            except (Disconnected, TimeoutError, OSError):
                continue
            if response.status != 200:  # noqa: PLR2004 - the replica is not open there
                continue
            found = response.json()
            if found["role"] == "leader":
                return found
            if found["leader"] in asked:
                asked = [found["leader"]]
        return {**found, "leader": None}

    async def ask(self, question: Question, seconds: float) -> Response:
        """Ask until there is an answer. Raises Refusal."""
        deadline = self._clock() + seconds
        doubtful, pause_s = False, 0.0
        last = Refusal("unavailable", "no broker that holds the partition answers")
        while True:
            topic, partition = self._find(question)
            broker = self._choose(topic, partition)
            left = deadline - self._clock()
            if left <= 0:
                raise _doubt(seconds) if doubtful else last
            try:
                response = await self._try(question, broker, left)
            except (Disconnected, TimeoutError, OSError) as error:
                doubtful = doubtful or (question.changes and was_sent(error))
                if doubtful and not question.repeatable:
                    raise _doubt(seconds) from error
                self.leaders.pass_over(topic, partition, broker.id)
                last = Refusal("unavailable", f"broker {broker.id} does not answer")
                pause_s = await self._pause(pause_s, deadline)
                continue
            step = next_step(response.status)
            if step is Step.DONE:
                self.leaders.learn(topic, partition.index, broker.id)
                return response
            if step is Step.REFUSED:
                raise _doubt(seconds) if doubtful else refusal_in(response.body)
            if step is Step.DOUBT:
                doubtful = question.changes
                if not question.repeatable:
                    raise refusal_in(response.body)
            else:
                last = refusal_in(response.body)
            self._turn_to_next(step, response, topic, partition, broker)
            if step is not Step.MOVE or pause_s:
                pause_s = await self._pause(pause_s, deadline)
            pause_s = pause_s or _PAUSE_S_MIN

    def _find(self, question: Question) -> tuple[Topic, Partition]:
        """Look the partition up anew: it may have been moved, or its topic removed."""
        topic = self._view.topic_by_id(question.topic.id)
        if topic is None or question.index >= len(topic.partitions):
            raise Refusal("unknown_partition", "the topic was removed")
        return topic, topic.partitions[question.index]

    def _choose(self, topic: Topic, partition: Partition) -> Broker:
        guess = self.leaders.guess(topic, partition)
        broker = self._view.broker(guess)
        if broker is not None:
            return broker
        for member in partition.members:
            known = self._view.broker(member)
            if known is not None:
                return known
        raise Refusal("unavailable", "no broker that holds the partition is known")

    async def _try(self, question: Question, broker: Broker, left_s: float) -> Response:
        timeout_s = min(left_s, _TRY_S_MAX + question.wait_s) if question.repeatable else left_s
        headers: tuple[tuple[str, str], ...] = _BATCH if question.body else ()
        request_id = request_ids.current()
        if request_id is not None:
            headers = (*headers, ("x-request-id", request_id))
        pool = self._appends if question.changes else self._fetches
        return await pool.request(
            broker.url, question.method, question.target, question.body, headers, timeout_s=timeout_s
        )

    def _turn_to_next(self, step: Step, response: Response, topic: Topic, partition: Partition, broker: Broker) -> None:
        leader = leader_in(response.body) if step is Step.MOVE else None
        if leader in partition.members and leader != broker.id:
            self.leaders.learn(topic, partition.index, leader)
        else:
            self.leaders.pass_over(topic, partition, broker.id)
        if response.status == 404:  # noqa: PLR2004 - not found: perhaps the metadata here is old
            self._view.refresh_soon()

    async def _pause(self, pause_s: float, deadline: float) -> float:
        """Wait a moment, longer each time; return how long."""
        pause_s = min(max(_PAUSE_S_MIN, pause_s * 2), _PAUSE_S_MAX)
        await asyncio.sleep(max(0.0, min(pause_s, deadline - self._clock())))
        return pause_s


def offsets_in(response: Response) -> Offsets:
    """Read the offsets that the answer to a fetch carries."""
    return Offsets(int(response.headers[b"flotilla-first-offset"]), int(response.headers[b"flotilla-next-offset"]))


def was_sent(error: BaseException) -> bool:
    """Tell whether a request whose answer is missing may have reached the other side."""
    return not isinstance(error, Disconnected) or error.sent


def _doubt(seconds: float) -> Refusal:
    return Refusal("unknown_outcome", f"not known to be stored after {seconds:g} s; it may be, or become so")
