"""Everything that only the writer does, for the API to call."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from flotilla.serving.errors import Refusal
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, TopicMissing
from flotilla_manager.model import Broker, Producer, Snapshot, Topic, TopicState, replicas_per_broker
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.view import View
from flotilla_manager.writer.leadership import Leadership
from flotilla_manager.writer.orders import OrderFailed, Orders
from flotilla_manager.writer.reports import Beat, Reports
from flotilla_manager.writer.steward import Steward
from flotilla_manager.writer.topics import MISSING, Topics, TopicSpec, find

logger = logging.getLogger(__name__)

_BAD_PARTITION = "Invalid partition number."
_ID_BYTES = 16


class WriterService:
    """The writer's side of calls. Each raises Refusal if this manager is not the writer now."""

    def __init__(
        self,
        leadership: Leadership,
        database: AsyncMetadata,
        view: View,
        reports: Reports,
        steward: Steward,
        topics: Topics,
        orders: Orders,
        gateway: Gateway,
        *,
        seconds: float,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._leadership = leadership
        self._database = database
        self._view = view
        self._reports = reports
        self._steward = steward
        self._topics = topics
        self._orders = orders
        self._gateway = gateway
        self._seconds = seconds
        self._random_bytes = random_bytes

    @property
    def is_writer(self) -> bool:
        """Whether this manager decides, as far as it knows."""
        return self._leadership.epoch is not None

    def _epoch(self) -> int:
        if self._leadership.epoch is None:
            raise Refusal("unavailable", "There is no writer at the moment; try again.")
        return self._leadership.epoch

    def fenced(self, error: Fenced) -> Refusal:
        """Give way, and tell the client."""
        self._leadership.lose(str(error))
        return Refusal("unavailable", "Another manager became the writer just now; try again.")

    # -- topics -------------------------------------------------------------------------------------------

    async def create_topic(self, name: str, **options: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        """Make a topic."""
        return await self._topics.create(self._epoch(), TopicSpec(name=name, **options))

    async def delete_topic(self, name: str, owner: str | None = None) -> None:
        """Remove a topic."""
        await self._topics.delete(self._epoch(), name, owner)

    async def put_topic(self, spec: TopicSpec) -> Topic:
        """Have a topic as it should be: made, or changed; to say it again changes nothing."""
        epoch = self._epoch()
        await self._view.refresh()
        topic = self._view.topic(spec.name)
        if topic is None:
            return await self._topics.create(epoch, spec)
        await self._topics.configure(epoch, topic, spec)
        await self._view.refresh()
        return self._view.topic(spec.name) or topic

    # -- clients ------------------------------------------------------------------------------------------

    async def register_producer(self, name: str) -> Producer:
        """Register a producer; make the topic if it is not there."""
        epoch = self._epoch()
        topic = await self._view.find_topic(name)
        while topic is None:
            try:
                topic = await self._topics.create(epoch, TopicSpec(name=name))
            except Refusal as refusal:
                if refusal.code != "exists":
                    raise
                topic = await self._view.find_topic(name)  # somebody else made it
                if topic is None and find(self._snapshot(), name) is not None:
                    raise Refusal("unavailable", "The topic is being made; try again in a moment.") from refusal
        try:
            return await self._database.call(
                self._database.store.register_producer, epoch, self._random_bytes(_ID_BYTES).hex(), topic.id
            )
        except TopicMissing as error:
            raise Refusal("unavailable", "The topic was removed just now; try again.") from error

    async def register_consumer(self, name: str, partition: int | None, *, latest: bool) -> str:
        """Register a consumer."""
        epoch = self._epoch()
        topic = await self._view.find_topic(name)
        if topic is None:
            raise Refusal("bad_request", MISSING)
        if partition is not None and not 0 <= partition < len(topic.partitions):
            raise Refusal("bad_request", _BAD_PARTITION)
        positions = [0] * len(topic.partitions)
        if latest:
            for index in range(len(positions)) if partition is None else (partition,):
                positions[index] = (await self._gateway.offsets(topic, index, seconds=self._seconds)).next
        id_ = self._random_bytes(_ID_BYTES).hex()
        try:
            await self._database.call(
                self._database.store.register_consumer, epoch, id_, topic.id, partition, positions
            )
        except TopicMissing as error:
            raise Refusal("bad_request", MISSING) from error
        return id_

    # -- brokers ------------------------------------------------------------------------------------------

    async def heartbeat(self, beat: Beat) -> dict[str, Any]:
        """Hear of a broker; register it if it is new."""
        epoch = self._epoch()
        if self._view.snapshot is None:
            await self._view.refresh()
        snapshot = self._snapshot()
        if beat.cluster_id not in {None, snapshot.cluster_id}:
            text = f"broker {beat.id} belongs to cluster {beat.cluster_id}; this is cluster {snapshot.cluster_id}"
            raise Refusal("conflict", text)
        known = snapshot.brokers_by_id.get(beat.id)
        broker = beat.to_broker(known)
        if broker.removed:
            return {"status": "ok", "known": False, "writer_epoch": epoch}
        if broker != known:
            await self._database.call(self._database.store.put_broker, epoch, broker)
            logger.info("broker %s at %s is %s", broker.id, broker.url, "new" if known is None else "back, or changed")
            await self._view.refresh()
        is_first = not self._reports.is_alive(beat.id)
        self._reports.take(beat)
        if is_first or broker != known:
            self._steward.wake()
        return {"status": "ok", "known": True, "writer_epoch": epoch}

    async def add_broker(self, host: str) -> str:
        """Let a broker take part: one that is new, or one that was removed."""
        epoch = self._epoch()
        try:
            told = await self._orders.describe(_url(host))
        except OrderFailed as error:
            raise Refusal("bad_request", f"{error}.") from error
        snapshot = self._snapshot()
        if told.get("cluster_id") not in {None, snapshot.cluster_id}:
            raise Refusal("conflict", f"The broker at {host} belongs to another cluster.")
        keys = ("id", "host", "port", "peer_host", "peer_port", "rack")
        try:
            beat = msgspec.convert({key: told.get(key) for key in keys}, Beat)
        except msgspec.ValidationError as error:
            raise Refusal("bad_request", f"The broker at {host} does not say how it is reached: {error}.") from error
        known = snapshot.brokers_by_id.get(beat.id)
        broker = replace(beat.to_broker(known), removed=False, wanted=True)
        await self._change(epoch, broker)
        return broker.id

    async def remove_broker(self, host: str) -> str:
        """Do without a broker that holds nothing."""
        epoch = self._epoch()
        await self._view.refresh()
        broker = self._find_broker(host)
        held = replicas_per_broker(self._snapshot().topics).get(broker.id, 0)
        if held:
            replicas = "1 replica" if held == 1 else f"{held} replicas"
            raise Refusal("conflict", f"Broker {broker.id} holds {replicas}; it can be removed when it holds none.")
        await self._change(epoch, replace(broker, removed=True, active=False))
        return broker.id

    async def cordon_broker(self, host: str, *, cordoned: bool) -> str:
        """Keep new replicas and leaders away from a broker, or let them come."""
        epoch = self._epoch()
        await self._view.refresh()
        broker = self._find_broker(host)
        await self._change(epoch, replace(broker, cordoned=cordoned))
        return broker.id

    async def put_broker(self, id_: str, *, rack: str | None, wanted: bool, cordoned: bool) -> Broker:
        """Take an operator's word about a broker that has registered."""
        epoch = self._epoch()
        await self._view.refresh()
        known = self._snapshot().brokers_by_id.get(id_)
        if known is None:
            raise Refusal("not_found", f"No broker {id_} has registered.")
        broker = replace(known, rack=rack or known.rack, wanted=wanted, cordoned=cordoned)
        if broker != known:
            await self._change(epoch, broker)
        return broker

    async def _change(self, epoch: int, broker: Broker) -> None:
        await self._database.call(self._database.store.put_broker, epoch, broker)
        await self._view.refresh()
        self._steward.wake()

    def _find_broker(self, host: str) -> Broker:
        for broker in self._snapshot().brokers:
            if host in {broker.id, broker.url, broker.url.removeprefix("http://")} and not broker.removed:
                return broker
        raise Refusal("bad_request", f"No broker is registered at {host}.")

    def _snapshot(self) -> Snapshot:
        if self._view.snapshot is None:
            raise Refusal("unavailable", "The metadata is not known yet; try again.")
        return self._view.snapshot

    # -- what operators look at ---------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The whole topology, at one version, and what brokers said last."""
        snapshot = self._snapshot()
        return {
            "version": snapshot.version,
            "cluster_id": snapshot.cluster_id,
            "writer_epoch": snapshot.writer.epoch,
            "topics": [msgspec.to_builtins(one) for one in snapshot.topics if one.state != TopicState.DELETED],
            "brokers": [msgspec.to_builtins(one) for one in snapshot.brokers],
            "reports": self._reports.describe(),
        }


def _url(host: str) -> str:
    """Read the address of a broker: host:port, or a URL."""
    text = host if "//" in host else f"http://{host}"
    try:
        parts = urlsplit(text)
        right = parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        right = False
    if not right or parts.path not in {"", "/"} or parts.query or parts.username is not None:
        raise Refusal("bad_request", f"'broker_host' is {host!r}; write it as in 127.0.0.1:8090.")
    return text.rstrip("/")
