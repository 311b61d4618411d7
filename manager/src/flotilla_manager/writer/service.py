"""Everything that only the writer does, for the API to call."""

import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from flotilla.limits import WEEK_MS
from flotilla.serving.errors import Refusal
from flotilla.serving.people import BAD_PARTITION_TO_CONSUME, NO_TOPIC
from flotilla_manager.access import KnownTokens
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, TopicMissing
from flotilla_manager.model import Broker, Producer, Snapshot, Topic, TopicState
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.view import View
from flotilla_manager.writer import brokers
from flotilla_manager.writer.leadership import Leadership
from flotilla_manager.writer.orders import OrderFailed, Orders
from flotilla_manager.writer.reports import Beat, Reports
from flotilla_manager.writer.steward import Steward
from flotilla_manager.writer.topics import Topics, TopicSpec

logger = logging.getLogger(__name__)

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
        registered: brokers.Brokers,
        *,
        tokens: KnownTokens | None = None,
        scheme: str = "http",
        seconds: float,
        random_bytes: Callable[[int], bytes],
        retention_ms: int | None = WEEK_MS,
        retention_bytes: int | None = None,
    ) -> None:
        self._leadership = leadership
        self._database = database
        self._view = view
        self._reports = reports
        self._steward = steward
        self._topics = topics
        self._orders = orders
        self._gateway = gateway
        self._brokers = registered
        self._tokens = tokens or KnownTokens(view)
        self._foreign: set[str] = set()  # brokers of another cluster, of which it was said
        self._scheme = scheme  # of a broker whose address comes without one
        self._seconds = seconds
        self._random_bytes = random_bytes
        self._retention = {"retention_ms": retention_ms, "retention_bytes": retention_bytes}

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
        self._leadership.lose(error.epoch, str(error))
        return Refusal("unavailable", "Another manager became the writer just now; try again.")

    # -- topics -------------------------------------------------------------------------------------------

    async def create_topic(self, name: str, **options: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        """Make a topic."""
        return await self._topics.create(self._epoch(), self._spec(name, options))

    def _spec(self, name: str, options: Mapping[str, Any]) -> TopicSpec:
        """Say what a topic should be; for how long records are kept, unless somebody says so, is a setting."""
        return TopicSpec(name=name, **{**self._retention, **options})

    async def delete_topic(self, name: str, owner: str | None = None, topic_id: str | None = None) -> None:
        """Remove a topic; with an id, only if it is that one."""
        await self._topics.delete(self._epoch(), name, owner, topic_id)

    async def release_topic(self, name: str, owner: str) -> None:
        """Have a topic belong to nobody."""
        await self._topics.release(self._epoch(), name, owner)

    async def put_topic(self, name: str, **options: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        """Have a topic as it should be: made, or changed; to say it again changes nothing."""
        kept = {*self._retention, "batch_bytes_max", "compression"} - options.keys()
        return await self._topics.put(self._epoch(), self._spec(name, options), kept)

    async def change_topic(self, name: str, **changes: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        """Change what is given of a topic, and nothing else."""
        return await self._topics.change(self._epoch(), name, **changes)

    # -- clients ------------------------------------------------------------------------------------------

    async def register_producer(self, name: str, before_making: Callable[[], None] = lambda: None) -> Producer:
        """Register a producer; make the topic if it is not there, unless `before_making` raises."""
        epoch = self._epoch()
        topic = await self._view.find_topic(name)
        while topic is None:
            before_making()
            try:
                topic = await self._topics.create(epoch, self._spec(name, {}))
            except Refusal as refusal:
                if refusal.code != "exists":
                    raise
                topic = await self._view.find_topic(name)  # somebody else made it
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
            raise Refusal("bad_request", NO_TOPIC)
        if partition is not None and not 0 <= partition < len(topic.partitions):
            raise Refusal("bad_request", BAD_PARTITION_TO_CONSUME)
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
            raise Refusal("bad_request", NO_TOPIC) from error
        return id_

    # -- brokers ------------------------------------------------------------------------------------------

    async def heartbeat(self, beat: Beat) -> dict[str, Any]:
        """Hear of a broker; register it if it is new."""
        epoch = self._epoch()
        if self._view.snapshot is None:
            await self._view.refresh()
        snapshot = self._snapshot()
        self._check_cluster(beat, snapshot)
        known = snapshot.brokers_by_id.get(beat.id)
        is_removed = known is not None and known.removed
        is_news = not is_removed and beat.to_broker(known) != known
        if is_news:
            broker = await self._brokers.change(epoch, beat.id, brokers.hear(beat))
            is_removed = broker.removed
            logger.info("broker %s at %s is %s", broker.id, broker.url, "new" if known is None else "back, or changed")
        if is_removed:
            return self._answer(beat, epoch, known=False)
        is_first = not self._reports.is_alive(beat.id)
        self._reports.take(beat)
        if is_first or is_news:
            self._steward.wake()
        return self._answer(beat, epoch, known=True)

    def _answer(self, beat: Beat, epoch: int, *, known: bool) -> dict[str, Any]:
        """Answer a heartbeat; with the tokens, if the broker has others."""
        answer: dict[str, Any] = {"status": "ok", "known": known, "writer_epoch": epoch}
        if beat.access not in {None, self._tokens.table.version}:
            answer["access"] = msgspec.Raw(self._tokens.written)
        return answer

    def _check_cluster(self, beat: Beat, snapshot: Snapshot) -> None:
        """Refuse a broker of another cluster. A database that was lost and begun anew is another one, too."""
        if beat.cluster_id in {None, snapshot.cluster_id}:
            return
        text = (
            f"broker {beat.id} belongs to cluster {beat.cluster_id}; the database is that of cluster "
            f"{snapshot.cluster_id}. If it has replaced one that was lost, stop the writer and rebuild it from the "
            "brokers: flotilla admin rebuild-metadata"
        )
        if beat.id not in self._foreign and len(self._foreign) < brokers.BROKERS_MAX:
            self._foreign.add(beat.id)
            logger.error("%s", text)
        raise Refusal("conflict", text)

    async def add_broker(self, host: str) -> str:
        """Let a broker take part: one that is new, or one that was removed."""
        epoch = self._epoch()
        url = _url(host, self._scheme)
        await self._view.refresh()
        is_ours = any(broker.url == url for broker in self._snapshot().brokers)
        try:
            told = await self._orders.describe(url, is_ours=is_ours)
        except OrderFailed as error:
            raise Refusal("bad_request", f"{error}.") from error
        keys = ("id", "host", "port", "peer_host", "peer_port", "rack", "cluster_id", "tls")
        try:
            beat = msgspec.convert({key: told[key] for key in keys if key in told}, Beat)
        except msgspec.ValidationError as error:
            raise Refusal("bad_request", f"The broker at {host} does not say how it is reached: {error}.") from error
        await self._view.refresh()
        if beat.cluster_id not in {None, self._snapshot().cluster_id}:
            raise Refusal("conflict", f"The broker at {host} belongs to another cluster.")
        return await self._change_broker(epoch, beat.id, brokers.add(beat))

    async def remove_broker(self, host: str) -> str:
        """Do without a broker that holds nothing."""
        return await self._change_broker(self._epoch(), await self._find_broker(host), brokers.remove)

    async def delete_broker(self, id_: str) -> None:
        """Do without a broker that holds nothing; to say it again changes nothing."""
        await self._change_broker(self._epoch(), id_, brokers.remove)

    async def cordon_broker(self, host: str, *, cordoned: bool) -> str:
        """Keep new replicas and leaders away from a broker, or let them come."""
        id_ = await self._find_broker(host)
        return await self._change_broker(self._epoch(), id_, brokers.cordon(cordoned=cordoned))

    async def put_broker(self, id_: str, *, rack: str | None, wanted: bool, cordoned: bool) -> Broker:
        """Take an operator's word about a broker that has registered."""
        await self._change_broker(self._epoch(), id_, brokers.instruct(rack=rack, wanted=wanted, cordoned=cordoned))
        return self._snapshot().brokers_by_id[id_]

    async def _change_broker(self, epoch: int, id_: str, decide: brokers.Decision) -> str:
        broker = await self._brokers.change(epoch, id_, decide)
        self._steward.wake()
        return broker.id

    async def _find_broker(self, host: str) -> str:
        await self._view.refresh()
        return brokers.find(self._snapshot(), host).id

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


def _url(host: str, scheme: str) -> str:
    """Read the address of a broker: host:port, or a URL."""
    text = host if "//" in host else f"{scheme}://{host}"
    try:
        parts = urlsplit(text)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port is not None
    except ValueError:
        right = False
    if not right or parts.path not in {"", "/"} or parts.query or parts.username is not None:
        raise Refusal("bad_request", f"'broker_host' is {host!r}; write it as in 127.0.0.1:8090.")
    return text.rstrip("/")
