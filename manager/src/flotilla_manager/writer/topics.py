"""Topics: made, changed and removed, each step in the database first, so that whoever comes next can finish it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from flotilla.limits import PARTITIONS_TOTAL_MAX, TOPICS_MAX, WEEK_MS
from flotilla.serving.errors import Refusal
from flotilla.serving.people import EXISTS, NO_TOPIC
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import MetadataError, TopicExists, TopicMissing
from flotilla_manager.model import Partition, Snapshot, Topic, TopicState
from flotilla_manager.placement import CannotPlace, grow, place
from flotilla_manager.planning import CloseReplica, OpenReplica, Order, Stand
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.view import View
from flotilla_manager.writer.orders import to_refusal
from flotilla_manager.writer.steward import Steward

logger = logging.getLogger(__name__)

BEING_MADE = "The topic is being made; try again in a moment."
REMOVED = "The topic was removed just now; try again."
_LEADER_S = 3.0
_QUESTIONS_MAX = 64
_LIVE = (TopicState.CREATING, TopicState.READY)


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """What a topic should be."""

    name: str
    partitions: int = 2
    replication: int = 3
    retention_ms: int | None = WEEK_MS
    retention_bytes: int | None = None
    owner: str | None = None
    batch_bytes_max: int | None = None
    compression: str | None = None


class Topics:
    """The writer's hand on topics."""

    def __init__(
        self,
        database: AsyncMetadata,
        view: View,
        steward: Steward,
        gateway: Gateway,
        turn: asyncio.Lock,
        *,
        brokers_min: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._database = database
        self._view = view
        self._steward = steward
        self._gateway = gateway
        self._turn = turn  # of whoever places replicas, or changes what is known of brokers
        self._brokers_min = brokers_min
        self._random_bytes = random_bytes
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def put(self, epoch: int, spec: TopicSpec, kept: Collection[str] = ()) -> Topic:
        """Have a topic as it should be: made, or changed. Raises Refusal, MetadataError.

        What is `kept` was not said, and stays as it is of a topic that is there: defaults are for new ones.
        """
        snapshot = await self._look()
        if spec.name not in snapshot.ready:
            return await self.create(epoch, spec)
        return await self.configure(epoch, spec, kept)

    async def create(self, epoch: int, spec: TopicSpec) -> Topic:
        """Make a topic; it can be used when this returns. Raises Refusal, MetadataError."""
        async with self._alone(spec.name):
            await self._look()  # while the database is away, everybody fails here, and nobody in turn
            id_ = self._random_bytes(16).hex()
            with self._steward.making(id_):
                async with self._turn:
                    snapshot = await self._look()
                    topic = await self._begin(epoch, self._draft(id_, spec, snapshot))
                await self._open_or_undo(epoch, topic, snapshot)
                await self._database.call(self._database.store.set_topic_state, epoch, topic.id, TopicState.READY)
            await self._start(epoch, topic, topic.partitions, snapshot)
            return replace(topic, state=TopicState.READY)

    def _draft(self, id_: str, spec: TopicSpec, snapshot: Snapshot) -> Topic:
        """Decide what a new topic is, and where. Raises Refusal."""
        found = find(snapshot, spec.name)
        if found is not None:
            raise Refusal("exists", EXISTS) if found.state == TopicState.READY else Refusal("unavailable", BEING_MADE)
        check_room(snapshot, spec.partitions, topics=1)
        self._check_brokers(snapshot)
        members = _placed(lambda: place(spec.partitions, spec.replication, snapshot.brokers, snapshot.topics))
        return Topic(
            id=id_,
            name=spec.name,
            state=TopicState.CREATING,
            serial=0,
            partitions=tuple(Partition(index=at, epoch=1, members=of) for at, of in enumerate(members)),
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

    async def _open_or_undo(self, epoch: int, topic: Topic, snapshot: Snapshot) -> None:
        failures = await self._steward.give(opens(topic, topic.partitions), epoch, snapshot)
        if not failures:
            return
        await self._database.call(self._database.store.set_topic_state, epoch, topic.id, TopicState.DELETING)
        self._steward.wake()
        raise to_refusal(failures[0])

    async def _start(self, epoch: int, topic: Topic, partitions: tuple[Partition, ...], snapshot: Snapshot) -> None:
        """Give new partitions their leaders at once. If that fails, they elect one by themselves, a little later."""
        stands: tuple[Order, ...] = tuple(
            Stand(broker=one.members[0], topic_id=topic.id, partition=one.index, epoch=one.epoch) for one in partitions
        )
        await self._steward.give(stands, epoch, snapshot)
        if not await self._show():
            return
        some = asyncio.Semaphore(_QUESTIONS_MAX)
        await asyncio.gather(*(self._wait_for_leader(topic, one.index, some) for one in partitions))

    async def _wait_for_leader(self, topic: Topic, index: int, some: asyncio.Semaphore) -> None:
        async with some:
            try:
                await self._gateway.offsets(topic, index, seconds=_LEADER_S)
            except Refusal as refusal:
                logger.info("topic '%s' begins without a leader of partition %d: %s", topic.name, index, refusal)

    async def delete(self, epoch: int, name: str, owner: str | None = None, topic_id: str | None = None) -> None:
        """Remove a topic and its records; with an id, only if it is that one. Raises Refusal, MetadataError."""
        async with self._alone(name):
            snapshot = await self._look()
            topic = snapshot.ready.get(name)
            if topic is None:
                raise Refusal("not_found", NO_TOPIC)
            check_owner(topic, owner)
            if topic_id not in {None, topic.id}:
                raise Refusal("conflict", f"Topic '{name}' is another one by now: {topic.id}, and not {topic_id}.")
            try:
                await self._database.call(self._database.store.set_topic_state, epoch, topic.id, TopicState.DELETING)
            except TopicMissing as error:
                raise Refusal("not_found", NO_TOPIC) from error
            await self._steward.give(closes(topic), epoch, snapshot)
            self._steward.wake()
            await self._show()

    async def release(self, epoch: int, name: str, owner: str) -> None:
        """Have a topic belong to nobody; to say it again changes nothing. Raises Refusal, MetadataError."""
        async with self._alone(name):
            topic = (await self._look()).ready.get(name)
            if topic is None:
                raise Refusal("not_found", NO_TOPIC)
            check_owner(topic, owner)
            if topic.owner is not None:
                await self._database.call(self._database.store.configure_topic, epoch, topic.id, owner=None)
                await self._show()

    async def configure(self, epoch: int, spec: TopicSpec, kept: Collection[str] = ()) -> Topic:
        """Change what can be changed: settings, owner, more partitions. Raises Refusal, MetadataError."""
        async with self._alone(spec.name):
            topic = (await self._look()).ready.get(spec.name)
            if topic is None:
                raise Refusal("unavailable", REMOVED)
            unsaid = {name: getattr(topic, name) for name in kept}
            return await self._configure(epoch, topic, replace(spec, **unsaid))

    async def change(self, epoch: int, name: str, **changes: Any) -> Topic:  # noqa: ANN401 - as TopicSpec has them
        """Change only what is given; the rest stays as it is when its turn comes. Raises Refusal, MetadataError."""
        async with self._alone(name):
            topic = (await self._look()).ready.get(name)
            if topic is None:
                raise Refusal("not_found", NO_TOPIC)
            return await self._configure(epoch, topic, replace(spec_of(topic), **changes))

    async def _configure(self, epoch: int, topic: Topic, spec: TopicSpec) -> Topic:
        check_owner(topic, spec.owner)
        if spec.partitions < len(topic.partitions):
            text = f"Topic '{topic.name}' has {len(topic.partitions)} partitions; there can only be more."
            raise Refusal("conflict", text)
        await self._set(epoch, topic, spec)
        if spec.partitions > len(topic.partitions):
            await self._grow(epoch, topic.id, spec.partitions)
        return (await self._look()).ready.get(spec.name, topic)

    async def _set(self, epoch: int, topic: Topic, spec: TopicSpec) -> None:
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
        self._steward.wake()

    async def _grow(self, epoch: int, topic_id: str, partitions: int) -> None:
        """Add partitions. If a broker does not open its replicas, the steward sees to it."""
        async with self._turn:
            snapshot = await self._look()
            topic = snapshot.topics_by_id[topic_id]
            count = len(topic.partitions)
            check_room(snapshot, partitions - count)
            members = _placed(lambda: grow(topic, partitions, snapshot.brokers, snapshot.topics))
            added = tuple(Partition(index=count + at, epoch=1, members=of) for at, of in enumerate(members))
            await self._database.call(self._database.store.add_partitions, epoch, topic.id, added)
        await self._steward.give(opens(topic, added), epoch, snapshot)
        await self._start(epoch, topic, added, snapshot)

    async def _look(self) -> Snapshot:
        await self._view.refresh()
        if self._view.snapshot is None:
            raise Refusal("unavailable", "The metadata is not known yet; try again.")
        return self._view.snapshot

    async def _show(self) -> bool:
        """Have this manager know what was done; tell whether it does. What was done is done in any case."""
        try:
            await self._view.refresh()
        except MetadataError as error:
            logger.info("what was done is not seen here yet: %s", error)
            return False
        return True

    def _check_brokers(self, snapshot: Snapshot) -> None:
        registered = len(snapshot.brokers)  # with those that somebody has removed since
        if registered < self._brokers_min:
            text = f"{registered} of {self._brokers_min} brokers have registered so far; try again in a moment."
            raise Refusal("unavailable", text)

    @asynccontextmanager
    async def _alone(self, name: str) -> AsyncIterator[None]:
        """One thing at a time with one name."""
        lock = self._names.get(name) or asyncio.Lock()
        self._names[name] = lock
        async with lock:
            yield


def find(snapshot: Snapshot, name: str) -> Topic | None:
    """Find a topic that has a name, ready or not."""
    return next((one for one in snapshot.topics if one.name == name and one.state in _LIVE), None)


def spec_of(topic: Topic) -> TopicSpec:
    """Describe a topic as it is, for somebody who is not its owner."""
    return TopicSpec(
        name=topic.name,
        partitions=len(topic.partitions),
        replication=topic.replication,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        batch_bytes_max=topic.batch_bytes_max,
        compression=topic.compression,
    )


def check_room(snapshot: Snapshot, partitions: int, topics: int = 0) -> None:
    """Refuse what would be too many."""
    live = [topic for topic in snapshot.topics if topic.state in _LIVE]
    if len(live) + topics > TOPICS_MAX:
        raise Refusal("bad_request", f"There are {len(live)} topics; {TOPICS_MAX} is the limit.")
    total = sum(len(topic.partitions) for topic in live)
    if total + partitions > PARTITIONS_TOTAL_MAX:
        raise Refusal("bad_request", f"There are {total} partitions; {PARTITIONS_TOTAL_MAX} is the limit.")


def check_owner(topic: Topic, owner: str | None) -> None:
    """Refuse a change by somebody else than the owner."""
    if topic.owner is not None and owner != topic.owner:
        raise Refusal("conflict", f"Topic '{topic.name}' belongs to {topic.owner}; change or delete that instead.")


def opens(topic: Topic, partitions: tuple[Partition, ...]) -> tuple[Order, ...]:
    """Orders to open every replica."""
    return tuple(
        OpenReplica(
            broker=member,
            topic_id=topic.id,
            partition=one.index,
            epoch=one.epoch,
            topic=topic.name,
            members=one.members,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            batch_bytes_max=topic.batch_bytes_max,
        )
        for one in partitions
        for member in one.members
    )


def closes(topic: Topic) -> tuple[Order, ...]:
    """Orders to close every replica."""
    return tuple(
        CloseReplica(broker=member, topic_id=topic.id, partition=one.index, epoch=one.epoch)
        for one in topic.partitions
        for member in one.members
    )


def _placed(decide: Callable[[], tuple[tuple[str, ...], ...]]) -> tuple[tuple[str, ...], ...]:
    try:
        return decide()
    except CannotPlace as error:
        raise Refusal("unavailable", f"The topic cannot be placed: {error}.") from error
