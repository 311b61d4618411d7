"""A broker: the engine on an event loop, with a log, connections to other brokers, and timers.

A thin shell. Each event is passed to the engine at once. The engine runs at the end of the same iteration of the event
loop, so that all events of an iteration share one flush and one frame per peer.
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

from flotilla.limits import PARTITION_EPOCH_FIRST
from flotilla_broker.access import StoredAccess
from flotilla_broker.engine import Engine
from flotilla_broker.identity import BrokerAddress, Identity, open_data_folder
from flotilla_broker.log import Durable, Entry, EntryDamaged, GroupQuarantined, Log, LogDriver, LogError
from flotilla_broker.partition.meta import GroupKey, ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.peer_batches import Greeting, PeerBatches, decode_frame
from flotilla_broker.peers import AddressBook, PeerNetwork
from flotilla_broker.raft import NotLeader
from flotilla_broker.raft.port import ReadDone
from flotilla_broker.settings import Settings
from flotilla_broker.volume_check import DuplicateBroker, OlderCopy, VolumeCheck

logger = logging.getLogger(__name__)

_TRANSFER_S = 5.0
_RETENTION_S = 5.0
_STORE_LSNS_S = 1.0
_MANAGER_S = 5.0  # wait for the answer of a manager to the first heartbeat


class ReplicaClosed(Exception):
    """The replica was removed from this broker, and with it the broker's votes in that group."""


class EpochUnsupported(Exception):
    """A replica of a later partition epoch needs the records of the earlier ones, which no command provides yet."""


class Broker:
    """One broker process. Create and use it on the event loop; `on_failure` is called once if it must exit."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        identity: Identity,
        access: StoredAccess | None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.settings = settings
        self.access = access  # None: authentication is off
        self.identity = identity
        self.log = log
        self.peer_batches = PeerBatches(self._on_writable, lambda: identity.reported_lsn)
        self.volume_check = VolumeCheck(identity, has_managers=bool(settings.managers))
        self.engine = Engine(
            log,
            self.peer_batches,
            self,
            me=identity.id,
            config=settings.partition_config,
            raft_config=settings.raft_config,
            clock_ms=_now_ms,
            random_float=random.Random().random,  # noqa: S311 - spreads elections, guards nothing
            admit=self.volume_check.admit,
            may_vote=self.volume_check.may_vote,
        )
        self.book = AddressBook()
        self.peers = PeerNetwork(
            identity.id,
            settings.secret,
            self.book,
            on_connected=self._on_connected,
            on_disconnected=self._on_disconnected,
            on_frame=self._on_frame,
            on_writable=self.peer_batches.writable,
            start=identity.start.token,
            config=settings.peer_config,
            tls=settings.peer_tls,
        )
        self.peer_batches.attach(self.peers)
        self.is_recovered = self.is_stopping = self.is_failed = False
        self.is_registered = not settings.managers  # a manager accepted a heartbeat since the start
        self.address = settings.advertise(settings.port, settings.peer_port)
        self.on_flush: Callable[[float], None] = lambda _: None
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._driver = LogDriver(log, self._on_durable, self._fail)
        self._greeted: set[str] = set()  # connected, with a log that is not an older copy
        self._run_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._durable_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._retention_timer = self._loop.call_later(_RETENTION_S, self._apply_retention)
        self._lsns_timer = self._loop.call_later(_STORE_LSNS_S, self._store_lsns)
        self._manager_timer = self._loop.call_later(_MANAGER_S, self._on_no_manager)

    @classmethod
    def open(cls, settings: Settings, on_failure: Callable[[BaseException], None]) -> "Broker":
        """Open the data folder."""
        log, identity = open_data_folder(settings.data, settings.log_config, secrets.token_bytes)
        access = StoredAccess(settings.data, settings.secret, _now_ms) if settings.is_auth_on else None
        return cls(settings, log, identity, access, on_failure)

    async def start(self, port: int) -> None:
        """Start the replicas in the data folder, listen for other brokers and dial them. Clients use `port`.

        Raises:
            ReplicaMetaInvalid: this version cannot decode a replica in the data folder.
            OSError: the port for other brokers cannot be used.
        """
        self.engine.recover(self._loop.time())
        self.is_recovered = True
        self._load_address_book()
        await self.durable()  # other brokers remember this start once they see it
        await self.peers.start(self.settings.peer_host, self.settings.peer_port)
        self.address = self.settings.advertise(port, self.peers.port)
        self.wake()

    def stop_serving(self) -> None:
        """Stop the engine, and complete all appends in progress with an unknown outcome."""
        self.is_stopping = True
        self.engine.halt()
        for partition in self.engine.partitions.values():
            partition.close("the broker is shutting down")

    async def close(self) -> None:
        """Close all connections, and sync and close the log."""
        self._retention_timer.cancel()
        self._lsns_timer.cancel()
        self._manager_timer.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self.peers.close()
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(LogError):  # the log has failed, or the identity was given up: no normal end
            self.identity.record_close()
        await self._driver.close()

    async def transfer_all_leaderships(self) -> None:
        """Transfer the leadership of all partitions, so that no partition waits for an election timeout."""
        deadline = self._loop.time() + _TRANSFER_S
        for partition in self.engine.partitions.values():
            try:
                partition.raft.transfer_leadership(self._loop.time())
            except NotLeader:
                continue
            self.engine.schedule(partition.key)
        self.wake()
        while pending := [p for p in self.engine.partitions.values() if _is_transferring(p)]:
            left = deadline - self._loop.time()
            if left <= 0:
                logger.warning("leadership transfer timed out partitions=%d timeout_s=%g", len(pending), _TRANSFER_S)
                return
            changed = asyncio.Event()
            for partition in pending:
                partition.watch(changed.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left)

    # -- scheduling ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Run the engine at the end of this iteration of the event loop."""
        if not self._run_planned:
            self._run_planned = True
            self._loop.call_soon(self._run_engine, context=Context())  # without the request id of the caller

    def _run_engine(self) -> None:
        self._run_planned = False
        try:
            self.engine.run(self._loop.time())
            self.peer_batches.flush()
        except Exception as error:  # noqa: BLE001 - a broker without its engine must exit
            self._fail(error)
            return
        if self.log.last_lsn > self.log.durable_lsn:
            self._driver.wake()
        if self.engine.has_work:
            self.wake()
        self._set_timer()

    def _set_timer(self) -> None:
        """Set a timer at the engine's deadline. Deadlines mostly move later: an early timer costs one run."""
        at = self.engine.deadline
        if at is None or at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._on_timer, context=Context()), at

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        self._run_engine()

    def _apply_retention(self) -> None:
        self._retention_timer = self._loop.call_later(_RETENTION_S, self._apply_retention)
        for key, partition in list(self.engine.partitions.items()):
            try:
                partition.apply_retention()
            except LogError as error:
                logger.warning("retention failed replica=%s error=%r", partition.meta.key, str(error))
            self.engine.schedule(key)
        self.wake()

    def _store_lsns(self) -> None:
        """Store the LSNs up to which the logs of other brokers are durable, so that a restart does not lose them."""
        if self.is_failed:
            return
        self._lsns_timer = self._loop.call_later(_STORE_LSNS_S, self._store_lsns)
        before = self.log.last_lsn
        self.identity.store_lsns()
        if self.volume_check.is_copy and self.engine.has_caught_up:
            self.identity.record_caught_up()
        if self.log.last_lsn != before:
            self.wake()

    # -- events -------------------------------------------------------------------------------------------

    def _on_durable(self, durable: Durable) -> None:
        self.on_flush(self._driver.flush_s)
        self.engine.flushed(self._loop.time(), durable)
        while self._durable_waiters and self._durable_waiters[0][0] <= durable.lsn:
            _, future = self._durable_waiters.pop(0)
            if not future.done():
                future.set_result(None)
        self._run_engine()

    def _fail(self, error: BaseException) -> None:
        logger.critical("broker failed, exiting error=%r", str(error), exc_info=error)
        self.is_failed = True
        self.engine.halt()
        self._on_failure(error)

    def _on_connected(self, peer: str) -> None:
        if not self.is_failed:  # a broker that exits says nothing about others
            self.peer_batches.greet(peer, self.volume_check.greeting(peer))

    def _on_disconnected(self, peer: str) -> None:
        if peer in self._greeted:
            self._greeted.discard(peer)
            self.engine.disconnect(self._loop.time(), peer)
            self.wake()

    def _on_frame(self, peer: str, data: memoryview) -> None:
        frame = decode_frame(data)
        if self.is_failed:
            return
        if isinstance(frame, Greeting):
            self._on_greeting(peer, frame)
        elif peer in self._greeted:
            self.identity.record_lsn(peer, frame.lsn)
            now = self._loop.time()
            for key, message in frame.messages:
                self.engine.receive(now, peer, key, message)
        self.wake()

    def _on_greeting(self, peer: str, greeting: Greeting) -> None:
        try:
            is_current = self.volume_check.on_greeting(peer, greeting)
        except OlderCopy as error:
            self.give_up_identity(str(error))
            return
        except DuplicateBroker:
            self.stop_as_duplicate()
            return
        if not is_current:
            logger.error("peer has an older copy of its log, ignoring its messages peer=%s", peer)
        elif peer not in self._greeted:
            self._greeted.add(peer)
            self.engine.connect(self._loop.time(), peer)
            self.engine.admit_waiting(self._loop.time())

    def give_up_identity(self, reason: str) -> None:
        """Exit: the data folder is an older copy. The next start sets it aside, and takes a new id.

        A broker whose start others have confirmed only exits: another process with its id must be running.
        """
        if self.volume_check.is_vouched:
            self.stop_as_duplicate()
            return
        self.identity.retire(reason)
        self._fail(RuntimeError(f"{reason}; the next start sets the log aside and takes a new id"))

    def _on_no_manager(self) -> None:
        if not self.is_failed:
            self.volume_check.on_no_manager()
            self.engine.admit_waiting(self._loop.time())
            self.wake()

    def on_manager_answer(self) -> None:
        """Wait for the verdict of managers, because one has answered."""
        self._manager_timer.cancel()

    def confirm_start(self) -> None:
        """Let the replicas take part: a manager has confirmed that the data folder is no older copy."""
        self.volume_check.on_confirmed()
        self.engine.admit_waiting(self._loop.time())
        self.wake()

    def stop_as_duplicate(self) -> None:
        """Exit: another process with the id of this broker is running."""
        self._fail(
            RuntimeError(
                f"another broker with id {self.identity.id} is running: data folder {self.settings.data} is a copy of "
                "its folder. Start this broker on an empty folder, or stop the other one"
            )
        )

    def _on_writable(self, peer: str) -> None:
        self.engine.writable(peer)
        self.wake()

    # -- for the engine and the API -----------------------------------------------------------------------

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Read entries for a follower without blocking the event loop."""
        task = self._loop.create_task(self._read(number, index, bytes_max, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        try:
            entries = await self._driver.read(number, index, bytes_max=bytes_max)
        except (EntryDamaged, GroupQuarantined) as error:
            self.engine.take_out_of_service(number, error)
        except LogError as error:
            logger.info("cannot read entry for a follower group=%d index=%d error=%r", number, index, str(error))
            done(None)
        else:
            done(entries)
        self.wake()

    async def read_entries(self, number: int, index: int, bytes_max: int) -> list[Entry]:
        """Read entries for a client; raises LogError. Damage takes the replica out of service."""
        try:
            return await self._driver.read(number, index, bytes_max=bytes_max)
        except (EntryDamaged, GroupQuarantined) as error:
            self.engine.take_out_of_service(number, error)
            self.wake()
            raise

    def transfer_leadership(self, partition: Partition, target: str | None) -> None:
        """Transfer leadership; raises NotLeader."""
        partition.raft.transfer_leadership(self._loop.time(), target)
        self.engine.schedule(partition.key)
        self.wake()

    def campaign(self, partition: Partition) -> None:
        """Let a replica start an election at once if the group has no leader."""
        self.engine.campaign(self._loop.time(), partition.key)
        self.wake()

    def try_transfer_leadership(self, partition: Partition) -> None:
        """Transfer leadership if a member is connected; log it otherwise."""
        try:
            self.transfer_leadership(partition, None)
        except NotLeader as error:
            logger.info("cannot transfer leadership replica=%s error=%r", partition.meta.key, str(error))

    def open_replica(self, meta: ReplicaMeta) -> Partition:
        """Create a replica, or update the settings of an existing one.

        Raises:
            ReplicaBroken: the replica is out of service.
            ReplicaClosed: the replica was removed from this broker.
            EpochUnsupported: a new replica is not of the first partition epoch.
        """
        key = meta.key.to_bytes()
        if meta.epoch != PARTITION_EPOCH_FIRST and key not in self.engine.partitions and key not in self.engine.broken:
            raise EpochUnsupported(
                f"replica {meta.key} was not created: an empty replica of a later epoch could be elected without the "
                f"records of the earlier one; this version creates replicas of epoch {PARTITION_EPOCH_FIRST} only"
            )
        if self.identity.is_closed(key):
            raise ReplicaClosed(
                f"replica {meta.key} was removed from this broker; it can return only in a new partition epoch"
            )
        partition = self.engine.open(meta, self._loop.time())
        self.wake()
        return partition

    def drop_replica(self, key: GroupKey) -> bool:
        """Remove a replica and its records; return whether there was one."""
        if key.to_bytes() not in self.engine.broken and key.to_bytes() not in self.engine.partitions:
            return False
        self.identity.close(key.to_bytes())  # an empty replica could vote twice in a term
        self.engine.drop(key, "replica was removed")
        self.wake()
        return True

    def unready_reasons(self) -> list[str]:
        """Return the reasons why this broker is not ready; empty if it is."""
        if not self.is_recovered:
            return ["recovering the log"]
        reasons = [] if self.is_registered else ["no manager has accepted a heartbeat since the start"]
        if self.engine.waiting:
            needed = "managers and more brokers" if self.identity.is_copy else "managers or more brokers"
            kind = "a copy of the files of a running broker" if self.identity.is_copy else "the latest one"
            reasons.append(
                f"{len(self.engine.waiting)} replicas wait until {needed} confirm that the data folder is not an older "
                f"copy; it looks like {kind}"
            )
        return reasons + [
            f"replica {partition.meta.key} lags {lag} entries behind its leader"
            for partition in self.engine.partitions.values()
            if (lag := partition.raft.lag) > self.settings.ready_lag_max
        ]

    async def durable(self) -> None:
        """Wait until everything logged so far is durable."""
        if self.log.durable_lsn >= self.log.last_lsn:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._durable_waiters.append((self.log.last_lsn, future))
        self.wake()
        await future

    def set_brokers(self, brokers: Mapping[str, BrokerAddress]) -> None:
        """Set the addresses of all brokers; raises AddressInvalid and changes nothing then."""
        addresses = {name: (address.peer_host, address.peer_port) for name, address in brokers.items()}
        Context().run(self.book.update, addresses)  # dialing outlives the request
        self.identity.set_brokers(brokers)
        self.wake()

    def _load_address_book(self) -> None:
        self.book.update(
            {name: (address.peer_host, address.peer_port) for name, address in self.identity.brokers.items()}
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_transferring(partition: Partition) -> bool:
    leadership = partition.raft.leadership
    return leadership is not None and leadership.transfer is not None
