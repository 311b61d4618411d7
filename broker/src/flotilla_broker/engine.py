"""All replicas of one broker, over one log: routes messages, holds back what is not durable yet, gives turns.

Like the groups it has no thread, no clock and no socket. A shell (`server.py`, or a simulation) tells it what
happened, calls `turn` soon after, and at `deadline` at the latest.

Guard D is here, in one place for all groups: a message that promises something leaves when every frame that was
queued before it is durable.
"""

import heapq
import logging
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

import msgspec

from flotilla.producers.errors import ProducerError
from flotilla_broker.log import Durable, Entry, Log, LogError
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.partition.meta import GroupKey, ReplicaMeta, kind_of
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import Message, RaftConfig, RaftError, RaftGroup
from flotilla_broker.raft.copying import UNFINISHED
from flotilla_broker.raft.port import ReadDone

logger = logging.getLogger(__name__)


class ReplicaBroken(Exception):
    """The replica was taken out of service. It has to be replaced by one on another broker, in a new epoch."""


class Network(Protocol):
    """The way to other brokers."""

    def send(self, peer: str, key: bytes, message: Message) -> None:
        """Send a message to the same group on another broker, or lose it."""

    def is_writable(self, peer: str) -> bool:
        """Tell whether there is room on the connection for more than a small message."""


class Reader(Protocol):
    """Reads entries from the disk without holding up anybody."""

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Hand entries to `done`, perhaps later; None if they are gone."""


class _Held(NamedTuple):
    lsn: int
    peer: str
    key: bytes
    message: Message


class _Port:
    """One group's way out."""

    def __init__(self, engine: "Engine", key: bytes) -> None:
        self._engine = engine
        self._key = key

    def send(self, peer: str, message: Message, *, held: bool) -> None:
        self._engine.send(peer, self._key, message, held=held)

    def is_writable(self, peer: str) -> bool:
        return self._engine.network.is_writable(peer)

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        def finish(entries: list[Entry] | None) -> None:
            done(entries)
            self._engine.touch(self._key)

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
        chance: Callable[[], float],
    ) -> None:
        self.log = log
        self.network = network
        self.reader = reader
        self.me = me
        self.partitions: dict[bytes, Partition] = {}
        # By topic and partition, of several epochs the newest. A topic has two names, its own and `id:` with its id.
        self.names: dict[tuple[str, int], Partition] = {}
        self.broken: dict[bytes, tuple[ReplicaMeta, str]] = {}  # replicas that cannot run, and why
        self.refused = 0  # messages that broke a rule
        self._config = config
        self._raft_config = raft_config
        self._clock_ms = clock_ms
        self._chance = chance
        self._is_halted = False
        self._connected: set[str] = set()
        self._by_number: dict[int | None, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        self._held: deque[_Held] = deque()
        self._dirty: dict[bytes, None] = {}  # in order, each once
        self._timers: list[tuple[float, bytes]] = []
        self._timer_of: dict[bytes, float] = {}

    # -- replicas -----------------------------------------------------------------------------------------

    def recover(self, now: float) -> None:
        """Start the replicas that the log knows. Copies that were under way are dropped."""
        for number, group in list(self.log.groups.items()):
            if group.meta == UNFINISHED:
                self.log.drop_group(number)
                continue
            if kind_of(group.meta) == "broker":
                continue
            try:
                meta = ReplicaMeta.from_bytes(group.meta)
            except msgspec.DecodeError as error:
                logger.error("group %d stays as it is: what it says of itself cannot be read: %s", number, error)  # noqa: TRY400
                continue
            self._start(meta, number, now)

    def open(self, meta: ReplicaMeta, now: float) -> Partition:
        """Start a replica that is new here, or return the one that is there, with what is new in its note.

        One that is out of service stays so: an empty one in its place would vote in terms in which it has voted.
        """
        key = meta.key.to_bytes()
        partition = self.partitions.get(key)
        if key in self.broken:
            raise ReplicaBroken(f"the replica on this broker is out of service: {self.broken[key][1]}")
        if partition is None:
            self._start(meta, self.log.create_group(meta.to_bytes()), now)
            if key in self.broken:
                raise ReplicaBroken(f"the replica cannot be started: {self.broken[key][1]}")
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
                chance=self._chance,
                now=now,
            )
        except (LogError, RaftError, ProducerError) as error:
            logger.error("replica %s cannot run: %s", meta.key, error)  # noqa: TRY400 - it is not a surprise
            self.broken[key] = (meta, str(error))
            return
        self.partitions[key] = partition
        self._name(meta)
        self._note_number(key, number)
        for peer in sorted(self._connected):
            partition.raft.connect(now, peer)
        self._set_timer(key, partition)
        self.touch(key)

    def _name(self, meta: ReplicaMeta) -> None:
        """Find out which replica a topic's names and a partition stand for."""
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

    def _note_number(self, key: bytes, number: int) -> None:
        """A group's number in the log changes when a copy takes its place."""
        old = self._numbers.get(key)
        if old != number:
            self._by_number.pop(old, None)
            self._by_number[number], self._numbers[key] = key, number

    def drop(self, key: GroupKey, reason: str) -> None:
        """Remove a replica and its records, also one that is out of service."""
        data = key.to_bytes()
        if data in self.broken:
            del self.broken[data]
            for number in [n for n, group in self.log.groups.items() if _key_in(group.meta) == key]:
                self.log.drop_group(number)
            return
        partition = self.partitions.pop(data)
        self._name(partition.meta)
        partition.close(reason)
        self.log.drop_group(partition.log.number)

    # -- what happens -------------------------------------------------------------------------------------

    def connect(self, now: float, peer: str) -> None:
        """A connection to another broker was made."""
        self._connected.add(peer)
        for key, partition in list(self.partitions.items()):
            if peer in partition.raft.peers:
                self._guard(key, partition, lambda raft: raft.connect(now, peer))
                self.touch(key)

    def disconnect(self, now: float, peer: str) -> None:
        """The connection to another broker broke."""
        self._connected.discard(peer)
        for key, partition in list(self.partitions.items()):
            if peer in partition.raft.peers:
                self._guard(key, partition, lambda raft: raft.disconnect(now, peer))
                self._set_timer(key, partition)

    def writable(self, peer: str) -> None:
        """There is room again on the connection to another broker."""
        for key, partition in self.partitions.items():
            if peer in partition.raft.peers and partition.raft.is_leader:
                self.touch(key)

    def receive(self, now: float, peer: str, key: bytes, message: Message) -> None:
        """Take a message from another broker, for one group."""
        partition = self.partitions.get(key)
        if partition is None or self._is_halted:
            return
        try:
            partition.raft.receive(now, peer, message)
        except RaftError as error:
            self.refused += 1
            logger.warning("%s: a message from %s was refused: %s", _show(key), peer, error)
        except Exception as error:  # noqa: BLE001 - whatever it was, this replica must not go on half way
            self._break(key, partition, error)
        self.touch(key)

    def _break(self, key: bytes, partition: Partition, error: Exception) -> None:
        """Take a replica out of service: after an error half way, what it would promise could not be trusted."""
        expected = isinstance(error, LogError)
        logger.error("replica %s stops: %s", _show(key), error, exc_info=None if expected else error)
        reason = str(error) if expected else f"{type(error).__name__}: {error}"
        del self.partitions[key]
        self._name(partition.meta)
        self.broken[key] = (partition.meta, reason)
        partition.close(reason)

    def flushed(self, now: float, durable: Durable) -> None:
        """A flush has ended: let go what waited for it, and see what is committed now."""
        if self._is_halted:
            return
        while self._held and self._held[0].lsn <= durable.lsn:
            held = self._held.popleft()
            self.network.send(held.peer, held.key, held.message)
        for number in durable.indexes:
            key = self._by_number.get(number)
            partition = self.partitions.get(key) if key is not None else None
            if key is not None and partition is not None:
                self._guard(key, partition, lambda raft: raft.durable(now))
                self.touch(key)

    def _guard(self, key: bytes, partition: Partition, act: Callable[[RaftGroup], None]) -> None:
        """Let something happen to one group, which must not concern the others if it goes wrong."""
        try:
            act(partition.raft)
        except Exception as error:  # noqa: BLE001 - as in `receive`
            self._break(key, partition, error)

    def stand(self, now: float, key: bytes) -> None:
        """Let a replica ask for an election at once."""
        self._guard(key, self.partitions[key], lambda raft: raft.stand(now))
        self.touch(key)

    def stop_group(self, number: int, error: Exception) -> None:
        """Take a replica out of service whose log cannot be read any more."""
        key = self._by_number.get(number)
        partition = self.partitions.get(key) if key is not None else None
        if key is not None and partition is not None:
            self._break(key, partition, error)

    def halt(self) -> None:
        """Say and do nothing any more: this broker has to end, and must not promise anything until then."""
        self._is_halted = True
        self._held.clear()
        self._dirty.clear()

    def touch(self, key: bytes) -> None:
        """Give a group a turn."""
        self._dirty[key] = None

    def send(self, peer: str, key: bytes, message: Message, *, held: bool) -> None:
        """Send a message, now or when all that was logged so far is durable."""
        if self._is_halted:
            return
        lsn = self.log.last_lsn
        if held and lsn > self.log.durable_lsn:
            self._held.append(_Held(lsn, peer, key, message))
        else:
            self.network.send(peer, key, message)

    # -- turns --------------------------------------------------------------------------------------------

    @property
    def wants_turn(self) -> bool:
        """Tell whether there is something to do at once."""
        return bool(self._dirty)

    @property
    def deadline(self) -> float | None:
        """When to give a turn at the latest."""
        return self._timers[0][0] if self._timers else None

    def turn(self, now: float) -> None:
        """Do what is due: queued appends become entries, entries go to followers, elections begin."""
        if self._is_halted:
            return
        self._take_timers(now)
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            partition = self.partitions.get(key)
            if partition is None:
                continue
            try:
                if partition.wants_turn:
                    partition.propose()
                more = partition.raft.run(now)
            except Exception as error:  # noqa: BLE001 - as above
                self._break(key, partition, error)
                continue
            self._note_number(key, partition.log.number)
            if more or partition.wants_turn:
                self.touch(key)
            self._set_timer(key, partition)

    def _take_timers(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, key = heapq.heappop(self._timers)
            if self._timer_of.get(key) != at:
                continue  # an earlier one was set later
            del self._timer_of[key]
            partition = self.partitions.get(key)
            if partition is not None and partition.raft.deadline <= now:
                self.touch(key)
            elif partition is not None:
                self._set_timer(key, partition)

    def _set_timer(self, key: bytes, partition: Partition) -> None:
        """Make sure that a timer goes off in time. One that comes too early looks again: deadlines mostly move on."""
        at = partition.raft.deadline
        if at < self._timer_of.get(key, inf):
            self._timer_of[key] = at
            heapq.heappush(self._timers, (at, key))


def _key_in(note: bytes) -> GroupKey | None:
    """Find out which replica a group's note is about; an older version of this broker may have written it."""
    try:
        return ReplicaMeta.from_bytes(note).key if kind_of(note) == "replica" else None
    except msgspec.DecodeError:
        return None


def _show(key: bytes) -> str:
    return str(GroupKey.from_bytes(key))
