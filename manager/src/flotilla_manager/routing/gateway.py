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
from flotilla.net.verdicts import Step
from flotilla.records import Buffer
from flotilla.serving import request_ids
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Broker, Partition, Topic
from flotilla_manager.routing.leaders import Leaders
from flotilla_manager.routing.verdicts import leader_in, next_step, refusal_in
from flotilla_manager.view import View

logger = logging.getLogger(__name__)

_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.25
_TRY_S_MAX = 3.0  # a broker that hangs is left alone after this, if the question may be asked again
_BATCH = (("content-type", "application/vnd.flotilla.batch"),)


class Appended(msgspec.Struct, frozen=True):
    """A batch is on the disks of a majority."""

    base_offset: int
    append_time_ms: int | None


class Begins(msgspec.Struct, frozen=True):
    """Where a partition begins and ends, after records were deleted."""

    first_offset: int
    next_offset: int


_appended = msgspec.json.Decoder(Appended)
_begins = msgspec.json.Decoder(Begins)


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
    done: str = "stored"  # what it is when it is done, for people

    @property
    def changes(self) -> bool:
        """Whether a lost answer leaves something in doubt."""
        return self.method != "GET"


class Gateway:
    """The way to leaders."""

    def __init__(
        self,
        appends: Pool,
        fetches: Pool,
        view: View,
        clock: Callable[[], float],
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Make it. `headers` show brokers that a server of their cluster asks."""
        self._headers = headers
        self._batch_headers = (*_BATCH, *headers)
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
        try:
            return _appended.decode(response.body)
        except msgspec.DecodeError as error:
            raise Refusal("unknown_outcome", f"a broker's answer cannot be read: {error}") from error

    async def fetch(self, topic: Topic, index: int, query: str, *, seconds: float, wait_s: float = 0.0) -> Response:
        """Fetch batches; `query` says which ones."""
        target = f"/v1/fetch?topic=id:{topic.id}&partition={index}" + (f"&{query}" if query else "")
        return await self.ask(
            Question(topic=topic, index=index, method="GET", target=target, wait_s=wait_s), seconds + wait_s
        )

    async def delete_records(self, topic: Topic, index: int, below: int | str, *, seconds: float) -> Offsets:
        """Delete the records below an offset, or all that are there (`latest`); tell where the partition begins now.

        To say it again changes nothing, so it is asked until there is an answer.
        """
        target = f"/v1/delete-records?topic=id:{topic.id}&partition={index}&offset={below}"
        question = Question(topic=topic, index=index, method="POST", target=target, done="deleted")
        response = await self.ask(question, seconds)
        try:
            found = _begins.decode(response.body)
        except msgspec.DecodeError as error:
            raise Refusal("unknown_outcome", f"a broker's answer cannot be read: {error}") from error
        return Offsets(found.first_offset, found.next_offset)

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
                response = await self._fetches.request(
                    broker.url, "GET", target, headers=self._headers, timeout_s=seconds
                )
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
        asked = _Asked(question, seconds, self._clock() + seconds)
        while True:
            try:
                topic, partition = self._find(question)
                broker = self._choose(topic, partition)
            except Refusal as refusal:
                raise asked.end(refusal) from refusal
            left_s = asked.deadline - self._clock()
            if left_s <= 0:
                raise asked.end()
            try:
                response = await self._try(question, broker, left_s)
            except (Disconnected, TimeoutError, OSError) as error:
                asked.lost(error, broker)
                self.leaders.pass_over(topic, partition, broker.id)
                await self._pause(asked)
                continue
            step = next_step(response.status, response.body)
            if step is Step.DONE:
                self.leaders.learn(topic, partition.index, broker.id)
                return response
            asked.answered(step, response.body)
            self._turn_to_next(step, response, topic, partition, broker)
            if step is not Step.MOVE or asked.pause_s:
                await self._pause(asked)
            asked.pause_s = asked.pause_s or _PAUSE_S_MIN

    def _find(self, question: Question) -> tuple[Topic, Partition]:
        """Look the partition up anew: it may have been moved, or its topic removed."""
        topic = self._view.topic_by_id(question.topic.id)
        if topic is None or question.index >= len(topic.partitions):
            raise Refusal("unknown_partition", "the topic was removed")
        return topic, topic.partitions[question.index]

    def _choose(self, topic: Topic, partition: Partition) -> Broker:
        for _ in partition.members:
            guess = self.leaders.guess(topic, partition)
            broker = self._view.broker(guess)
            if broker is not None:
                return broker
            self.leaders.pass_over(topic, partition, guess)
        raise Refusal("unavailable", "no broker that holds the partition is known")

    async def _try(self, question: Question, broker: Broker, left_s: float) -> Response:
        timeout_s = min(left_s, _TRY_S_MAX + question.wait_s) if question.repeatable else left_s
        headers = self._batch_headers if question.body else self._headers
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
        if step is Step.ELSEWHERE:
            self._view.refresh_soon()

    async def _pause(self, asked: "_Asked") -> None:
        """Wait a moment, longer each time."""
        asked.pause_s = min(max(_PAUSE_S_MIN, asked.pause_s * 2), _PAUSE_S_MAX)
        await asyncio.sleep(max(0.0, min(asked.pause_s, asked.deadline - self._clock())))


class _Asked:
    """How a question fares. Once it is in doubt, no refusal ends it any other way than as unknown."""

    def __init__(self, question: Question, seconds: float, deadline: float) -> None:
        self._question = question
        self._seconds = seconds
        self._is_doubtful = False
        self._last = Refusal("unavailable", "no broker that holds the partition answers")
        self.deadline = deadline
        self.pause_s = 0.0

    def lost(self, error: Exception, broker: Broker) -> None:
        """Note that there was no answer. Raises Refusal if that must be the end."""
        self._last = Refusal("unavailable", f"broker {broker.id} does not answer")
        if was_sent(error):
            self._doubt()

    def answered(self, step: Step, body: bytes) -> None:
        """Note an answer that does not help. Raises Refusal if that must be the end."""
        if step is Step.ELSEWHERE:  # as far as is known here, the partition is there
            self._last = Refusal("unavailable", "the brokers have not opened the partition yet; try again")
        elif step is not Step.DOUBT or not self._question.changes:
            self._last = refusal_in(body)
        if step is Step.REFUSED:
            raise self.end()
        if step is Step.DOUBT:
            self._doubt()

    def end(self, refusal: Refusal | None = None) -> Refusal:
        """Tell how it ended: as it was refused at last, or unknown."""
        if self._is_doubtful:
            text = f"not known to be {self._question.done} after {self._seconds:g} s; it may be, or become so"
            return Refusal("unknown_outcome", text)
        return refusal or self._last

    def _doubt(self) -> None:
        self._is_doubtful = self._question.changes
        if not self._question.repeatable:
            raise self.end()


def offsets_in(response: Response) -> Offsets:
    """Read the offsets that the answer to a fetch carries."""
    return Offsets(int(response.headers[b"flotilla-first-offset"]), int(response.headers[b"flotilla-next-offset"]))


def was_sent(error: BaseException) -> bool:
    """Tell whether a request whose answer is missing may have reached the other side."""
    return not isinstance(error, Disconnected) or error.sent
