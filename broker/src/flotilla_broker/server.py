"""A broker: the engine on a loop, with a log, connections to other brokers, and time.

A thin shell. Whatever happens is told to the engine at once and followed by a turn, in which messages leave, at the
end of the same turn of the loop: so many events share one flush and one frame per peer.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextvars import Context
from math import inf

from flotilla_broker.access import KeptAccess
from flotilla_broker.engine import Engine
from flotilla_broker.identity import BrokerAddress, Identity, open_home
from flotilla_broker.links import Greeting, Links, unpack
from flotilla_broker.log import Durable, Entry, EntryDamaged, GroupQuarantined, Log, LogDriver, LogError
from flotilla_broker.partition.meta import GroupKey, ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.peers import AddressBook, PeerNetwork
from flotilla_broker.raft import NotLeader
from flotilla_broker.raft.port import ReadDone
from flotilla_broker.settings import Settings

logger = logging.getLogger(__name__)

_HAND_OVER_S = 5.0
_CLEAN_UP_S = 5.0


class ReplicaClosed(Exception):
    """The replica was here and was removed: with it, this broker's votes in that group."""


class Broker:
    """One broker process. Made and used on the loop; `on_failure` is called once if it cannot go on."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        identity: Identity,
        access: KeptAccess | None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.settings = settings
        self.access = access  # None: callers are not checked
        self.identity = identity
        self.log = log
        self.links = Links(self._on_room)
        self.engine = Engine(
            log,
            self.links,
            self,
            me=identity.id,
            config=settings.partition_config,
            raft_config=settings.raft_config,
            clock_ms=_now_ms,
            chance=random.Random().random,  # noqa: S311 - spreads elections, guards nothing
        )
        self.book = AddressBook()
        self.peers = PeerNetwork(
            identity.id,
            settings.secret,
            self.book,
            on_connected=self._on_connected,
            on_disconnected=self._on_disconnected,
            on_frame=self._on_frame,
            on_writable=self.links.writable,
            config=settings.peer_config,
            tls=settings.peer_tls,
        )
        self.links.attach(self.peers)
        self.is_recovered = self.is_stopping = False
        self.is_registered = not settings.managers  # a manager has heard of this start
        self.address = settings.advertise(settings.port, settings.peer_port)
        self.on_flush: Callable[[float], None] = lambda _: None
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._driver = LogDriver(log, self._on_durable, self._fail)
        self._greeted: set[str] = set()  # connected, and known to be who they were
        self._turn_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._durable_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._clean_up_timer = self._loop.call_later(_CLEAN_UP_S, self._clean_up)

    @classmethod
    def open(cls, settings: Settings, on_failure: Callable[[BaseException], None]) -> "Broker":
        """Open the data folder."""
        log, identity = open_home(settings.data, settings.log_config, secrets.token_bytes)
        access = KeptAccess(settings.data, settings.secret, _now_ms) if settings.is_auth_on else None
        return cls(settings, log, identity, access, on_failure)

    async def start(self, port: int) -> None:
        """Start the replicas that the folder holds, listen to other brokers and dial them. Clients come to `port`."""
        self.engine.recover(self._loop.time())
        self.is_recovered = True
        self._follow_brokers()
        await self.durable()  # others remember this start once they hear of it
        await self.peers.start(self.settings.peer_host, self.settings.peer_port)
        self.address = self.settings.advertise(port, self.peers.port)
        self.wake()

    def stop_serving(self) -> None:
        """Promise nothing any more, and answer everybody who waits: what is under way ends in an unknown outcome."""
        self.is_stopping = True
        self.engine.halt()
        for partition in self.engine.partitions.values():
            partition.close("this broker stops")

    async def close(self) -> None:
        """Let go of everything, and sync it."""
        self._clean_up_timer.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self.peers.close()
        for task in self._tasks:
            task.cancel()
        await self._driver.close()

    async def hand_over_all(self) -> None:
        """Let others lead: a leader that leaves without a word costs everybody an election's timeout."""
        deadline = self._loop.time() + _HAND_OVER_S
        for partition in self.engine.partitions.values():
            try:
                partition.raft.hand_over(self._loop.time())
            except NotLeader:
                continue
            self.engine.touch(partition.key)
        self.wake()
        while pending := [p for p in self.engine.partitions.values() if _hands_over(p)]:
            left = deadline - self._loop.time()
            if left <= 0:
                logger.warning("%d leaderships could not be handed over in time", len(pending))
                return
            changed = asyncio.Event()
            for partition in pending:
                partition.watch(changed.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left)

    # -- turns --------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Give the engine a turn, at the end of this turn of the loop."""
        if not self._turn_planned:
            self._turn_planned = True
            self._loop.call_soon(self._turn, context=Context())  # a turn is not about the request that caused it

    def _turn(self) -> None:
        self._turn_planned = False
        try:
            self.engine.turn(self._loop.time())
            self.links.flush()
        except Exception as error:  # noqa: BLE001 - a broker that goes on without its engine would help nobody
            self._fail(error)
            return
        if self.log.last_lsn > self.log.durable_lsn:
            self._driver.wake()
        if self.engine.wants_turn:
            self.wake()
        self._set_timer()

    def _set_timer(self) -> None:
        """Wake up in time. A timer that comes too early costs one turn; deadlines mostly move on."""
        at = self.engine.deadline
        if at is None or at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._on_timer, context=Context()), at

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        self._turn()

    def _clean_up(self) -> None:
        self._clean_up_timer = self._loop.call_later(_CLEAN_UP_S, self._clean_up)
        for key, partition in list(self.engine.partitions.items()):
            try:
                partition.clean_up()
            except LogError as error:
                logger.warning("%s: nothing could be cleaned up: %s", partition.meta.key, error)
            self.engine.touch(key)
        self.wake()

    # -- what happens -------------------------------------------------------------------------------------

    def _on_durable(self, durable: Durable) -> None:
        self.on_flush(self._driver.flush_s)
        self.engine.flushed(self._loop.time(), durable)
        while self._durable_waiters and self._durable_waiters[0][0] <= durable.lsn:
            _, future = self._durable_waiters.pop(0)
            if not future.done():
                future.set_result(None)
        self._turn()

    def _fail(self, error: BaseException) -> None:
        logger.critical("this broker has to end: %s", error, exc_info=error)
        self.engine.halt()
        self._on_failure(error)

    def _on_connected(self, peer: str) -> None:
        self.links.greet(peer, Greeting(self.identity.start, self.identity.start_of(peer)))

    def _on_disconnected(self, peer: str) -> None:
        if peer in self._greeted:
            self._greeted.discard(peer)
            self.engine.disconnect(self._loop.time(), peer)
            self.wake()

    def _on_frame(self, peer: str, data: memoryview) -> None:
        frame = unpack(data)
        if isinstance(frame, Greeting):
            self._on_greeting(peer, frame)
        elif peer in self._greeted:
            now = self._loop.time()
            for key, message in frame.parcels:
                self.engine.receive(now, peer, key, message)
        self.wake()

    def _on_greeting(self, peer: str, greeting: Greeting) -> None:
        if self.identity.start.is_older_than(greeting.yours):
            reason = f"broker {peer} saw start {greeting.yours.number} of it, and this is {self.identity.start.number}"
            self.identity.give_up(f"the store is older than it was: {reason}")
            self._fail(RuntimeError(f"the store is older than it was: {reason}; the next start takes a new id"))
        elif self.identity.saw(peer, greeting.mine):
            logger.error("broker %s has an older store than it had: nothing that it says is heeded", peer)
        elif peer not in self._greeted:
            self._greeted.add(peer)
            self.engine.connect(self._loop.time(), peer)

    def _on_room(self, peer: str) -> None:
        self.engine.writable(peer)
        self.wake()

    # -- for the engine and the API -----------------------------------------------------------------------

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Read entries for a follower without holding up the loop."""
        task = self._loop.create_task(self._read(number, index, bytes_max, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        try:
            entries = await self._driver.read(number, index, bytes_max=bytes_max)
        except (EntryDamaged, GroupQuarantined) as error:
            self.engine.stop_group(number, error)
        except LogError as error:
            logger.info("group %d: entry %d cannot be read for a follower: %s", number, index, error)
            done(None)
        else:
            done(entries)
        self.wake()

    async def read_entries(self, number: int, index: int, bytes_max: int) -> list[Entry]:
        """Read entries for a client; raises LogError. Damage takes the replica out of service."""
        try:
            return await self._driver.read(number, index, bytes_max=bytes_max)
        except (EntryDamaged, GroupQuarantined) as error:
            self.engine.stop_group(number, error)
            self.wake()
            raise

    def hand_over(self, partition: Partition, target: str | None) -> None:
        """Make another member leader; raises NotLeader."""
        partition.raft.hand_over(self._loop.time(), target)
        self.engine.touch(partition.key)
        self.wake()

    def stand(self, partition: Partition) -> None:
        """Let a replica ask for an election at once, if the group has no leader."""
        self.engine.stand(self._loop.time(), partition.key)
        self.wake()

    def leave(self, partition: Partition) -> None:
        """Hand a leadership over, if somebody can take it."""
        try:
            self.hand_over(partition, None)
        except NotLeader as error:
            logger.info("%s: leadership stays here: %s", partition.meta.key, error)

    def open_replica(self, meta: ReplicaMeta) -> Partition:
        """Start a replica, or return the one that is there; its retention may have changed.

        Raises:
            ReplicaBroken: it is out of service.
            ReplicaClosed: it was here, and was removed.
        """
        if self.identity.is_closed(meta.key.to_bytes()):
            raise ReplicaClosed(f"a replica {meta.key} was removed here; it can come back only in a new epoch")
        partition = self.engine.open(meta, self._loop.time())
        self.wake()
        return partition

    def drop_replica(self, key: GroupKey) -> bool:
        """Remove a replica and its records; return whether there was one."""
        if key.to_bytes() not in self.engine.broken and key.to_bytes() not in self.engine.partitions:
            return False
        self.identity.close(key.to_bytes())  # an empty one in its place would vote in terms in which it has voted
        self.engine.drop(key, "the replica was removed")
        self.wake()
        return True

    def unready_reasons(self) -> list[str]:
        """Say what speaks against sending clients here; nothing if the broker is ready."""
        if not self.is_recovered:
            return ["the log is being recovered"]
        reasons = [] if self.is_registered else ["no manager has accepted a heartbeat since the start"]
        return reasons + [
            f"{partition.meta.key} is {lag} entries behind its leader"
            for partition in self.engine.partitions.values()
            if (lag := partition.raft.lag) > self.settings.ready_lag_max
        ]

    async def durable(self) -> None:
        """Return when everything that was logged so far is durable."""
        if self.log.durable_lsn >= self.log.last_lsn:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._durable_waiters.append((self.log.last_lsn, future))
        self.wake()
        await future

    def set_brokers(self, brokers: Mapping[str, BrokerAddress]) -> None:
        """Take over where the brokers are reached; raises AddressInvalid, and changes nothing then."""
        addresses = {name: (address.peer_host, address.peer_port) for name, address in brokers.items()}
        Context().run(self.book.update, addresses)  # dialing goes on when the order is long forgotten
        self.identity.set_brokers(brokers)
        self.wake()

    def _follow_brokers(self) -> None:
        self.book.update(
            {name: (address.peer_host, address.peer_port) for name, address in self.identity.brokers.items()}
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _hands_over(partition: Partition) -> bool:
    leadership = partition.raft.leadership
    return leadership is not None and leadership.handover is not None
