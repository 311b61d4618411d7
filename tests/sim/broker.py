"""A simulated broker: the real engine on the real log, on a simulated disk, in virtual time."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from flotilla_broker.engine import Engine
from flotilla_broker.log import EntryMissing, Log, LogConfig, LogError, open_log
from flotilla_broker.log.flush import Flush
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import Message, RaftConfig, decode_message, encode_message
from flotilla_broker.raft.port import ReadDone
from sim.clock import Clock
from sim.network import Network
from support.simdisk import Crash, SimDisk

LOG = LogConfig(segment_bytes=16384, entry_bytes_max=3000)
RAFT = RaftConfig(heartbeat_s=0.3, election_s_min=1.5, election_s_max=3.0, append_bytes_max=1200, window_bytes=4000)
PARTITION = PartitionConfig(entry_bytes=1000)
_TURNS_MAX = 1000


class Codec(NamedTuple):
    """How messages travel, and how soon a disk is done: at once, if it is a kind one."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    kind_disk: bool = False


CODEC = Codec(encode_message, decode_message)


class SimBroker:
    """One broker. `up` is its process, `disk` what outlives it."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: random.Random,
        network: Network,
        metas: list[ReplicaMeta],
        codec: Codec,
    ) -> None:
        self.name = name
        self.disk = SimDisk()
        self.lives = 0
        self.up = False
        self.paused = False
        self.sync_s = 0.001
        self.is_changed = True  # something happened to it that was not looked at yet
        self.engine: Engine
        self.log: Log
        self.on_send: Callable[[str, str, bytes, Message], None] = lambda *_: None
        self._metas = metas
        self._codec = codec
        self._clock = clock
        self._rng = rng
        self._network = network
        self._skew_ms = rng.randrange(-5000, 5000)
        self._flushing = False
        self._waiting: list[Callable[[], None]] = []  # events of a paused process
        self._woken_at: float | None = None

    @property
    def partitions(self) -> list[Partition]:
        """All replicas that run."""
        return list(self.engine.partitions.values()) if self.up else []

    def partition(self, meta: ReplicaMeta) -> Partition | None:
        """Return the replica of a group, if it runs."""
        return self.engine.partitions.get(meta.key.to_bytes()) if self.up else None

    # -- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process on what the disk has."""
        self.lives += 1
        self.is_changed = True
        self.up, self.paused, self._flushing, self._waiting = True, False, False, []
        self._woken_at = None
        self.log = open_log(self.disk, LOG, random_u32=partial(self._rng.getrandbits, 32))
        self.engine = Engine(
            self.log,
            self,
            self,
            me=self.name,
            config=PARTITION,
            raft_config=RAFT,
            clock_ms=lambda: int(self._clock.now * 1000) + self._skew_ms,
            chance=self._rng.random,
        )
        self.engine.recover(self._clock.now)
        for meta in self._metas:
            self.engine.open(meta, self._clock.now)
        self._settle()

    def stop(self, survive: float) -> None:
        """End the process at once; of what was not synced, this part may survive."""
        self.up = False
        self.disk.reboot(self._rng, survive)

    def pause(self, seconds: float) -> None:
        """Stop the process for a while; the world goes on."""
        self.paused = True
        self._clock.after(seconds, self._guard(self._resume))

    def _resume(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event()

    def _guard(self, event: Callable[[], None]) -> Callable[[], None]:
        """An event of a process dies with it."""
        life = self.lives

        def guarded() -> None:
            if self.up and self.lives == life:
                event()

        return guarded

    def happen(self, event: Callable[[], None]) -> None:
        """Let the process hear of something, when it runs."""
        if not self.up:
            return
        self.is_changed = True
        if self.paused:
            self._waiting.append(self._guard(partial(self.happen, event)))
            return
        try:
            event()
            self._settle()
        except Crash:
            self.stop(survive=0.6)
        self.is_changed = True

    # -- what a shell does --------------------------------------------------------------------------------

    def _settle(self) -> None:
        for _ in range(_TURNS_MAX):
            if not self.engine.wants_turn:
                break
            self.engine.turn(self._clock.now)
        else:
            raise AssertionError(f"{self.name} does not come to rest")
        self._start_flush()
        self._set_timer()

    def _start_flush(self) -> None:
        job = self.log.next_job()
        if job is not None:
            job.run()
            self.log.end_job(job)
        flush = None if self._flushing else self.log.begin_flush()
        if flush is not None and self._codec.kind_disk:
            self._end_flush(flush)
        elif flush is not None:
            self._flushing = True
            delay_s = self.sync_s * (0.5 + self._rng.random())
            self._clock.after(delay_s, self._guard(lambda: self.happen(lambda: self._end_flush(flush))))

    def _end_flush(self, flush: Flush) -> None:
        flush.run()
        self._flushing = False
        self.engine.flushed(self._clock.now, self.log.end_flush(flush))

    def _set_timer(self) -> None:
        at = self.engine.deadline
        if at is None or (self._woken_at is not None and self._woken_at <= at):
            return
        self._woken_at = at
        self._clock.after(max(0.0, at - self._clock.now), self._guard(lambda: self._on_timer(at)))

    def _on_timer(self, at: float) -> None:
        if self._woken_at == at:
            self._woken_at = None
            self.happen(lambda: self.engine.turn(self._clock.now))

    # -- the engine's surroundings ------------------------------------------------------------------------

    def send(self, peer: str, key: bytes, message: Message) -> None:
        """Send, in the bytes that would travel."""
        self.on_send(self.name, peer, key, message)
        self._network.send(self.name, peer, (key, self._codec.encode(message)))

    def is_writable(self, peer: str) -> bool:  # noqa: ARG002 - the window is enough here
        """Tell whether there is room on a connection."""
        return True

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Read entries, at once or a little later."""

        def finish() -> None:
            try:
                entries = self.log.read(number, index, bytes_max=bytes_max)
            except EntryMissing:
                done(None)
            except LogError:
                done(None)
            else:
                done(entries)

        if self._rng.random() < 0.5:
            finish()
        else:
            self._clock.after(0.001, self._guard(lambda: self.happen(finish)))

    # -- the network --------------------------------------------------------------------------------------

    def deliver(self, sender: str, parcel: tuple[bytes, Any]) -> None:
        """Take a message from the network."""
        key, data = parcel
        message = self._codec.decode(data)
        self.happen(lambda: self.engine.receive(self._clock.now, sender, key, message))

    def connected(self, peer: str) -> None:
        """A connection was made."""
        self.happen(lambda: self.engine.connect(self._clock.now, peer))

    def disconnected(self, peer: str) -> None:
        """A connection broke."""
        self.happen(lambda: self.engine.disconnect(self._clock.now, peer))
