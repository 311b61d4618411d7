"""Creation, change and deletion of topics. Each step is written to the database first, so that it can be completed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import WeakValueDictionary

from flotilla.limits import (
    PARTITION_EPOCH_FIRST,
    PARTITIONS_DEFAULT,
    PARTITIONS_TOTAL_MAX,
    REPLICATION_DEFAULT,
    RETENTION_MS_DEFAULT,
    TOPICS_MAX,
)
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.simple import EXISTS, NO_TOPIC
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import TopicExists, TopicMissing
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import LIVE_STATES, Partition, Snapshot, Topic, TopicState
from flotilla_manager.placement import CannotPlace, grow, place
from flotilla_manager.planning import Campaign, Command, DeleteReplica, put_replica
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.writer.commands import to_refusal
from flotilla_manager.writer.reconciler import BrokerReconciler

logger = logging.getLogger(__name__)

BEING_CREATED = "The topic is being created; try again."
REMOVED = "The topic was deleted during the request; try again."
_LEADER_WAIT_S = 3.0
_CONCURRENCY_MAX = 64
# Settings that a request may omit: a new topic gets their defaults, an existing one keeps its values.
OPTIONAL_SETTINGS = frozenset({"retention_ms", "retention_bytes", "batch_bytes_max", "compression"})


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """Desired state of a topic."""

    name: str
    partitions: int = PARTITIONS_DEFAULT
    replication: int = REPLICATION_DEFAULT
    retention_ms: int | None = RETENTION_MS_DEFAULT
    retention_bytes: int | None = None
    owner: str | None = None
    batch_bytes_max: int | None = None
    compression: str | None = None


class Topics:
    """Changes topics, as the writer of an epoch."""

    def __init__(
        self,
        database: AsyncMetadata,
        metadata: MetadataCache,
        reconciler: BrokerReconciler,
        gateway: Gateway,
        lock: asyncio.Lock,
        *,
        brokers_min: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._database = database
        self._metadata = metadata
        self._reconciler = reconciler
        self._gateway = gateway
        self._lock = lock  # of placement and of changes of brokers
        self._brokers_min = brokers_min
        self._random_bytes = random_bytes
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def put(self, epoch: int, spec: TopicSpec, omitted: Collection[str] = ()) -> Topic:
        """Create a topic or change it to match the spec. Raises Refusal, MetadataError.

        Replication applies to new topics only. An existing topic keeps its values of the settings in `omitted`, which
        are some of `OPTIONAL_SETTINGS`.
        """
        snapshot = await self._refresh()
        if spec.name not in snapshot.ready:
            return await self.create(epoch, spec)
        return await self._configure_existing(epoch, spec, omitted)

    async def create(self, epoch: int, spec: TopicSpec) -> Topic:
        """Create a topic; return when it can be used. Raises Refusal, MetadataError."""
        async with self._locked(spec.name):
            await self._refresh()  # without the database, requests fail here and not one by one under the lock
            id_ = self._random_bytes(16).hex()
            with self._reconciler.creating(id_):
                async with self._lock:
                    snapshot = await self._refresh()
                    topic = await self._begin(epoch, self._draft(id_, spec, snapshot))
                await self._put_or_undo(epoch, topic, snapshot)
                await self._database.call(self._database.store.set_topic_state, epoch, topic.id, TopicState.READY)
            line = "topic created topic=%s topic_id=%s partitions=%d replication=%d"
            logger.info(line, topic.name, topic.id, len(topic.partitions), topic.replication)
            await self._elect_leaders(epoch, topic, topic.partitions, snapshot)
            return replace(topic, state=TopicState.READY)

    def _draft(self, id_: str, spec: TopicSpec, snapshot: Snapshot) -> Topic:
        """Build a new topic with its placement. Raises Refusal."""
        found = find(snapshot, spec.name)
        if found is not None:
            raise (
                Refusal("exists", EXISTS) if found.state == TopicState.READY else Refusal("unavailable", BEING_CREATED)
            )
        check_topic_limits(snapshot, spec.partitions, topics=1)
        self._check_brokers(snapshot)
        members = _placed(lambda: place(spec.partitions, spec.replication, snapshot.brokers, snapshot.topics))
        return Topic(
            id=id_,
            name=spec.name,
            state=TopicState.CREATING,
            serial=0,
            partitions=tuple(
                Partition(index=at, epoch=PARTITION_EPOCH_FIRST, members=of) for at, of in enumerate(members)
            ),
            retention_ms=spec.retention_ms,
            retention_bytes=spec.retention_bytes,
            owner=spec.owner,
            batch_bytes_max=spec.batch_bytes_max,
            compression=spec.compression,
        )

    async def _begin(self, epoch: int, draft: Topic) -> Topic:
        try:
            return await self._database.call(self._database.store.create_topic, epoch, draft)
        except TopicExists as error:
            raise Refusal("exists", EXISTS) from error

    async def _put_or_undo(self, epoch: int, topic: Topic, snapshot: Snapshot) -> None:
        failures = await self._reconciler.send(put_commands(topic, topic.partitions), epoch, snapshot)
        if not failures:
            return
        await self._database.call(self._database.store.set_topic_state, epoch, topic.id, TopicState.DELETING)
        line = "topic creation failed, deleting topic=%s topic_id=%s error=%r"
        logger.warning(line, topic.name, topic.id, str(failures[0]))
        self._reconciler.wake()
        raise to_refusal(failures[0])

    async def _elect_leaders(
        self, epoch: int, topic: Topic, partitions: tuple[Partition, ...], snapshot: Snapshot
    ) -> None:
        """Start elections in new partitions, and wait for leaders.

        If that fails, the partitions elect leaders after their election timeouts.
        """
        campaigns: tuple[Command, ...] = tuple(
            Campaign(broker=one.members[0], topic_id=topic.id, partition=one.index, epoch=one.epoch)
            for one in partitions
        )
        await self._reconciler.send(campaigns, epoch, snapshot)
        if not await self._metadata.refresh_after_change():
            return
        limit = asyncio.Semaphore(_CONCURRENCY_MAX)
        await asyncio.gather(*(self._wait_for_leader(topic, one.index, limit) for one in partitions))

    async def _wait_for_leader(self, topic: Topic, index: int, limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                await self._gateway.offsets(topic, index, timeout_s=_LEADER_WAIT_S)
            except Refusal as refusal:
                logger.info(
                    "partition has no leader yet topic=%s partition=%d error=%r", topic.name, index, str(refusal)
                )

    async def delete(self, epoch: int, name: str, owner: str | None = None, topic_id: str | None = None) -> None:
        """Delete a topic and its records; with an id, only the topic with this id. Raises Refusal, MetadataError."""
        async with self._locked(name):
            snapshot = await self._refresh()
            topic = snapshot.ready.get(name)
            if topic is None:
                raise not_found("topic", NO_TOPIC)
            check_owner(topic, owner)
            if topic_id not in {None, topic.id}:
                raise Refusal(
                    "conflict", f"Topic '{name}' has id {topic.id}, not {topic_id}: it was deleted and created again."
                )
            try:
                await self._database.call(self._database.store.set_topic_state, epoch, topic.id, TopicState.DELETING)
            except TopicMissing as error:
                raise not_found("topic", NO_TOPIC) from error
            logger.info("topic deleted topic=%s topic_id=%s partitions=%d", name, topic.id, len(topic.partitions))
            await self._reconciler.send(delete_commands(topic), epoch, snapshot)
            self._reconciler.wake()
            await self._metadata.refresh_after_change()

    async def release(self, epoch: int, name: str, owner: str) -> None:
        """Remove the owner of a topic. Idempotent. Raises Refusal, MetadataError."""
        async with self._locked(name):
            topic = (await self._refresh()).ready.get(name)
            if topic is None:
                raise not_found("topic", NO_TOPIC)
            check_owner(topic, owner)
            if topic.owner is not None:
                await self._database.call(self._database.store.configure_topic, epoch, topic.id, owner=None)
                logger.info("topic released topic=%s topic_id=%s owner=%r", name, topic.id, topic.owner)
                await self._metadata.refresh_after_change()

    async def _configure_existing(self, epoch: int, spec: TopicSpec, omitted: Collection[str]) -> Topic:
        """Change settings, owner and number of partitions. Raises Refusal, MetadataError."""
        async with self._locked(spec.name):
            topic = (await self._refresh()).ready.get(spec.name)
            if topic is None:
                raise Refusal("unavailable", REMOVED)
            current = {name: getattr(topic, name) for name in omitted}
            return await self._apply_spec(epoch, topic, replace(spec, **current))

    async def patch(self, epoch: int, name: str, **changes: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        """Change the given settings only. Raises Refusal, MetadataError."""
        async with self._locked(name):
            topic = (await self._refresh()).ready.get(name)
            if topic is None:
                raise not_found("topic", NO_TOPIC)
            return await self._apply_spec(epoch, topic, replace(spec_of(topic), **changes))

    async def _apply_spec(self, epoch: int, topic: Topic, spec: TopicSpec) -> Topic:
        """Store the settings and the owner of a spec, then add missing partitions."""
        check_owner(topic, spec.owner)
        if spec.partitions < len(topic.partitions):
            text = f"Topic '{topic.name}' has {len(topic.partitions)} partitions; the number cannot be decreased."
            raise Refusal("conflict", text)
        await self._store_settings(epoch, topic, spec)
        if spec.partitions > len(topic.partitions):
            await self._add_partitions(epoch, topic.id, spec.partitions)
        return (await self._refresh()).ready.get(spec.name, topic)

    async def _store_settings(self, epoch: int, topic: Topic, spec: TopicSpec) -> None:
        wanted = replace(
            topic,
            retention_ms=spec.retention_ms,
            retention_bytes=spec.retention_bytes,
            owner=spec.owner or topic.owner,
            batch_bytes_max=spec.batch_bytes_max,
            compression=spec.compression,
        )
        if wanted == topic:
            return
        await self._database.call(
            self._database.store.configure_topic,
            epoch,
            topic.id,
            retention_ms=wanted.retention_ms,
            retention_bytes=wanted.retention_bytes,
            owner=wanted.owner,
            batch_bytes_max=wanted.batch_bytes_max,
            compression=wanted.compression,
        )
        logger.info("topic changed topic=%s topic_id=%s %s", topic.name, topic.id, _changed_settings(topic, wanted))
        self._reconciler.wake()

    async def _add_partitions(self, epoch: int, topic_id: str, partitions: int) -> None:
        """Add partitions. The reconciler creates the replicas that a broker did not create."""
        async with self._lock:
            snapshot = await self._refresh()
            topic = snapshot.topics_by_id[topic_id]
            count = len(topic.partitions)
            check_topic_limits(snapshot, partitions - count)
            members = _placed(lambda: grow(topic, partitions, snapshot.brokers, snapshot.topics))
            added = tuple(
                Partition(index=count + at, epoch=PARTITION_EPOCH_FIRST, members=of) for at, of in enumerate(members)
            )
            await self._database.call(self._database.store.add_partitions, epoch, topic.id, added)
        line = "topic changed topic=%s topic_id=%s partitions=%d partitions_before=%d"
        logger.info(line, topic.name, topic.id, partitions, count)
        await self._reconciler.send(put_commands(topic, added), epoch, snapshot)
        await self._elect_leaders(epoch, topic, added, snapshot)

    async def _refresh(self) -> Snapshot:
        await self._metadata.refresh()
        return self._metadata.require_snapshot()

    def _check_brokers(self, snapshot: Snapshot) -> None:
        registered = len(snapshot.brokers)  # including removed ones
        if registered < self._brokers_min:
            text = f"{registered} of {self._brokers_min} required brokers are registered; try again."
            raise Refusal("unavailable", text)

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        """Serialize requests for one topic name."""
        lock = self._names.get(name) or asyncio.Lock()
        self._names[name] = lock
        async with lock:
            yield


def find(snapshot: Snapshot, name: str) -> Topic | None:
    """Find a topic by name that is being created or ready."""
    return next((one for one in snapshot.topics if one.name == name and one.state in LIVE_STATES), None)


def spec_of(topic: Topic) -> TopicSpec:
    """Return the spec of a topic, without its owner."""
    return TopicSpec(
        name=topic.name,
        partitions=len(topic.partitions),
        replication=topic.replication,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        batch_bytes_max=topic.batch_bytes_max,
        compression=topic.compression,
    )


def check_topic_limits(snapshot: Snapshot, partitions: int, topics: int = 0) -> None:
    """Check that this number of partitions and topics can be added. Raises Refusal."""
    live = [topic for topic in snapshot.topics if topic.state in LIVE_STATES]
    if len(live) + topics > TOPICS_MAX:
        text = f"{len(live)} topics exist; the limit is {TOPICS_MAX}. Delete unused topics."
        raise Refusal("bad_request", text)
    total = sum(len(topic.partitions) for topic in live)
    if total + partitions > PARTITIONS_TOTAL_MAX:
        text = (
            f"{total} partitions exist, and the request adds {partitions}; the limit is {PARTITIONS_TOTAL_MAX}. "
            "Delete unused topics, or request fewer partitions."
        )
        raise Refusal("bad_request", text)


def check_owner(topic: Topic, owner: str | None) -> None:
    """Check that the owner requests the change. Raises Refusal."""
    if topic.owner is not None and owner != topic.owner:
        raise Refusal(
            "conflict", f"Topic '{topic.name}' is owned by {topic.owner}; change or delete the owner instead."
        )


def put_commands(topic: Topic, partitions: tuple[Partition, ...]) -> tuple[Command, ...]:
    """Return commands that create every replica."""
    return tuple(put_replica(topic, one, member) for one in partitions for member in one.members)


def delete_commands(topic: Topic) -> tuple[Command, ...]:
    """Return commands that delete every replica."""
    return tuple(
        DeleteReplica(broker=member, topic_id=topic.id, partition=one.index, epoch=one.epoch)
        for one in topic.partitions
        for member in one.members
    )


def _changed_settings(before: Topic, after: Topic) -> str:
    """Return the changed settings with their new values, for logs."""
    names = [field.name for field in fields(Topic) if getattr(before, field.name) != getattr(after, field.name)]
    return " ".join(f"{name}={getattr(after, name)!r}" for name in names)


def _placed(decide: Callable[[], tuple[tuple[str, ...], ...]]) -> tuple[tuple[str, ...], ...]:
    try:
        return decide()
    except CannotPlace as error:
        raise Refusal("unavailable", f"The topic cannot be placed: {error}.") from error
