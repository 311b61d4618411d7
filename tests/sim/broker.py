"""A simulated broker: the real engine and log, on a simulated disk, in virtual time."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from flotilla_broker.engine import Engine
from flotilla_broker.identity import Identity, create_identity, find_identity
from flotilla_broker.log import EntryMissing, Log, LogConfig, LogError, open_log
from flotilla_broker.log.flush import Flush
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.peer_batches import Greeting
from flotilla_broker.raft import Message, RaftConfig, decode_message, encode_message
from flotilla_broker.raft.port import ReadDone
from flotilla_broker.volume_check import DuplicateBroker, OlderCopy, VolumeCheck
from flotilla_server.broker_starts import StartReport, StartVerdict
from sim.clock import Clock
from sim.network import Network
from support.simdisk import Crash, SimDisk

LOG = LogConfig(segment_bytes=16384, entry_bytes_max=3000)
RAFT = RaftConfig(heartbeat_s=0.3, election_s_min=1.5, election_s_max=3.0, append_bytes_max=1200, window_bytes=4000)
PARTITION = PartitionConfig(entry_bytes=1000)
_TURNS_MAX = 1000
_STORE_LSNS_S = 0.3
_HEARTBEAT_S = 1.0

Evaluate = Callable[[str, StartReport], StartVerdict | None]


class Codec(NamedTuple):
    """Encoding of messages, and whether the disk is `kind`: it syncs at once."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    kind_disk: bool = False


CODEC = Codec(encode_message, decode_message)


class SimBroker:
    """One broker. `up` is its process; `disk` outlives it."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: random.Random,
        network: Network,
        metas: list[ReplicaMeta],
        codec: Codec,
        evaluate: Evaluate,
        *,
        checks_volume: bool = True,
    ) -> None:
        """`evaluate` asks managers for a verdict on a start. Without `checks_volume`, replicas take part at once."""
        self.name = name
        self.disk = SimDisk()
        self.lives = 0
        self.up = False
        self.paused = False
        self.is_retired = False  # it has given up its identity
        self.sync_s = 0.001
        self.is_changed = True  # it has changed since the last check
        self.engine: Engine
        self.log: Log
        self.identity: Identity
        self.check: VolumeCheck
        self.on_send: Callable[[str, str, bytes, Message], None] = lambda *_: None
        self._metas = metas
        self._codec = codec
        self._evaluate = evaluate
        self._checks_volume = checks_volume
        self._greeted: set[str] = set()
        self._clock = clock
        self._rng = rng
        self._network = network
        self._skew_ms = rng.randrange(-5000, 5000)
        self._flushing = False
        self._waiting: list[Callable[[], None]] = []  # events of a paused process
        self._woken_at: float | None = None

    @property
    def partitions(self) -> list[Partition]:
        """All running replicas."""
        return list(self.engine.partitions.values()) if self.up else []

    def partition(self, meta: ReplicaMeta) -> Partition | None:
        """Return the replica of a group, if it runs."""
        return self.engine.partitions.get(meta.key.to_bytes()) if self.up else None

    # -- lifecycle ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process with the content of the disk."""
        self.lives += 1
        self.is_changed = True
        self.up, self.paused, self._flushing, self._waiting = True, False, False, []
        self._woken_at = None
        self._greeted.clear()
        self.log = open_log(self.disk, LOG, random_u32=partial(self._rng.getrandbits, 32))
        self._open_identity()
        self.engine = Engine(
            self.log,
            self,
            self,
            me=self.name,
            config=PARTITION,
            raft_config=RAFT,
            clock_ms=lambda: int(self._clock.now * 1000) + self._skew_ms,
            random_float=self._rng.random,
            admit=self.check.admit if self._checks_volume else lambda _: True,
            may_vote=self.check.may_vote if self._checks_volume else lambda _: True,
        )
        self.engine.recover(self._clock.now)
        for meta in self._metas:
            self.engine.open(meta, self._clock.now)
        self._settle()
        self._clock.after(_STORE_LSNS_S, self._guard(self._store_lsns))
        self._clock.after(0.0, self._guard(self._send_heartbeat))

    def _open_identity(self) -> None:
        """Find or create the identity, and count the start. The start is durable before anybody hears of it."""

        def random_bytes(size: int) -> bytes:
            return bytes.fromhex(self.name) if size == len(self.name) // 2 else self._rng.randbytes(size)

        found = find_identity(self.log)
        if found is None:
            found = create_identity(self.log, random_bytes)
        else:
            found.count_start(random_bytes(8))
        self.identity = found
        self.check = VolumeCheck(found, has_managers=True)
        flush = self.log.begin_flush()
        assert flush is not None
        flush.run()
        self.log.end_flush(flush)

    def _store_lsns(self) -> None:
        self._clock.after(_STORE_LSNS_S, self._guard(self._store_lsns))
        self.happen(self._do_store_lsns)

    def _do_store_lsns(self) -> None:
        self.identity.store_lsns()
        if self.check.is_copy and self.engine.has_caught_up:
            self.identity.record_caught_up()

    def _send_heartbeat(self) -> None:
        self._clock.after(_HEARTBEAT_S, self._guard(self._send_heartbeat))
        self.happen(self._ask_managers)

    def _ask_managers(self) -> None:
        start = self.identity.start
        report = StartReport(
            number=start.number,
            token=start.token.hex(),
            lsn=start.lsn,
            recovered_lsn=self.identity.recovered_lsn,
            is_confirmed=self.identity.is_confirmed,
            is_copy=self.identity.is_copy,
        )
        verdict = self._evaluate(self.name, report)
        if verdict is StartVerdict.CONFIRMED:
            self.check.on_confirmed()
            self.engine.admit_waiting(self._clock.now)
        elif verdict is StartVerdict.OLDER_COPY:
            raise DuplicateBroker if self.check.is_vouched else OlderCopy

    def stop(self, survive: float) -> None:
        """Kill the process; `survive` is the share of unsynced writes that survives."""
        self.up = False
        self.disk.reboot(self._rng, survive)

    def pause(self, seconds: float) -> None:
        """Pause the process; the rest of the cluster goes on."""
        self.paused = True
        self._clock.after(seconds, self._guard(self._resume))

    def _resume(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event()

    def _guard(self, event: Callable[[], None]) -> Callable[[], None]:
        """Wrap an event so that it is dropped if the process has ended."""
        life = self.lives

        def guarded() -> None:
            if self.up and self.lives == life:
                event()

        return guarded

    def happen(self, event: Callable[[], None]) -> None:
        """Deliver an event to the process, when it runs."""
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
        except OlderCopy:
            self.is_retired = True
            self.stop(survive=1.0)
        except DuplicateBroker:
            self.stop(survive=1.0)
        self.is_changed = True

    # -- duties of the shell ------------------------------------------------------------------------------

    def _settle(self) -> None:
        for _ in range(_TURNS_MAX):
            if not self.engine.has_work:
                break
            self.engine.run(self._clock.now)
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
            self.happen(lambda: self.engine.run(self._clock.now))

    # -- interfaces of the engine -------------------------------------------------------------------------

    def send(self, peer: str, key: bytes, message: Message) -> None:
        """Send a message, encoded."""
        self.on_send(self.name, peer, key, message)
        self._network.send(self.name, peer, (key, self._codec.encode(message), self.identity.reported_lsn))

    def is_writable(self, peer: str) -> bool:  # noqa: ARG002 - the window is enough here
        """Return whether a connection accepts large messages."""
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

    def deliver(self, sender: str, sent: Greeting | tuple[bytes, Any, int]) -> None:
        """Receive a greeting or a message from the network."""
        if isinstance(sent, Greeting):
            self.happen(lambda: self._on_greeting(sender, sent))
            return
        key, data, lsn = sent
        message = self._codec.decode(data)
        self.happen(lambda: self._on_message(sender, key, message, lsn))

    def _on_greeting(self, peer: str, greeting: Greeting) -> None:
        if self.check.on_greeting(peer, greeting) and peer not in self._greeted:
            self._greeted.add(peer)
            self.engine.connect(self._clock.now, peer)
            self.engine.admit_waiting(self._clock.now)

    def _on_message(self, peer: str, key: bytes, message: Message, lsn: int) -> None:
        if peer in self._greeted:
            self.identity.record_lsn(peer, lsn)
            self.engine.receive(self._clock.now, peer, key, message)

    def connected(self, peer: str) -> None:
        """Report a new connection."""
        self.happen(lambda: self._network.greet(self.name, peer, self.check.greeting(peer)))

    def disconnected(self, peer: str) -> None:
        """Report a lost connection."""
        self.happen(lambda: self._on_disconnected(peer))

    def _on_disconnected(self, peer: str) -> None:
        if peer in self._greeted:
            self._greeted.discard(peer)
            self.engine.disconnect(self._clock.now, peer)
