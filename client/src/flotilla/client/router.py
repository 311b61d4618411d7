"""The router: sends requests to partition leaders, directly or through a manager, with retries until a deadline.

Leader changes, and servers that stop and return, are handled here, up to the deadline. All requests here are safe to
repeat (fetches, and batches with a producer sequence), and are repeated. An append whose response was lost is in doubt:
from then on its outcome is success or unknown, whatever later responses say.

With route `auto`, requests go to brokers as long as these are reachable, and otherwise through managers. Brokers are
probed periodically in the background.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from flotilla.client.cluster import BrokerInfo, Cluster, ManagerClient, TopicInfo
from flotilla.client.config import ClientConfig, Route
from flotilla.client.errors import (
    DeliveryFailed,
    DeliveryUnknown,
    FlotillaError,
    Refused,
    ServerUnreachable,
    TopicMissing,
    refused,
)
from flotilla.net import Disconnected, Pool, Response
from flotilla.net.verdicts import ErrorResponse, Step, next_step, read
from flotilla.protocol.appends import AppendResult
from flotilla.records import Buffer

_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.5
_TRY_S_MAX = 5.0  # timeout of a request to one broker
_REFRESH_S = 2.0
_PROBE_INTERVAL_S = 30.0  # of unreachable brokers
_MANAGER_S_MAX = 20.0  # timeout of a request to one manager, which retries on its own
_PROBE_TIMEOUT_S = 2.0
_NEW_TOKEN_S = 3.0  # a token that was created within this time may be unknown to some brokers
_RETRY_AFTER_S_MAX = 10.0
_OK = 200
_UNAUTHORIZED = 401
_TOO_MANY_REQUESTS = 429
_BATCH = ("content-type", "application/vnd.flotilla.batch")


@dataclass(frozen=True)
class FetchResult:
    """Consecutive stored batches; the first one may start before `offset`."""

    body: bytes
    offset: int  # the requested offset, resolved
    first_offset: int
    next_offset: int


class Router:
    """Sends requests to partition leaders."""

    def __init__(
        self,
        config: ClientConfig,
        cluster: Cluster,
        managers: ManagerClient,
        appends: Pool,
        fetches: Pool,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._managers = managers
        self._appends = appends
        self._fetches = fetches
        self._clock = clock
        self._leaders: dict[tuple[str, int], str] = {}
        self._unreachable: set[str] = set()  # brokers that failed since one was last reachable
        self._is_direct_blocked = False  # no broker is reachable: use managers
        self._probe_at = 0.0
        self._probing: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Cancel the background probe."""
        if self._probing is not None:
            self._probing.cancel()

    async def append(self, topic: TopicInfo, index: int, batch: Buffer, *, deadline: float) -> AppendResult:
        """Append a batch. Raises DeliveryFailed, DeliveryUnknown."""
        target = f"/v1/append?topic=id:{topic.id}&partition={index}"
        request = _RoutedRequest(topic, index, deadline)
        try:
            response = await self._send(request, self._appends, "POST", target, batch)
            return msgspec.json.decode(response.body, type=AppendResult)
        except (Refused, ServerUnreachable) as error:
            raise request.to_delivery_error(error) from error
        except msgspec.DecodeError as error:
            raise DeliveryUnknown(f"invalid response of a server: {error}") from error

    async def fetch(
        self, topic: TopicInfo, index: int, query: str, *, max_bytes: int, wait_s: float, deadline: float
    ) -> FetchResult:
        """Fetch batches; `query` is `offset=…` or `timestamp_ms=…`. Raises Refused, ServerUnreachable."""
        wait_ms = int(wait_s * 1000)
        target = f"/v1/fetch?topic=id:{topic.id}&partition={index}&{query}&max_bytes={max_bytes}&wait_ms={wait_ms}"
        response = await self._send(_RoutedRequest(topic, index, deadline, wait_s), self._fetches, "GET", target)
        try:
            offset, first, end = (int(response.headers[b"flotilla-" + name]) for name in (_AT, _FIRST, _NEXT))
        except (KeyError, ValueError) as error:
            raise ServerUnreachable(f"invalid response of a server: {error}") from error
        return FetchResult(response.body, offset, first, end)

    async def _send(
        self, request: "_RoutedRequest", pool: Pool, method: str, target: str, body: Buffer = b""
    ) -> Response:
        headers = (*((_BATCH,) if body else ()), *self._config.headers)
        if not self._cluster.brokers and self._config.route is not Route.GATEWAY:
            await self._refresh_metadata(request)  # after a create, the topic is cached without brokers
        while True:
            request.update(self._cluster.topic(request.topic.name))
            broker = self._choose(request)
            left_s = request.deadline - self._clock()
            if left_s <= 0:
                raise request.last_error
            if broker is None and self._config.route is Route.DIRECT:
                request.note_no_replica()
            else:
                url, try_s = (self._managers.url, _MANAGER_S_MAX) if broker is None else (broker.url, _TRY_S_MAX)
                try:
                    timeout_s = min(left_s, try_s + request.wait_s)
                    response = await _send_once(pool, url, method, target, body, headers, timeout_s=timeout_s)
                except Disconnected as error:
                    self._handle_disconnect(request, broker, url, error)
                else:
                    if response.status == _OK:
                        self._note_success(request, broker)
                        return response
                    self._handle_error(request, broker, response)
            if request.is_stale:
                await self._refresh_metadata(request)
            await self._back_off(request)

    def _choose(self, request: "_RoutedRequest") -> BrokerInfo | None:
        """Return the broker that probably leads the partition, or None for a manager."""
        if self._config.route is Route.GATEWAY or self._should_use_managers():
            return None
        replicas = request.replicas
        leader_hint = self._leaders.get(request.key) or request.topic.partitions[request.index].leader
        if leader_hint not in replicas:
            leader_hint = replicas[request.tries % len(replicas)] if replicas else None
        broker = None if leader_hint is None else self._cluster.broker(leader_hint)
        if broker is None:
            self._cluster.refresh_in_background(request.topic.name)  # a new broker; this request goes through a manager
        return broker

    def _should_use_managers(self) -> bool:
        """Return whether brokers are unreachable; start a probe in the background if it is due."""
        if self._is_direct_blocked and self._probing is None and self._clock() >= self._probe_at:
            self._probing = asyncio.get_running_loop().create_task(self._probe())
        return self._is_direct_blocked

    async def _probe(self) -> None:
        """Check whether any broker is reachable. Runs in the background: dropped packets take until a timeout."""
        try:
            self._is_direct_blocked = not await self._reach_any()
            self._unreachable.clear()
            self._probe_at = self._clock() + _PROBE_INTERVAL_S
        finally:
            self._probing = None

    async def _reach_any(self) -> bool:
        for broker in self._cluster.brokers:
            try:
                await _send_once(self._fetches, broker.url, "GET", "/healthz", timeout_s=_PROBE_TIMEOUT_S)
            except Disconnected:
                continue
            return True
        return False

    def _note_success(self, request: "_RoutedRequest", broker: BrokerInfo | None) -> None:
        if broker is not None:
            self._unreachable.clear()
            self._leaders[request.key] = broker.id

    def _handle_disconnect(
        self, request: "_RoutedRequest", broker: BrokerInfo | None, url: str, error: Disconnected
    ) -> None:
        request.last_error = ServerUnreachable(f"{url} does not answer: {error}")
        request.is_in_doubt = request.is_in_doubt or error.sent
        if broker is None:
            self._managers.demote(url)
            return
        self._try_next_replica(request, broker.id)
        self._cluster.refresh_in_background(
            request.topic.name
        )  # in the background: other replicas may respond while managers are unavailable
        if error.sent:
            self._unreachable.clear()
            return
        self._unreachable.add(broker.id)
        if self._config.route is Route.AUTO and self._unreachable.issuperset(request.replicas):
            self._is_direct_blocked = True
            self._probe_at = self._clock() + _PROBE_INTERVAL_S

    def _handle_error(self, request: "_RoutedRequest", broker: BrokerInfo | None, response: Response) -> None:
        """Decide how to retry after an error response. Raises Refused if a retry cannot help."""
        error_body = read(response.body)
        step = next_step(response.status, error_body)
        request.last_error = refused(error_body, response.status)
        is_transient = self._config.token is not None and request.may_be_new_token(response.status, self._clock())
        if step is Step.REFUSED and not is_transient:
            raise request.last_error
        request.is_in_doubt = request.is_in_doubt or step is Step.DOUBT
        request.is_stale = request.is_stale or step is Step.ELSEWHERE
        request.pause_s = request.pause_s or (0.0 if step is Step.MOVE else _PAUSE_S_MIN)
        if response.status == _TOO_MANY_REQUESTS:
            request.pause_s = max(request.pause_s, _retry_after_s(response))
        if broker is not None:
            self._unreachable.clear()
            if step is not Step.REFUSED and response.status != _TOO_MANY_REQUESTS:
                self._update_leader(request, broker, error_body)

    def _update_leader(self, request: "_RoutedRequest", broker: BrokerInfo, error_body: ErrorResponse) -> None:
        leader = error_body.leader.get("id")
        if isinstance(leader, str) and leader != broker.id and self._cluster.broker(leader) is not None:
            self._leaders[request.key] = leader
        else:
            self._try_next_replica(request, broker.id)

    def _try_next_replica(self, request: "_RoutedRequest", broker: str) -> None:
        """Send the next requests to the next replica."""
        replicas = request.replicas
        if replicas and self._leaders.get(request.key, broker) == broker:
            at = replicas.index(broker) if broker in replicas else -1
            self._leaders[request.key] = replicas[(at + 1) % len(replicas)]

    async def _refresh_metadata(self, request: "_RoutedRequest") -> None:
        """Refresh the metadata of the topic. Raises TopicMissing if it was deleted or recreated."""
        request.is_stale = False
        try:
            found = await self._cluster.refresh(request.topic.name, _REFRESH_S)
        except TopicMissing:
            raise
        except FlotillaError as error:
            request.last_error = error if isinstance(error, Refused | ServerUnreachable) else request.last_error
            return
        if found.id != request.topic.id:
            raise TopicMissing(f"topic '{request.topic.name}' was deleted and created again", "unknown_partition", {})
        request.update(found)

    async def _back_off(self, request: "_RoutedRequest") -> None:
        """Wait with exponential backoff; not at all before the first move to another leader."""
        request.tries += 1
        if request.pause_s:
            await asyncio.sleep(max(0.0, min(request.pause_s, request.deadline - self._clock())))
        request.pause_s = min(max(_PAUSE_S_MIN, request.pause_s * 2), _PAUSE_S_MAX)


_AT, _FIRST, _NEXT = b"offset", b"first-offset", b"next-offset"


async def _send_once(
    pool: Pool,
    url: str,
    method: str,
    target: str,
    body: Buffer = b"",
    headers: tuple[tuple[str, str], ...] = (),
    *,
    timeout_s: float,
) -> Response:
    """Send a request. Raises Disconnected, also for the invalid URL of a broker: it comes from a server."""
    try:
        return await pool.request(url, method, target, body, headers, timeout_s=timeout_s)
    except ValueError as error:  # raised before anything is sent
        raise Disconnected(str(error), sent=False) from error


def _retry_after_s(response: Response) -> float:
    text = response.headers.get(b"retry-after", b"")
    return min(float(text), _RETRY_AFTER_S_MAX) if text.isdigit() else 0.0


class _RoutedRequest:
    """A request with its retry state."""

    def __init__(self, topic: TopicInfo, index: int, deadline: float, wait_s: float = 0.0) -> None:
        self.topic = topic
        self.index = index
        self.key = (topic.id, index)
        self.deadline = deadline
        self.wait_s = wait_s  # how long the server may wait for records
        self.tries = 0
        self.pause_s = 0.0
        self.is_stale = False  # the metadata must be refreshed before the next try
        self.is_in_doubt = False  # it may have taken effect
        self.unauthorized_at: float | None = None  # time of the first such response
        self.last_error: Refused | ServerUnreachable = ServerUnreachable("no server was reachable in time")

    @property
    def replicas(self) -> tuple[str, ...]:
        """The brokers that hold the partition."""
        return self.topic.partitions[self.index].replicas

    def update(self, topic: TopicInfo | None) -> None:
        """Use newer metadata, if it is of the same topic. Metadata without the partition is stale."""
        if topic is not None and topic.id == self.topic.id and self.index < len(topic.partitions):
            self.topic = topic

    def note_no_replica(self) -> None:
        """Note that no replica is known."""
        self.last_error = ServerUnreachable("no broker that holds the partition is known")
        self.is_stale = True
        self.pause_s = self.pause_s or _PAUSE_S_MIN

    def may_be_new_token(self, status: int, now: float) -> bool:
        """Return whether a rejected token may be so new that the server does not know it yet."""
        if status != _UNAUTHORIZED:
            return False
        self.unauthorized_at = now if self.unauthorized_at is None else self.unauthorized_at
        return now < self.unauthorized_at + _NEW_TOKEN_S

    def to_delivery_error(self, error: Refused | ServerUnreachable) -> DeliveryFailed | DeliveryUnknown:
        """Return the delivery error of an append without success: failed, or unknown if it is in doubt."""
        if self.is_in_doubt:
            return DeliveryUnknown(f"the records may have been stored: {error}")
        return DeliveryFailed(f"the records were not stored: {error}")
