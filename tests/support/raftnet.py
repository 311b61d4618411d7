"""Brokers that a test steps by hand: which message arrives, when a flush ends, what time it is.

The real engine, groups and log run on a simulated disk. Nothing happens by itself: messages stay on the wire until the
test delivers or drops them, a disk that is `slow` ends a flush only on `flush`, and time moves by `wait`.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from flotilla.records import NO_PRODUCER, Batch, check, decode, encode, split
from flotilla_broker.engine import Engine
from flotilla_broker.log import DiskFull, Log, LogConfig, LogError, open_log
from flotilla_broker.log.flush import Flush
from flotilla_broker.partition.appends import Appended, Outcome
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.partition.entries import RECORDS
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.raft import Entry, Message, RaftConfig, RaftGroup, decode_message, encode_message
from flotilla_broker.raft.messages import Vote
from flotilla_broker.raft.port import ReadDone
from flotilla_broker.raft.snapshot_receive import UNFINISHED
from support.simdisk import SimDisk

LOG = LogConfig(segment_bytes=16384, entry_bytes_max=3000)
RAFT = RaftConfig(heartbeat_s=0.3, election_s_min=1.5, election_s_max=3.0, append_bytes_max=1200, window_bytes=4000)
PARTITION = PartitionConfig(entry_bytes=1000)
_ROUNDS_MAX = 5000


class WireMessage(NamedTuple):
    """A message on the wire."""

    sender: str
    to: str
    key: bytes
    data: bytes

    @property
    def message(self) -> Message:
        """The decoded message."""
        return decode_message(self.data)


@dataclass
class Sent:
    """A submitted batch and its outcomes; a second outcome fails the test."""

    batch: bytes
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome; None while the append is open."""
        assert len(self.outcomes) <= 1, f"two outcomes: {self.outcomes}"
        return self.outcomes[0] if self.outcomes else None

    @property
    def offset(self) -> int:
        """The base offset; the append must have succeeded."""
        assert isinstance(self.outcome, Appended), f"not appended: {self.outcome}"
        return self.outcome.base_offset


class Node:
    """One broker with one replica."""

    def __init__(self, net: "Net", name: str) -> None:
        self.net = net
        self.name = name
        self.disk = SimDisk()
        self.up = False
        self.slow = False  # flushes end when `flush` is called
        self.slow_reads = False  # reads end when `read_all` is called
        self.blocked: set[str] = set()  # congested connections
        self.skew_ms = 0
        self.random_float = random.Random(name).random
        self.is_admitted = True  # its replica may take part
        self.may_vote = True  # without having caught up with a leader
        self.log: Log
        self.engine: Engine
        self._reads: deque[Callable[[], None]] = deque()
        self._ballast = 0

    # -- lifecycle ----------------------------------------------------------------------------------------

    def start(self, *, turn: bool = True) -> None:
        """Start with the content of the disk; without `turn`, only load it."""
        self.up = True
        self._reads.clear()
        self.log = open_log(self.disk, self.net.log_config, random_u32=lambda: 7)
        self.engine = Engine(
            self.log,
            self,
            self,
            me=self.name,
            config=self.net.partition_config,
            raft_config=self.net.raft_config,
            clock_ms=lambda: int(self.net.now * 1000) + self.skew_ms,
            random_float=self.random_float,
            admit=lambda _: self.is_admitted,
            may_vote=lambda _: self.may_vote,
        )
        self.engine.recover(self.net.now)
        self.engine.open(self.net.meta, self.net.now)
        if turn:
            self.turn()

    def crash(self) -> None:
        """Lose power: unsynced data and all connections are lost."""
        self.net.isolate(self)
        self.up = False
        self.disk.reboot(random.Random(0), survive=0)

    def fill_disk(self) -> None:
        """Fill the disk up to the reserve, with entries of an unrelated group."""
        self.disk.capacity_bytes = 0
        self._ballast = self.log.create_group(UNFINISHED)
        for size in (2000, 200, 1):
            while self._fits(size):
                index = self.log.group(self._ballast).last_index + 1
                self.log.append(self._ballast, index, 1, bytes(size), 0, 0)
                self.flush_all()

    def _fits(self, size: int) -> bool:
        try:
            self.log.admit(size)
        except DiskFull:
            return False
        return True

    def free_disk(self) -> None:
        """Free the space again."""
        self.disk.capacity_bytes = 1 << 40
        self.log.drop_group(self._ballast)
        for _ in range(20):
            self.flush_all()

    # -- state --------------------------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        """The replica of this broker."""
        return self.engine.partitions[self.net.key]

    @property
    def raft(self) -> RaftGroup:
        """The member of the group on this broker."""
        return self.partition.raft

    @property
    def entries(self) -> list[Entry]:
        """All entries of the log."""
        log, found, index = self.partition.log, [], self.partition.log.anchor_index + 1
        while index <= log.last_index:
            found += [Entry.from_log(entry) for entry in self.log.read(log.number, index, bytes_max=1 << 20)]
            index = found[-1].index + 1
        return found

    @property
    def shape(self) -> list[tuple[int, int]]:
        """Index and term of every entry."""
        return [(entry.index, entry.term) for entry in self.entries]

    @property
    def batches(self) -> list[Batch]:
        """All batches in the log, committed or not."""
        found = []
        for entry in self.entries:
            if entry.payload[:1] == RECORDS:
                found += [decode(bytes(batch)) for batch in split(entry.payload[1:])]
        return found

    @property
    def values(self) -> list[bytes]:
        """All records in the log, committed or not."""
        return [value for batch in self.batches for value in batch.values]

    @property
    def unflushed(self) -> list[Message]:
        """Messages that wait for a flush before they are sent."""
        return [held.message for held in self.engine._unflushed]

    # -- duties of the shell ------------------------------------------------------------------------------

    def turn(self) -> None:
        """Run everything that is due; flushes begin, and end unless the disk is slow."""
        for _ in range(_ROUNDS_MAX):
            self.engine.run(self.net.now)
            if not self.engine.has_work and not (not self.slow and self.flush()):
                return
        raise AssertionError(f"{self.name} does not come to rest")

    def flush(self) -> bool:
        """Begin and end one flush; return whether there was something to flush."""
        flush = self.begin_flush()
        if flush is None:
            return False
        self.end_flush(flush)
        return True

    def begin_flush(self) -> Flush | None:
        """Run a background job, then begin a flush."""
        job = self.log.next_job()
        if job is not None:
            job.run()
            self.log.end_job(job)
        return self.log.begin_flush()

    def end_flush(self, flush: Flush) -> None:
        """End a flush."""
        flush.run()
        self.engine.flushed(self.net.now, self.log.end_flush(flush))

    def flush_all(self) -> None:
        """Flush everything, and let the broker act on it."""
        while self.flush():
            self.engine.run(self.net.now)
        self.turn()

    # -- duties of clients --------------------------------------------------------------------------------

    def submit(
        self,
        *values: bytes,
        producer: bytes = NO_PRODUCER,
        epoch: int = 0,
        sequence: int = 0,
        then: Callable[[Outcome], None] | None = None,
    ) -> Sent:
        """Queue a batch, without running the engine."""
        batch = encode(list(values), producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        sent = Sent(bytes(batch))

        def done(outcome: Outcome) -> None:
            sent.outcomes.append(outcome)
            if then is not None:
                then(outcome)

        self.partition.submit(check(batch), batch, done)
        self.engine.schedule(self.net.key)
        return sent

    def append(self, *values: bytes, producer: bytes = NO_PRODUCER, epoch: int = 0, sequence: int = 0) -> Sent:
        """Submit a batch and run the engine: the batch becomes an entry."""
        sent = self.submit(*values, producer=producer, epoch=epoch, sequence=sequence)
        self.turn()
        return sent

    # -- interfaces of the engine -------------------------------------------------------------------------

    def send(self, peer: str, key: bytes, message: Message) -> None:
        """Put a message on the wire, encoded."""
        sent = WireMessage(self.name, peer, key, encode_message(message))
        self.net.sent.append(sent)
        if self.net.is_connected(self.name, peer):
            self.net.wire.append(sent)

    def is_writable(self, peer: str) -> bool:
        """Return whether a connection accepts large messages."""
        return peer not in self.blocked

    def read(self, number: int, index: int, bytes_max: int, done: ReadDone) -> None:
        """Read entries, now or when the test calls `read_all`."""

        def finish() -> None:
            try:
                entries = self.log.read(number, index, bytes_max=bytes_max)
            except LogError:
                done(None)
            else:
                done(entries)

        if self.slow_reads:
            self._reads.append(finish)
        else:
            finish()

    def read_all(self) -> int:
        """Complete the pending reads; return their number."""
        reads, self._reads = self._reads, deque()
        for finish in reads:
            finish()
        return len(reads)


class Net:
    """Some brokers, the wire between them, and the time."""

    def __init__(
        self,
        members: int = 3,
        *,
        raft: RaftConfig = RAFT,
        partition: PartitionConfig = PARTITION,
        log: LogConfig = LOG,
    ) -> None:
        self.raft_config = raft
        self.partition_config = partition
        self.log_config = log
        self.now = 1000.0
        self.wire: deque[WireMessage] = deque()
        self.sent: list[WireMessage] = []  # all messages ever sent
        self._links: set[frozenset[str]] = set()
        names = [f"{at + 1:032x}" for at in range(members)]
        self.meta = ReplicaMeta("t", bytes(15) + b"\1", 0, 1, tuple(names))
        self.key = self.meta.key.to_bytes()
        self.nodes = [Node(self, name) for name in names]
        self._by_name = {node.name: node for node in self.nodes}
        for node in self.nodes:
            node.start()
        self.connect_all()

    # -- connections --------------------------------------------------------------------------------------

    def is_connected(self, one: str, other: str) -> bool:
        """Return whether two brokers are connected."""
        return frozenset((one, other)) in self._links

    def connect(self, one: Node, other: Node) -> None:
        """Connect two brokers, unless they are connected."""
        if one.up and other.up and one is not other and not self.is_connected(one.name, other.name):
            self._links.add(frozenset((one.name, other.name)))
            for here, there in ((one, other), (other, one)):
                here.engine.connect(self.now, there.name)
                here.turn()

    def connect_all(self) -> None:
        """Connect all brokers that are not connected."""
        for one in self.nodes:
            for other in self.nodes:
                self.connect(one, other)

    def disconnect(self, one: Node, other: Node) -> None:
        """Break a connection; its messages in flight are lost."""
        if self.is_connected(one.name, other.name):
            self._links.remove(frozenset((one.name, other.name)))
            self.wire = deque(p for p in self.wire if {p.sender, p.to} != {one.name, other.name})
            one.engine.disconnect(self.now, other.name)
            other.engine.disconnect(self.now, one.name)

    def isolate(self, node: Node) -> None:
        """Break all connections of one broker."""
        for other in self.nodes:
            if other is not node:
                self.disconnect(node, other)

    # -- messages -----------------------------------------------------------------------------------------

    def take(
        self, sender: Node | None = None, to: Node | None = None, kind: type | tuple[type, ...] = object
    ) -> list[WireMessage]:
        """Take messages off the wire, in order: to deliver them later, twice, or never."""
        taken, left = list[WireMessage](), deque[WireMessage]()
        for sent in self.wire:
            wanted = (
                (sender is None or sent.sender == sender.name)
                and (to is None or sent.to == to.name)
                and isinstance(sent.message, kind)
            )
            (taken if wanted else left).append(sent)
        self.wire = left
        return taken

    def count_sent(
        self, sender: Node | None = None, to: Node | None = None, kind: type | tuple[type, ...] = object
    ) -> int:
        """Count the messages that a broker has ever sent, delivered or not."""
        return sum(
            (sender is None or sent.sender == sender.name)
            and (to is None or sent.to == to.name)
            and isinstance(sent.message, kind)
            for sent in self.sent
        )

    def deliver(self, *messages: WireMessage) -> None:
        """Deliver messages, and run the receiver after each."""
        for sent in messages:
            node = self._by_name[sent.to]
            if node.up:
                node.engine.receive(self.now, sent.sender, sent.key, sent.message)
                node.turn()

    def inject(self, sender: Node, to: Node, message: Message) -> None:
        """Deliver a message that the sender did not send."""
        self.deliver(WireMessage(sender.name, to.name, self.key, encode_message(message)))

    def settle(self, *, without: tuple[Node, ...] = ()) -> None:
        """Deliver messages, and those that result from them, until the wire is empty; messages to some brokers stay."""
        names = {node.name for node in without}
        for _ in range(_ROUNDS_MAX):
            sent = next((sent for sent in self.wire if sent.to not in names), None)
            if sent is None:
                return
            self.wire.remove(sent)
            self.deliver(sent)
        raise AssertionError("messages never come to an end")

    # -- time ---------------------------------------------------------------------------------------------

    def wait(self, seconds: float, *, without: tuple[Node, ...] = ()) -> None:
        """Let time pass: timers fire and messages are delivered, except at brokers that are paused."""
        until = self.now + seconds
        for _ in range(_ROUNDS_MAX):
            self.settle(without=without)
            awake = [node for node in self.nodes if node.up and node not in without]
            at = min((at for node in awake if (at := node.engine.deadline) is not None), default=inf)
            if at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            for node in awake:
                node.turn()
        raise AssertionError("time does not pass")

    def elect(self, node: Node) -> Node:
        """Make a broker the leader as soon as the election timeouts of all others have passed."""
        self._end_quiescence()
        self.now += self.raft_config.election_s_max + 1
        for other in self.nodes:
            if other.up and other is not node:
                other.raft._core.election_at = self.now + self.raft_config.election_s_max
                other.turn()
        self.campaign(node)
        self.settle()
        assert node.raft.has_committed_in_term, "the broker was not elected"
        return node

    def _end_quiescence(self) -> None:
        """Let election timeouts pass as if the group were not quiesced."""
        for node in self.nodes:
            if node.up and node.raft.leadership is not None:
                node.raft.receive(self.now, next(iter(node.raft.peers), ""), Vote(0))
            elif node.up and node.raft.member.is_quiesced:
                node.raft.member.is_quiesced = False
                node.raft._core.election_at = self.now + self.raft_config.election_s_max

    def campaign(self, node: Node) -> None:
        """Let the election timeout of a broker pass now; its requests are on the wire then."""
        node.raft._core.election_at = self.now
        node.raft.run(self.now)
        node.turn()

    def converge(self, seconds: float = 30.0) -> Node:
        """Heal all faults; return the leader on which all members agree after a while."""
        for node in self.nodes:
            node.slow = node.slow_reads = False
            node.blocked.clear()
            if not node.up:
                node.start()
            node.read_all()
            node.flush_all()
        self.connect_all()
        self.wait(seconds)
        leaders = [node for node in self.nodes if node.raft.has_committed_in_term]
        assert len(leaders) == 1, f"{len(leaders)} leaders"
        ends = {(n.partition.log.last_index, n.partition.applied_index, n.raft.term) for n in self.nodes}
        assert len(ends) == 1, f"the logs differ: {ends}"
        assert len({tuple(node.values) for node in self.nodes}) <= 1 or any(
            n.partition.start_offset for n in self.nodes
        )
        return leaders[0]
