"""What a client knows of the system: topics, partitions, leaders, where brokers are; and how managers are asked.

Everything here may be old; whoever is asked knows better and says so, and then it is looked up again.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from flotilla.client.config import ClientConfig
from flotilla.client.errors import (
    FlotillaError,
    OutcomeUnknown,
    Refused,
    ServerUnreachable,
    TopicMissing,
    refused,
)
from flotilla.net import Disconnected, Pool, Response
from flotilla.net.verdicts import Step, next_step, read

T = TypeVar("T")

_PAUSE_S_MIN = 0.02
_PAUSE_S_MAX = 1.0
_JSON = ("content-type", "application/json")
_METADATA_S = 10.0
_TRY_SHARE = 0.6  # of the time that is left: one that hangs must not use up all of it
_OK, _UNAUTHORIZED = 200, 401
_YOUNG_S = 2.0
_AWAY = "Is it running? `flotilla up` starts one here"


class PartitionInfo(msgspec.Struct, frozen=True):
    """A partition, and who probably leads it."""

    index: int
    epoch: int
    replicas: tuple[str, ...]
    leader: str | None


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic. One that is made again under the same name has another id."""

    name: str
    id: str
    partitions: tuple[PartitionInfo, ...]
    replication: int = 0
    retention_ms: int | None = None
    retention_bytes: int | None = None
    batch_bytes_max: int | None = None
    compression: str | None = None
    owner: str | None = None


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker, and where it is reached."""

    id: str
    url: str
    rack: str | None = None
    active: bool = True
    cordoned: bool = False  # it takes no new replicas, and does not lead


class Metadata(msgspec.Struct, frozen=True):
    """What a manager tells of it all."""

    version: int
    cluster_id: str
    topics: tuple[TopicInfo, ...]
    brokers: tuple[BrokerInfo, ...]
    missing: tuple[str, ...] = ()


class Managers:
    """Asks managers: whichever answers. One that does not is asked last from then on.

    While nobody can help they are asked again, until the time is over; or for `again_s`, for those who do not wait.
    """

    def __init__(
        self, config: ClientConfig, pool: Pool, clock: Callable[[], float], again_s: float | None = None
    ) -> None:
        self._config = config
        self._pool = pool
        self._clock = clock
        self._again_s = again_s
        self._urls = list(config.urls)

    @property
    def url(self) -> str:
        """The one to ask next."""
        return self._urls[0]

    def pass_over(self, url: str) -> None:
        """Ask another one next."""
        if self._urls[0] == url:
            self._urls.append(self._urls.pop(0))

    async def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        seconds: float | None = None,
        repeatable: bool = True,
    ) -> Any:  # noqa: ANN401 - any JSON
        """Ask for JSON until there is an answer. Raises Refused, ServerUnreachable.

        What may not be asked twice is asked again only if surely nothing of it has reached anybody.
        """
        response = await self.request(
            method,
            target,
            b"" if body is None else msgspec.json.encode(body),
            () if body is None else (_JSON,),
            deadline=self._clock() + (seconds or self._config.request_s),
            repeatable=repeatable,
        )
        try:
            return msgspec.json.decode(response.body)
        except msgspec.DecodeError as error:
            text = f"what answers at {self.url} is no manager: status {response.status}, and {error}"
            raise ServerUnreachable(text) from error

    async def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
        *,
        deadline: float,
        repeatable: bool = True,
    ) -> Response:
        """Ask until there is an answer that is a success. Raises Refused, ServerUnreachable."""
        again_until = deadline if self._again_s is None else min(deadline, self._clock() + self._again_s)
        began, tries, pause_s = self._clock(), 0, _PAUSE_S_MIN
        while True:
            tries += 1
            url, left_s = self.url, deadline - self._clock()
            try_s = left_s * _TRY_SHARE if repeatable and self._again_s is None else left_s
            try:
                response = await self._pool.request(
                    url, method, target, body, (*headers, *self._config.headers), timeout_s=try_s
                )
            except Disconnected as error:
                trouble: FlotillaError = self._lost(url, error, repeatable)
                if tries < len(self._urls) and self._clock() < deadline:
                    continue  # another one may answer
            else:
                if response.status == _OK:
                    return response
                trouble = self._young(response, began) or _judge(url, response, repeatable)
            if self._clock() + pause_s >= again_until:
                raise trouble
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _young(self, response: Response, began: float) -> Refused | None:
        """Say that a token is not valid, if it may be so in a moment: managers hear of a new one within a second."""
        may_pass = response.status == _UNAUTHORIZED and self._config.token is not None and self._again_s is None
        return refused(read(response.body), response.status) if may_pass and self._clock() < began + _YOUNG_S else None

    def _lost(self, url: str, error: Disconnected, repeatable: bool) -> ServerUnreachable:
        """Say what it means that there is no answer. Raises OutcomeUnknown if it must not be asked again."""
        self.pass_over(url)
        if error.sent and not repeatable:
            text = f"{url} did not answer: {error}. What was asked for may have been done or not"
            raise OutcomeUnknown(text) from error
        others = f" (asked: {', '.join(self._config.urls)})" if len(self._config.urls) > 1 else ""
        is_stranger = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        hint = "`ca` or FLOTILLA_TLS_CA says whom to trust" if is_stranger else _AWAY
        trouble = ServerUnreachable(f"no manager answers: {error}{others}. {hint}")
        trouble.__cause__ = error
        return trouble


def _judge(url: str, response: Response, repeatable: bool) -> ServerUnreachable:
    """Say what an answer means that is no success, if to ask again may help. Raises Refused, ServerUnreachable."""
    said = read(response.body)
    step = next_step(response.status, said)
    if step is Step.LATER:
        return ServerUnreachable(f"{url} cannot help for now: {said.message or said.code}")
    if step is Step.DOUBT:
        text = f"{url} answers with status {response.status}" + (f": {said.message}" if said.message else "")
        if not repeatable:
            raise OutcomeUnknown(f"{text}. What was asked for may have been done or not")
        return ServerUnreachable(text)
    if said.code is None and not said.message:
        raise ServerUnreachable(f"what answers at {url} is no manager: status {response.status}")
    raise refused(said, response.status)


def read_as(kind: type[T], answer: object) -> T:
    """Read an answer as what it should be; raises ServerUnreachable."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ServerUnreachable(f"a manager's answer is not as expected: {error}") from error


class Cluster:
    """The topics and brokers that are known, and how to get to know more."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers
        self._topics: dict[str, TopicInfo] = {}
        self._brokers: dict[str, BrokerInfo] = {}
        self._asking: dict[str, asyncio.Task[TopicInfo]] = {}

    def topic(self, name: str) -> TopicInfo | None:
        """Find a topic that is known."""
        return self._topics.get(name)

    def broker(self, id_: str) -> BrokerInfo | None:
        """Find a broker that is known."""
        return self._brokers.get(id_)

    @property
    def brokers(self) -> list[BrokerInfo]:
        """All brokers that are known."""
        return list(self._brokers.values())

    async def find(self, name: str) -> TopicInfo:
        """Find a topic; ask if it is not known. Raises TopicMissing, Refused, ServerUnreachable."""
        return self._topics.get(name) or await self.refresh(name)

    async def refresh(self, name: str, seconds: float = _METADATA_S) -> TopicInfo:
        """Look a topic up anew; those who ask at the same time share an answer."""
        return await asyncio.shield(self._start_refresh(name, seconds))

    async def refresh_anew(self, name: str) -> TopicInfo:
        """Look a topic up; an answer that was asked for before this call does not count."""
        under_way = self._asking.get(name)
        if under_way is not None:
            await asyncio.wait((under_way,))
        return await self.refresh(name)

    def _start_refresh(self, name: str, seconds: float) -> asyncio.Task[TopicInfo]:
        task = self._asking.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._refresh(name, seconds))
            self._asking[name] = task
            task.add_done_callback(lambda done: (self._asking.pop(name, None), done.cancelled() or done.exception()))
        return task

    def refresh_soon(self, name: str) -> None:
        """Have a topic looked up in the background; whether that works is for whoever needs it to see."""
        self._start_refresh(name, _METADATA_S)

    async def _refresh(self, name: str, seconds: float) -> TopicInfo:
        answer = await self._managers.ask("GET", f"/v1/metadata?topic={quote(name, safe='')}", seconds=seconds)
        metadata = read_as(Metadata, answer)
        self.learn(metadata)
        for topic in metadata.topics:
            return topic
        self._topics.pop(name, None)
        raise TopicMissing(f"there is no topic '{name}'", "not_found", {})

    def learn(self, metadata: Metadata) -> None:
        """Take note of what a manager told."""
        self._brokers = {broker.id: broker for broker in metadata.brokers}
        for topic in metadata.topics:
            self.learn_topic(topic)

    def learn_topic(self, topic: TopicInfo) -> None:
        """Take note of how a topic is now."""
        self._topics[topic.name] = topic

    def forget_topic(self, name: str) -> None:
        """Look a topic up anew when it is asked for next."""
        self._topics.pop(name, None)
