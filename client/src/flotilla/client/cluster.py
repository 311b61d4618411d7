"""Cluster metadata of a client (topics, partitions, leaders, brokers), and requests to managers.

Cached metadata may be stale. Servers detect that and respond with an error, after which it is refreshed.
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
from flotilla.net.verdicts import Step, add_code, next_step, read

T = TypeVar("T")

_PAUSE_S_MIN = 0.02
_PAUSE_S_MAX = 1.0
_JSON = ("content-type", "application/json")
_METADATA_S = 10.0
_TRY_SHARE = 0.6  # share of the remaining time per try: a manager that hangs must not use up all of it
_OK, _UNAUTHORIZED = 200, 401
_NEW_TOKEN_S = 2.0
_UNAVAILABLE_HINT = "Is it running? `flotilla up` starts one here"


class PartitionInfo(msgspec.Struct, frozen=True):
    """A partition with its replicas and its probable leader."""

    index: int
    epoch: int
    replicas: tuple[str, ...]
    leader: str | None


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic with its settings and partitions. A topic that is created again under the same name has another id."""

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
    """A broker and its URL."""

    id: str
    url: str
    rack: str | None = None
    active: bool = True
    cordoned: bool = False  # gets no new replicas, and leads no partition
    name: str | None = None  # for users; servers before 0.3 send none


class Metadata(msgspec.Struct, frozen=True):
    """The cluster metadata of a manager."""

    version: int
    cluster_id: str
    topics: tuple[TopicInfo, ...]
    brokers: tuple[BrokerInfo, ...]
    missing: tuple[str, ...] = ()


class ManagerClient:
    """Sends requests to the managers. A manager that does not respond is tried last from then on.

    While all of them are unavailable, requests are retried until their deadline, or for `retry_s` if that is given.
    """

    def __init__(
        self, config: ClientConfig, pool: Pool, clock: Callable[[], float], retry_s: float | None = None
    ) -> None:
        self._config = config
        self._pool = pool
        self._clock = clock
        self._retry_s = retry_s
        self._urls = list(config.urls)

    @property
    def url(self) -> str:
        """The manager for the next request."""
        return self._urls[0]

    def demote(self, url: str) -> None:
        """Use another manager for the next request."""
        if self._urls[0] == url:
            self._urls.append(self._urls.pop(0))

    async def call(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        timeout_s: float | None = None,
        repeatable: bool = True,
    ) -> Any:  # noqa: ANN401 - any JSON
        """Send a request and return the JSON of the response. Raises Refused, ServerUnreachable.

        A request that is not `repeatable` is sent again only if it has certainly not reached a server.
        """
        response = await self.request(
            method,
            target,
            b"" if body is None else msgspec.json.encode(body),
            () if body is None else (_JSON,),
            deadline=self._clock() + (timeout_s or self._config.request_s),
            repeatable=repeatable,
        )
        try:
            return msgspec.json.decode(response.body)
        except msgspec.DecodeError as error:
            text = f"{self.url} is not a manager: status {response.status}, {error}"
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
        """Send a request until it succeeds. Raises Refused, ServerUnreachable."""
        retry_until = deadline if self._retry_s is None else min(deadline, self._clock() + self._retry_s)
        began, tries, pause_s = self._clock(), 0, _PAUSE_S_MIN
        while True:
            tries += 1
            url, left_s = self.url, deadline - self._clock()
            try_s = left_s * _TRY_SHARE if repeatable and self._retry_s is None else left_s
            try:
                response = await self._pool.request(
                    url, method, target, body, (*headers, *self._config.headers), timeout_s=try_s
                )
            except Disconnected as error:
                failure: FlotillaError = self._lost(url, error, repeatable)
                if tries < len(self._urls) and self._clock() < deadline:
                    continue  # try another manager at once
            else:
                if response.status == _OK:
                    return response
                failure = self._new_token_error(response, began) or _to_error(url, response, repeatable)
            if self._clock() + pause_s >= retry_until:
                raise failure
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _new_token_error(self, response: Response, began: float) -> Refused | None:
        """Return the error of a rejected token that may be new: managers learn of a new one within a second."""
        is_transient = response.status == _UNAUTHORIZED and self._config.token is not None and self._retry_s is None
        return (
            refused(read(response.body), response.status)
            if is_transient and self._clock() < began + _NEW_TOKEN_S
            else None
        )

    def _lost(self, url: str, error: Disconnected, repeatable: bool) -> ServerUnreachable:
        """Return the error for a lost connection. Raises OutcomeUnknown if the request must not be repeated."""
        self.demote(url)
        if error.sent and not repeatable:
            text = f"{url} did not respond: {error}. The request may have taken effect"
            raise OutcomeUnknown(text) from error
        others = f" (asked: {', '.join(self._config.urls)})" if len(self._config.urls) > 1 else ""
        is_untrusted = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        hint = "Set `ca` or FLOTILLA_TLS_CA to the CA bundle of the server" if is_untrusted else _UNAVAILABLE_HINT
        failure = ServerUnreachable(f"no manager responded: {error}{others}. {hint}")
        failure.__cause__ = error
        return failure


def _to_error(url: str, response: Response, repeatable: bool) -> ServerUnreachable:
    """Return the error of a response if a retry may help. Raises Refused, ServerUnreachable."""
    error_body = read(response.body)
    step = next_step(response.status, error_body)
    if step is Step.LATER:
        return ServerUnreachable(f"{url} is unavailable: {error_body.message or error_body.code}")
    if step is Step.DOUBT:
        text = f"{url} responded with status {response.status}" + (
            f": {error_body.message}" if error_body.message else ""
        )
        if not repeatable:
            raise OutcomeUnknown(f"{text}. The request may have taken effect")
        return ServerUnreachable(text)
    if error_body.code is None and not error_body.message:
        raise ServerUnreachable(f"{url} is not a manager: status {response.status}")
    raise refused(add_code(error_body, response.headers), response.status)


def read_as(kind: type[T], response: object) -> T:
    """Convert a JSON response to its type. Raises ServerUnreachable."""
    try:
        return msgspec.convert(response, kind)
    except msgspec.ValidationError as error:
        raise ServerUnreachable(f"unexpected response of a manager: {error}") from error


class Cluster:
    """Cached metadata of topics and brokers."""

    def __init__(self, managers: ManagerClient) -> None:
        self._managers = managers
        self._topics: dict[str, TopicInfo] = {}
        self._brokers: dict[str, BrokerInfo] = {}
        self._refreshing: dict[str, asyncio.Task[TopicInfo]] = {}

    def topic(self, name: str) -> TopicInfo | None:
        """Return a cached topic."""
        return self._topics.get(name)

    def broker(self, id_: str) -> BrokerInfo | None:
        """Return a cached broker."""
        return self._brokers.get(id_)

    @property
    def brokers(self) -> list[BrokerInfo]:
        """All cached brokers."""
        return list(self._brokers.values())

    async def find(self, name: str) -> TopicInfo:
        """Return a topic; fetch it if it is not cached. Raises TopicMissing, Refused, ServerUnreachable."""
        return self._topics.get(name) or await self.refresh(name)

    async def refresh(self, name: str, timeout_s: float = _METADATA_S) -> TopicInfo:
        """Fetch the metadata of a topic; concurrent calls share one request."""
        return await asyncio.shield(self._start_refresh(name, timeout_s))

    async def force_refresh(self, name: str) -> TopicInfo:
        """Fetch the metadata of a topic with a request that starts after this call."""
        in_flight = self._refreshing.get(name)
        if in_flight is not None:
            await asyncio.wait((in_flight,))
        return await self.refresh(name)

    def _start_refresh(self, name: str, timeout_s: float) -> asyncio.Task[TopicInfo]:
        task = self._refreshing.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._refresh(name, timeout_s))
            self._refreshing[name] = task
            task.add_done_callback(
                lambda done: (self._refreshing.pop(name, None), done.cancelled() or done.exception())
            )
        return task

    def refresh_in_background(self, name: str) -> None:
        """Fetch the metadata of a topic in the background; errors are ignored."""
        self._start_refresh(name, _METADATA_S)

    async def _refresh(self, name: str, timeout_s: float) -> TopicInfo:
        response = await self._managers.call("GET", f"/v1/metadata?topic={quote(name, safe='')}", timeout_s=timeout_s)
        metadata = read_as(Metadata, response)
        self.update(metadata)
        for topic in metadata.topics:
            return topic
        self._topics.pop(name, None)
        raise TopicMissing(f"topic '{name}' does not exist", "not_found", {})

    def update(self, metadata: Metadata) -> None:
        """Update the cache from the metadata of a manager."""
        self._brokers = {broker.id: broker for broker in metadata.brokers}
        for topic in metadata.topics:
            self.update_topic(topic)

    def update_topic(self, topic: TopicInfo) -> None:
        """Update a topic in the cache."""
        self._topics[topic.name] = topic

    def forget_topic(self, name: str) -> None:
        """Remove a topic from the cache."""
        self._topics.pop(name, None)
