"""Invariants that are checked after every step. Each check raises `Violation` with a description."""

from collections import defaultdict
from dataclasses import dataclass

from flotilla.records import BatchHeader, split
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.partition.reading import select_batches
from flotilla_broker.raft import Entry, Message
from flotilla_broker.raft.guards import is_majority
from flotilla_broker.raft.messages import SnapshotBegin, Vote, VoteRequest
from sim.broker import SimBroker
from support.history import Name


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An entry that some replica has committed."""

    term: int
    next_offset: int
    payload: bytes


class Invariants:
    """Checks a simulation. `metas` are its groups."""

    def __init__(self, metas: list[ReplicaMeta]) -> None:
        self._metas = metas
        self._leaders: dict[tuple[bytes, int], str] = {}
        self._votes: dict[tuple[str, bytes, int], str] = {}
        self._terms: dict[tuple[str, bytes], int] = defaultdict(int)
        self._committed: dict[bytes, dict[int, Committed]] = {meta.key.to_bytes(): {} for meta in metas}
        self._seen: dict[tuple[str, int, bytes], int] = {}
        self._tables: dict[tuple[bytes, int], bytes] = {}
        self._durable: dict[tuple[str, bytes], int] = {}
        self._numbers: dict[tuple[str, int, bytes], int] = {}
        self._starts: dict[tuple[bytes, int], int] = {}  # start offset at each index
        self._begins: dict[tuple[str, int, bytes], int] = defaultdict(int)
        self._requested: dict[bytes, int] = defaultdict(int)  # highest requested start offset
        self._deleted: dict[bytes, dict[int, int]] = defaultdict(dict)  # highest acknowledged start offset, by term
        self.snapshots = self.deletions = 0

    @property
    def elections(self) -> int:
        """Number of leaders so far."""
        return len(self._leaders)

    def check(self, brokers: list[SimBroker]) -> None:
        """Check all brokers that have changed."""
        for broker in brokers:
            if not broker.is_changed:
                continue
            broker.is_changed = False
            for partition in broker.partitions:
                key = partition.key
                self._check_leader(broker.name, key, partition)
                self._check_term(broker.name, key, partition)
                self._check_commits(broker, key, partition)
                self._check_deleted(broker.name, key, partition)
                self._durable[broker.name, key] = partition.log.durable_index
            if broker.up and broker.engine.broken:
                raise Violation(f"{broker.name} has a replica that stopped: {broker.engine.broken}")

    def _check_leader(self, name: str, key: bytes, partition: Partition) -> None:
        """Check that a term has at most one leader."""
        if partition.raft.is_leader:
            known = self._leaders.setdefault((key, partition.raft.term), name)
            if known != name:
                raise Violation(f"term {partition.raft.term} has two leaders, {known} and {name}")

    def _check_term(self, name: str, key: bytes, partition: Partition) -> None:
        """Check that the term does not decrease while a process runs."""
        if partition.raft.term < self._terms[name, key] and partition.raft.term < partition.log.term:
            raise Violation(f"{name} went back from term {self._terms[name, key]} to {partition.raft.term}")
        self._terms[name, key] = partition.raft.term

    def _check_commits(self, broker: SimBroker, key: bytes, partition: Partition) -> None:
        """Check that committed entries are equal on all replicas and never change, and that offsets are contiguous."""
        life = (broker.name, broker.lives, key)
        copied = self._numbers.get(life, partition.log.number) != partition.log.number
        self._numbers[life] = partition.log.number
        before, index = self._seen.get(life, 0), partition.applied_index
        if index == before:
            return
        if index < before:
            raise Violation(f"{broker.name} took back commits: from {before} to {index}")
        if index > partition.log.durable_index and not copied:  # a snapshot contains only committed entries
            raise Violation(f"{broker.name} committed {index}, but only {partition.log.durable_index} is durable")
        self._seen[life] = index
        start = max(before, partition.log.anchor_index) + 1
        for at in range(start, index + 1):
            self._check_entry(broker, key, _read(partition, at))
        table = partition.producers.encode()
        if self._tables.setdefault((key, index), table) != table:
            raise Violation(f"{broker.name} has other producers at entry {index} than another replica")
        self._check_start(broker, key, partition)

    def _check_start(self, broker: SimBroker, key: bytes, partition: Partition) -> None:
        """Check the start offset: equal on all replicas at the same index, never decreasing, and requested.

        After a restart, trimmed entries of the log may show a trim before its entry is known to be committed again.
        """
        name, index, start = broker.name, partition.applied_index, partition.start_offset
        is_exact = start > partition.log.group.first_offset
        if is_exact and self._starts.setdefault((key, index), start) != start:
            raise Violation(f"{name} starts at {start} at entry {index}, another replica at {self._starts[key, index]}")
        life = (name, broker.lives, key)
        if start < self._begins[life]:
            raise Violation(f"{name} went back from first offset {self._begins[life]} to {start}")
        self._begins[life] = start
        if start > self._requested[key]:
            raise Violation(f"{name} starts at {start}, but deletion was requested only up to {self._requested[key]}")

    def _check_deleted(self, name: str, key: bytes, partition: Partition) -> None:
        """Check that a leader that knows its commit index shows no records that were acknowledged as deleted."""
        if partition.raft.has_committed_in_term:
            deleted = max(
                (offset for term, offset in self._deleted[key].items() if term <= partition.raft.term), default=0
            )
            if partition.start_offset < deleted:
                raise Violation(f"{name} starts at {partition.start_offset}, but records before {deleted} are deleted")

    def request_deletion(self, meta: ReplicaMeta, offset: int) -> None:
        """Record that a client requested the deletion of records before an offset."""
        key = meta.key.to_bytes()
        self._requested[key] = max(self._requested[key], offset)

    def check_deleted(self, meta: ReplicaMeta, partition: Partition, offset: int) -> None:
        """Check an acknowledged deletion: the remaining records can be read without a gap."""
        self.deletions += 1
        acknowledged = self._deleted[meta.key.to_bytes()]
        acknowledged[partition.raft.term] = max(offset, acknowledged.get(partition.raft.term, 0))
        at, log, number = partition.start_offset, partition.log.log, partition.log.number
        if at == partition.committed_offset:
            return
        entries = log.read(number, log.find_offset(number, at), bytes_max=4096)
        for data in select_batches(entries, at, partition.applied_index, 4096):
            for batch in split(data):
                header = BatchHeader.from_bytes(batch)
                if not header.base_offset <= at < header.next_offset:
                    raise Violation(f"at start offset {at} is a batch with base offset {header.base_offset}")
                at = header.next_offset
        if at == partition.start_offset:
            raise Violation(f"nothing can be read at {at}, but records up to {partition.committed_offset} exist")

    def _check_entry(self, broker: SimBroker, key: bytes, entry: Entry) -> None:
        found = Committed(entry.term, entry.next_offset, bytes(entry.payload))
        known = self._committed[key].setdefault(entry.index, found)
        if known != found:
            raise Violation(f"{broker.name} committed another entry {entry.index}: {found}, known is {known}")
        before = self._committed[key].get(entry.index - 1)
        if before is not None and before.next_offset > entry.next_offset:
            raise Violation(f"offsets go back at entry {entry.index}")

    def check_acknowledged(self, meta: ReplicaMeta, offset: int, names: list[Name]) -> None:
        """Check that an acknowledged batch is committed at its offset, and is on a majority of disks."""
        key = meta.key.to_bytes()
        mark = f"{names[0].producer} {names[0].number} ".encode()
        committed = self._committed[key]
        for index in sorted(committed, reverse=True):
            if mark in committed[index].payload:
                break
        else:
            raise Violation(f"{names[0]} was acknowledged at {offset}, but no replica committed it")
        before = committed.get(index - 1)
        if not (before is None or before.next_offset <= offset) or offset >= committed[index].next_offset:
            raise Violation(f"{names[0]} was acknowledged at {offset}, but is in entry {index}")
        holders = sum(self._durable.get((name, key), 0) >= index for name in meta.members)
        if not is_majority(holders, len(meta.members)):
            raise Violation(f"{names[0]} was acknowledged, but is only on {holders} disks")

    def observe_message(self, sender: str, to: str, key: bytes, message: Message) -> None:
        """Check that a member votes once per term, also across restarts."""
        if isinstance(message, SnapshotBegin):
            self.snapshots += 1
        if isinstance(message, Vote | VoteRequest):
            choice = sender if isinstance(message, VoteRequest) else to
            known = self._votes.setdefault((sender, key, message.term), choice)
            if known != choice:
                raise Violation(f"{sender} voted in term {message.term} for {known} and for {choice}")


def _read(partition: Partition, index: int) -> Entry:
    (entry,) = partition.log.log.read(partition.log.number, index, bytes_max=1, count_max=1)
    return Entry.from_log(entry)
