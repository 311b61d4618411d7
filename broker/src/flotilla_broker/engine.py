"""All replicas of one broker, on one log: routes messages, delays those that need a flush, schedules groups.

Like the groups it has no thread, clock or socket. A shell (`server.py`, or the simulation) passes events to it, and
calls `run` after them, and at `deadline` at the latest.

Flush before sending, for all groups: replies, votes and requests for votes leave when every frame that was queued
before them is durable.

A replica waits until `admit` returns True for its group: meanwhile it handles no message, starts no election, and so
neither votes nor replies. Then it does not vote until `may_vote` returns True, or until it has caught up with a leader.
"""

import heapq
import logging
from collections import deque
from collections.abc import Callable, Collection
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from flotilla.producers.errors import ProducerError
from flotilla_broker.log import Durable, Entry, Log, LogError
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.partition.meta import GroupKey, ReplicaMeta, type_of
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import Message, RaftConfig, RaftError, RaftGroup
from flotilla_broker.raft.port import ReadDone
from flotilla_broker.raft.snapshot_receive import UNFINISHED

logger = logging.getLogger(__name__)


class ReplicaMetaInvalid(Exception):
    """The metadata of a replica cannot be decoded, for example because a later version wrote it.

    The broker does not start: without the replica, managers would order an empty one, which could vote twice in a term.
    """


class ReplicaBroken(Exception):
    """The replica is out of service: its group is quarantined, or an unexpected error stopped it.

    It is not replaced; the other replicas continue. After an unexpected error, a restart of the broker starts it again.
    """


class Network(Protocol):
    """Sends messages to other brokers."""

    def send(self, peer: str, key: bytes, message: Message) -> None:
        """Send a message to the same group on another broker; it may be lost."""

    def is_writable(self, peer: str) -> bool:
        """Whether the connection can take more than a small message."""


class Reader(Protocol):
    """Reads entries from disk without blocking."""

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Pass entries to `done`, now or later; None if they were trimmed."""


class _UnflushedMessage(NamedTuple):
    lsn: int
    peer: str
    key: bytes
    message: Message


class _Port:
    """The I/O of one group."""

    def __init__(self, engine: "Engine", key: bytes) -> None:
        self._engine = engine
        self._key = key

    def send(self, peer: str, message: Message, *, after_flush: bool) -> None:
        self._engine.send(peer, self._key, message, after_flush=after_flush)

    def is_writable(self, peer: str) -> bool:
        return self._engine.network.is_writable(peer)

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        def finish(entries: list[Entry] | None) -> None:
            done(entries)
            self._engine.schedule(self._key)

        self._engine.reader.read(number, index, bytes_max, finish)


class Engine:
    """The replicas of a broker."""

    def __init__(
        self,
        log: Log,
        network: Network,
        reader: Reader,
        *,
        me: str,
        config: PartitionConfig,
        raft_config: RaftConfig,
        clock_ms: Callable[[], int],
        random_float: Callable[[], float],
        admit: Callable[[Collection[str]], bool] = lambda _: True,
        may_vote: Callable[[Collection[str]], bool] = lambda _: True,
    ) -> None:
        """`admit` returns whether a replica of a group may take part, `may_vote` whether it may vote at once."""
        self.log = log
        self.network = network
        self.reader = reader
        self.me = me
        self.partitions: dict[bytes, Partition] = {}
        # By topic and partition; the newest partition epoch. A topic has two names: its own, and `id:` with its id.
        self.names: dict[tuple[str, int], Partition] = {}
        self.broken: dict[bytes, tuple[ReplicaMeta, str]] = {}  # replicas out of service, and the reason
        self.rejected = 0  # invalid messages
        self.waiting: dict[bytes, None] = {}  # replicas that may not take part yet; ordered
        self._config = config
        self._raft_config = raft_config
        self._clock_ms = clock_ms
        self._random_float = random_float
        self._admit = admit
        self._may_vote = may_vote
        self._is_halted = False
        self._connected: set[str] = set()
        self._by_number: dict[int | None, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        self._unflushed: deque[_UnflushedMessage] = deque()
        self._scheduled: dict[bytes, None] = {}  # groups with work; ordered, without duplicates
        self._timers: list[tuple[float, bytes]] = []
        self._timer_of: dict[bytes, float] = {}

    # -- replicas -----------------------------------------------------------------------------------------

    def recover(self, now: float) -> None:
        """Start the replicas in the log. Incomplete snapshots are dropped. Raises ReplicaMetaInvalid."""
        for number, group in list(self.log.groups.items()):
            if group.meta == UNFINISHED:
                self.log.drop_group(number)
                continue
            if type_of(group.meta) == "broker":
                continue  # identity and addresses of this broker, see `identity.py`
            self._start(_read_meta(number, group.meta), number, now)

    def open(self, meta: ReplicaMeta, now: float) -> Partition:
        """Start a new replica, or update the metadata of the existing one.

        A replica out of service stays so: an empty one in its place could vote twice in a term.
        """
        key = meta.key.to_bytes()
        partition = self.partitions.get(key)
        if key in self.broken:
            raise ReplicaBroken(f"replica on this broker is out of service: {self.broken[key][1]}")
        if partition is None:
            self._start(meta, self.log.create_group(meta.to_bytes()), now)
            if key in self.broken:
                raise ReplicaBroken(f"replica cannot be started: {self.broken[key][1]}")
        elif partition.meta != meta:
            self.log.set_meta(partition.log.number, meta.to_bytes())
            partition.meta = meta
        return self.partitions[key]

    def _start(self, meta: ReplicaMeta, number: int, now: float) -> None:
        key = meta.key.to_bytes()
        try:
            partition = Partition(
                meta,
                self.log,
                number,
                _Port(self, key),
                me=self.me,
                config=self._config,
                raft_config=self._raft_config,
                clock_ms=self._clock_ms,
                random_float=self._random_float,
                now=now,
            )
        except (LogError, RaftError, ProducerError) as error:
            logger.error("cannot start replica replica=%s error=%r", meta.key, str(error))  # noqa: TRY400 - expected: no traceback
            self.broken[key] = (meta, str(error))
            return
        self.partitions[key] = partition
        self._update_names(meta)
        self._set_number(key, number)
        self.waiting[key] = None
        self._try_admit(key, now)

    def admit_waiting(self, now: float) -> None:
        """Let replicas take part, and vote, that may do so by now."""
        for key in list(self.waiting):
            self._try_admit(key, now)
        for partition in self.partitions.values():
            if not partition.raft.may_vote:
                partition.raft.may_vote = self._may_vote(partition.meta.members)

    @property
    def has_caught_up(self) -> bool:
        """Whether all replicas take part, and may vote."""
        return not self.waiting and all(partition.raft.may_vote for partition in self.partitions.values())

    def _try_admit(self, key: bytes, now: float) -> None:
        partition = self.partitions[key]
        if not self._admit(partition.meta.members):
            return
        del self.waiting[key]
        partition.raft.may_vote = self._may_vote(partition.meta.members)
        for peer in sorted(self._connected):
            partition.raft.connect(now, peer)
        self._set_timer(key, partition)
        self.schedule(key)

    def _update_names(self, meta: ReplicaMeta) -> None:
        """Update which replica the names of a topic refer to."""
        started = self.partitions.get(meta.key.to_bytes())
        for name in meta.names:
            if started is not None and (name, meta.partition) not in self.names:
                self.names[name, meta.partition] = started
                continue
            found = [p for p in self.partitions.values() if p.meta.partition == meta.partition and name in p.meta.names]
            if found:
                self.names[name, meta.partition] = max(found, key=lambda partition: partition.meta.epoch)
            else:
                self.names.pop((name, meta.partition), None)

    def _set_number(self, key: bytes, number: int) -> None:
        """Record a group's number in the log; it changes when a snapshot replaces the group."""
        old = self._numbers.get(key)
        if old != number:
            self._by_number.pop(old, None)
            self._by_number[number], self._numbers[key] = key, number

    def drop(self, key: GroupKey, reason: str) -> None:
        """Remove a replica and its records, even if it is out of service."""
        data = key.to_bytes()
        if data in self.broken:
            del self.broken[data]
            for number in [n for n, group in self.log.groups.items() if _key_of(group.meta) == key]:
                self.log.drop_group(number)
            return
        partition = self.partitions.pop(data)
        self.waiting.pop(data, None)
        self._update_names(partition.meta)
        partition.close(reason)
        self.log.drop_group(partition.log.number)

    # -- events -------------------------------------------------------------------------------------------

    def connect(self, now: float, peer: str) -> None:
        """Handle a new connection to another broker."""
        self._connected.add(peer)
        for key, partition in list(self.partitions.items()):
            if peer in partition.raft.peers and key not in self.waiting:
                self._isolate(key, partition, lambda raft: raft.connect(now, peer))
                self.schedule(key)

    def disconnect(self, now: float, peer: str) -> None:
        """Handle the end of the connection to another broker."""
        self._connected.discard(peer)
        for key, partition in list(self.partitions.items()):
            if peer in partition.raft.peers and key not in self.waiting:
                self._isolate(key, partition, lambda raft: raft.disconnect(now, peer))
                self._set_timer(key, partition)

    def writable(self, peer: str) -> None:
        """Continue to send to another broker, whose connection is writable again."""
        for key, partition in self.partitions.items():
            if peer in partition.raft.peers and partition.raft.is_leader:
                self.schedule(key)

    def receive(self, now: float, peer: str, key: bytes, message: Message) -> None:
        """Handle a message of another broker for one group."""
        partition = self.partitions.get(key)
        if partition is None or key in self.waiting or self._is_halted:
            return
        try:
            partition.raft.receive(now, peer, message)
        except RaftError as error:
            self.rejected += 1
            logger.warning("message rejected replica=%s peer=%s error=%r", _show(key), peer, str(error))
        except Exception as error:  # noqa: BLE001 - the state may be inconsistent: stop the replica
            self._take_out_of_service(key, partition, error)
        self.schedule(key)

    def _take_out_of_service(self, key: bytes, partition: Partition, error: Exception) -> None:
        """Take a replica out of service: after an unexpected error its state may be inconsistent."""
        expected = isinstance(error, LogError)
        logger.error(
            "replica out of service replica=%s error=%r", _show(key), str(error), exc_info=None if expected else error
        )
        reason = str(error) if expected else f"{type(error).__name__}: {error}"
        del self.partitions[key]
        self.waiting.pop(key, None)
        self._update_names(partition.meta)
        self.broken[key] = (partition.meta, reason)
        partition.close(reason)

    def flushed(self, now: float, durable: Durable) -> None:
        """Send the messages that waited for a flush, and update commit indexes."""
        if self._is_halted:
            return
        while self._unflushed and self._unflushed[0].lsn <= durable.lsn:
            waiting = self._unflushed.popleft()
            self.network.send(waiting.peer, waiting.key, waiting.message)
        for number in durable.indexes:
            key = self._by_number.get(number)
            partition = self.partitions.get(key) if key is not None else None
            if key is not None and partition is not None:
                self._isolate(key, partition, lambda raft: raft.durable(now))
                self.schedule(key)

    def _isolate(self, key: bytes, partition: Partition, act: Callable[[RaftGroup], None]) -> None:
        """Pass an event to one group; an error takes only this group out of service."""
        try:
            act(partition.raft)
        except Exception as error:  # noqa: BLE001 - as in `receive`
            self._take_out_of_service(key, partition, error)

    def campaign(self, now: float, key: bytes) -> None:
        """Let a replica start a pre-vote at once, and an election if a majority would vote for it."""
        if key in self.waiting:
            return
        self._isolate(key, self.partitions[key], lambda raft: raft.campaign(now))
        self.schedule(key)

    def take_out_of_service(self, number: int, error: Exception) -> None:
        """Take a replica out of service because its log cannot be read."""
        key = self._by_number.get(number)
        partition = self.partitions.get(key) if key is not None else None
        if key is not None and partition is not None:
            self._take_out_of_service(key, partition, error)

    def halt(self) -> None:
        """Stop all work and send nothing more, because the broker is about to exit."""
        self._is_halted = True
        self._unflushed.clear()
        self._scheduled.clear()

    def schedule(self, key: bytes) -> None:
        """Run a group at the next `run`."""
        self._scheduled[key] = None

    def send(self, peer: str, key: bytes, message: Message, *, after_flush: bool) -> None:
        """Send a message, at once or after the flush that covers everything logged so far."""
        if self._is_halted:
            return
        lsn = self.log.last_lsn
        if after_flush and lsn > self.log.durable_lsn:
            self._unflushed.append(_UnflushedMessage(lsn, peer, key, message))
        else:
            self.network.send(peer, key, message)

    # -- scheduling ---------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether any group is scheduled."""
        return bool(self._scheduled)

    @property
    def deadline(self) -> float | None:
        """When to call `run` at the latest."""
        return self._timers[0][0] if self._timers else None

    def run(self, now: float) -> None:
        """Run the scheduled groups: propose queued appends, send entries, start elections."""
        if self._is_halted:
            return
        self._take_timers(now)
        scheduled, self._scheduled = self._scheduled, {}
        for key in scheduled:
            partition = self.partitions.get(key)
            if partition is None or key in self.waiting:
                continue
            try:
                if partition.has_work:
                    partition.propose()
                more = partition.raft.run(now)
            except Exception as error:  # noqa: BLE001 - as above
                self._take_out_of_service(key, partition, error)
                continue
            self._set_number(key, partition.log.number)
            if more or partition.has_work:
                self.schedule(key)
            self._set_timer(key, partition)

    def _take_timers(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, key = heapq.heappop(self._timers)
            if self._timer_of.get(key) != at:
                continue  # replaced by an earlier timer
            del self._timer_of[key]
            partition = self.partitions.get(key)
            if partition is not None and partition.raft.deadline <= now:
                self.schedule(key)
            elif partition is not None:
                self._set_timer(key, partition)

    def _set_timer(self, key: bytes, partition: Partition) -> None:
        """Set a timer at the group's deadline. Deadlines mostly move later: a timer that fires early is set again."""
        at = partition.raft.deadline
        if at < self._timer_of.get(key, inf):
            self._timer_of[key] = at
            heapq.heappush(self._timers, (at, key))


def _read_meta(number: int, data: bytes) -> ReplicaMeta:
    """Decode the metadata of a replica; raises ReplicaMetaInvalid."""
    try:
        return ReplicaMeta.from_bytes(data)
    except msgspec.DecodeError as error:
        raise ReplicaMetaInvalid(
            f"cannot decode the metadata of the replica in group {number} of the log: {error}; was it written by a "
            f"later version? Start that version again"
        ) from error


def _key_of(meta_bytes: bytes) -> GroupKey | None:
    """Return the key of a replica from the metadata of its group; None if it is not a replica, or invalid."""
    try:
        return ReplicaMeta.from_bytes(meta_bytes).key if type_of(meta_bytes) == "replica" else None
    except msgspec.DecodeError:
        return None


def _show(key: bytes) -> str:
    return str(GroupKey.from_bytes(key))
