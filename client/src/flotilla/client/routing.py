"""Asks the leader of a partition, straight or through a manager, until there is an answer or time is over.

Leaders change, servers stop and return; none of that reaches whoever is willing to wait. Everything here may be asked
twice (a question, or a batch with its producer's sequence), and is asked again. An append whose answer was lost is in
doubt: from then on it ends well, or as unknown, whatever anybody says.

By default the way is found out: as long as brokers can be reached they are asked straight, and otherwise managers pass
requests on. Every now and then brokers are tried again, and nobody waits for that.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from flotilla.client.cluster import BrokerInfo, Cluster, Managers, TopicInfo
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
from flotilla.net.verdicts import Said, Step, next_step, read
from flotilla.records import Buffer

_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 0.5
_TRY_S_MAX = 5.0  # a server that hangs is left alone after this
_REFRESH_S = 2.0
_STRAIGHT_AGAIN_S = 30.0  # after brokers could not be reached, they are tried again
_MANAGER_S_MAX = 20.0  # managers try for a while on their own
_PROBE_S = 2.0
_YOUNG_S = 3.0  # a token that was made just now is not known to all brokers yet
_RETRY_AFTER_S_MAX = 10.0
_OK = 200
_UNAUTHORIZED = 401
_TOO_MUCH = 429
_BATCH = ("content-type", "application/vnd.flotilla.batch")


class Appended(msgspec.Struct, frozen=True):
    """A batch is on the disks of a majority. A retry of what was there already does not know the time."""

    base_offset: int
    append_time_ms: int | None = None


@dataclass(frozen=True)
class Fetched:
    """Batches as they are stored, back to back; the first one may begin before `offset`."""

    body: bytes
    offset: int  # what was asked for, as a number
    first_offset: int
    next_offset: int


class Router:
    """The way to leaders."""

    def __init__(
        self,
        config: ClientConfig,
        cluster: Cluster,
        managers: Managers,
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
        self._unreached: set[str] = set()  # brokers that could not be reached since one was
        self._is_closed = False  # the way straight to brokers
        self._probe_at = 0.0
        self._probing: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop what is done in the background."""
        if self._probing is not None:
            self._probing.cancel()

    async def append(self, topic: TopicInfo, index: int, batch: Buffer, *, deadline: float) -> Appended:
        """Append a batch. Raises DeliveryFailed or DeliveryUnknown, and nothing else."""
        target = f"/v1/append?topic=id:{topic.id}&partition={index}"
        asked = _Asked(topic, index, deadline)
        try:
            response = await self._ask(asked, self._appends, "POST", target, batch)
            return msgspec.json.decode(response.body, type=Appended)
        except (Refused, ServerUnreachable) as error:
            raise asked.end(error) from error
        except msgspec.DecodeError as error:
            raise DeliveryUnknown(f"a server's answer cannot be read: {error}") from error

    async def fetch(
        self, topic: TopicInfo, index: int, query: str, *, max_bytes: int, wait_s: float, deadline: float
    ) -> Fetched:
        """Fetch batches; `query` is `offset=…` or `timestamp_ms=…`. Raises Refused, ServerUnreachable."""
        wait_ms = int(wait_s * 1000)
        target = f"/v1/fetch?topic=id:{topic.id}&partition={index}&{query}&max_bytes={max_bytes}&wait_ms={wait_ms}"
        response = await self._ask(_Asked(topic, index, deadline, wait_s), self._fetches, "GET", target)
        try:
            offset, first, end = (int(response.headers[b"flotilla-" + name]) for name in (_AT, _FIRST, _NEXT))
        except (KeyError, ValueError) as error:
            raise ServerUnreachable(f"a server's answer cannot be read: {error}") from error
        return Fetched(response.body, offset, first, end)

    async def _ask(self, asked: "_Asked", pool: Pool, method: str, target: str, body: Buffer = b"") -> Response:
        headers = (*((_BATCH,) if body else ()), *self._config.headers)
        if not self._cluster.brokers and self._config.route is not Route.GATEWAY:
            await self._look_up(asked)  # who made the topic knows it from the answer, which does not tell of brokers
        while True:
            asked.update(self._cluster.topic(asked.topic.name))
            broker = self._choose(asked)
            left_s = asked.deadline - self._clock()
            if left_s <= 0:
                raise asked.last
            if broker is None and self._config.route is Route.DIRECT:
                asked.note_unknown()
            else:
                url, try_s = (self._managers.url, _MANAGER_S_MAX) if broker is None else (broker.url, _TRY_S_MAX)
                try:
                    timeout_s = min(left_s, try_s + asked.wait_s)
                    response = await pool.request(url, method, target, body, headers, timeout_s=timeout_s)
                except Disconnected as error:
                    self._lost(asked, broker, url, error)
                else:
                    if response.status == _OK:
                        self._learn(asked, broker)
                        return response
                    self._judge(asked, broker, response)
            if asked.is_old:
                await self._look_up(asked)
            await self._pause(asked)

    def _choose(self, asked: "_Asked") -> BrokerInfo | None:
        """Choose whom to ask: the broker that probably leads, or None for a manager."""
        if self._config.route is Route.GATEWAY or self._is_way_closed():
            return None
        members = asked.members
        guess = self._leaders.get(asked.key) or asked.topic.partitions[asked.index].leader
        if guess not in members:
            guess = members[asked.tries % len(members)] if members else None
        broker = None if guess is None else self._cluster.broker(guess)
        if broker is None:
            self._cluster.refresh_soon(asked.topic.name)  # a broker that came later; this once, a manager knows it
        return broker

    def _is_way_closed(self) -> bool:
        """Tell whether brokers cannot be reached; every now and then, have somebody see whether that is still so."""
        if self._is_closed and self._probing is None and self._clock() >= self._probe_at:
            self._probing = asyncio.get_running_loop().create_task(self._probe())
        return self._is_closed

    async def _probe(self) -> None:
        """Try to reach any broker. Nobody waits for this: where packets vanish, it takes a while."""
        try:
            self._is_closed = not await self._reach_any()
            self._unreached.clear()
            self._probe_at = self._clock() + _STRAIGHT_AGAIN_S
        finally:
            self._probing = None

    async def _reach_any(self) -> bool:
        for broker in self._cluster.brokers:
            try:
                await self._fetches.request(broker.url, "GET", "/healthz", timeout_s=_PROBE_S)
            except Disconnected:
                continue
            return True
        return False

    def _learn(self, asked: "_Asked", broker: BrokerInfo | None) -> None:
        if broker is not None:
            self._unreached.clear()
            self._leaders[asked.key] = broker.id

    def _lost(self, asked: "_Asked", broker: BrokerInfo | None, url: str, error: Disconnected) -> None:
        asked.last = ServerUnreachable(f"{url} does not answer: {error}")
        asked.is_doubtful = asked.is_doubtful or error.sent
        if broker is None:
            self._managers.pass_over(url)
            return
        self._turn(asked, broker.id)
        self._cluster.refresh_soon(asked.topic.name)  # nobody waits: managers may be away, and other members not
        if error.sent:
            self._unreached.clear()
            return
        self._unreached.add(broker.id)
        if self._config.route is Route.AUTO and self._unreached.issuperset(asked.members):
            self._is_closed = True
            self._probe_at = self._clock() + _STRAIGHT_AGAIN_S

    def _judge(self, asked: "_Asked", broker: BrokerInfo | None, response: Response) -> None:
        """Draw the conclusions from an answer that is no success. Raises Refused if that is the end."""
        said = read(response.body)
        step = next_step(response.status, said)
        asked.last = refused(said, response.status)
        may_pass = self._config.token is not None and asked.is_young(response.status, self._clock())
        if step is Step.REFUSED and not may_pass:
            raise asked.last
        asked.is_doubtful = asked.is_doubtful or step is Step.DOUBT
        asked.is_old = asked.is_old or step is Step.ELSEWHERE
        asked.pause_s = asked.pause_s or (0.0 if step is Step.MOVE else _PAUSE_S_MIN)
        if response.status == _TOO_MUCH:
            asked.pause_s = max(asked.pause_s, _retry_after_s(response))
        if broker is not None:
            self._unreached.clear()
            if step is not Step.REFUSED and response.status != _TOO_MUCH:
                self._follow(asked, broker, said)

    def _follow(self, asked: "_Asked", broker: BrokerInfo, said: Said) -> None:
        leader = said.leader.get("id")
        if isinstance(leader, str) and leader != broker.id and self._cluster.broker(leader) is not None:
            self._leaders[asked.key] = leader
        else:
            self._turn(asked, broker.id)

    def _turn(self, asked: "_Asked", broker: str) -> None:
        """Ask the next member from now on."""
        members = asked.members
        if members and self._leaders.get(asked.key, broker) == broker:
            at = members.index(broker) if broker in members else -1
            self._leaders[asked.key] = members[(at + 1) % len(members)]

    async def _look_up(self, asked: "_Asked") -> None:
        """Learn where the partition is by now. A topic that is gone, also if another one has its name, is the end."""
        asked.is_old = False
        try:
            found = await self._cluster.refresh(asked.topic.name, _REFRESH_S)
        except TopicMissing:
            raise
        except FlotillaError as error:
            asked.last = error if isinstance(error, Refused | ServerUnreachable) else asked.last
            return
        if found.id != asked.topic.id:
            raise TopicMissing(f"topic '{asked.topic.name}' was removed, and made again", "unknown_partition", {})
        asked.update(found)

    async def _pause(self, asked: "_Asked") -> None:
        """Wait a moment, longer each time; not at all before the first move to another leader."""
        asked.tries += 1
        if asked.pause_s:
            await asyncio.sleep(max(0.0, min(asked.pause_s, asked.deadline - self._clock())))
        asked.pause_s = min(max(_PAUSE_S_MIN, asked.pause_s * 2), _PAUSE_S_MAX)


_AT, _FIRST, _NEXT = b"offset", b"first-offset", b"next-offset"


def _retry_after_s(response: Response) -> float:
    text = response.headers.get(b"retry-after", b"")
    return min(float(text), _RETRY_AFTER_S_MAX) if text.isdigit() else 0.0


class _Asked:
    """How a request fares."""

    def __init__(self, topic: TopicInfo, index: int, deadline: float, wait_s: float = 0.0) -> None:
        self.topic = topic
        self.index = index
        self.key = (topic.id, index)
        self.deadline = deadline
        self.wait_s = wait_s  # how long a server may take on purpose
        self.tries = 0
        self.pause_s = 0.0
        self.is_old = False  # what is known of the topic must be looked up
        self.is_doubtful = False  # it may have been carried out
        self.unauthorized_at: float | None = None  # when a broker said so for the first time
        self.last: Refused | ServerUnreachable = ServerUnreachable("no server could be asked in time")

    @property
    def members(self) -> tuple[str, ...]:
        """The brokers that hold the partition."""
        return self.topic.partitions[self.index].replicas

    def update(self, topic: TopicInfo | None) -> None:
        """Go by what is known of the topic, if that is the same one. Who knows of fewer partitions is behind."""
        if topic is not None and topic.id == self.topic.id and self.index < len(topic.partitions):
            self.topic = topic

    def note_unknown(self) -> None:
        """Note that nobody is known whom one could ask."""
        self.last = ServerUnreachable("no broker that holds the partition is known")
        self.is_old = True
        self.pause_s = self.pause_s or _PAUSE_S_MIN

    def is_young(self, status: int, now: float) -> bool:
        """Tell whether a token that is not valid may become so in a moment."""
        if status != _UNAUTHORIZED:
            return False
        self.unauthorized_at = now if self.unauthorized_at is None else self.unauthorized_at
        return now < self.unauthorized_at + _YOUNG_S

    def end(self, error: Refused | ServerUnreachable) -> DeliveryFailed | DeliveryUnknown:
        """Tell how an append ended that has not succeeded."""
        if self.is_doubtful:
            return DeliveryUnknown(f"it is not known whether the records were stored: {error}")
        return DeliveryFailed(f"the records were not stored: {error}")
