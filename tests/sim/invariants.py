"""What must hold after every step. Each check raises `Violation` with words that say what is wrong."""

from collections import defaultdict
from dataclasses import dataclass

from flotilla.records import BatchHeader, split
from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.partition.reading import select_batches
from flotilla_broker.raft import Entry, Message
from flotilla_broker.raft.guards import is_majority
from flotilla_broker.raft.messages import CopyBegin, Vote, VoteRequest
from sim.broker import SimBroker
from support.history import Name


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An entry that some replica called committed."""

    term: int
    next_offset: int
    payload: bytes


class Invariants:
    """Watches a world. `metas` are the groups that it has."""

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
        self._starts: dict[tuple[bytes, int], int] = {}  # where records begin, at each index
        self._begins: dict[tuple[str, int, bytes], int] = defaultdict(int)
        self._asked: dict[bytes, int] = defaultdict(int)  # up to where somebody wanted records to go
        self._gone: dict[bytes, dict[int, int]] = defaultdict(dict)  # ... and was told that they are, by term
        self.copies = self.deletions = 0

    @property
    def elections(self) -> int:
        """How many leaders there were."""
        return len(self._leaders)

    def check(self, brokers: list[SimBroker]) -> None:
        """Check everything that can be seen from outside."""
        for broker in brokers:
            if not broker.is_changed:
                continue
            broker.is_changed = False
            for partition in broker.partitions:
                key = partition.key
                self._check_leader(broker.name, key, partition)
                self._check_term(broker.name, key, partition)
                self._check_commits(broker, key, partition)
                self._check_gone(broker.name, key, partition)
                self._durable[broker.name, key] = partition.log.durable_index
            if broker.up and broker.engine.broken:
                raise Violation(f"{broker.name} has a replica that stopped: {broker.engine.broken}")

    def _check_leader(self, name: str, key: bytes, partition: Partition) -> None:
        """One leader per term."""
        if partition.raft.is_leader:
            known = self._leaders.setdefault((key, partition.raft.term), name)
            if known != name:
                raise Violation(f"term {partition.raft.term} has two leaders, {known} and {name}")

    def _check_term(self, name: str, key: bytes, partition: Partition) -> None:
        """Terms do not go back within a life."""
        if partition.raft.term < self._terms[name, key] and partition.raft.term < partition.log.term:
            raise Violation(f"{name} went back from term {self._terms[name, key]} to {partition.raft.term}")
        self._terms[name, key] = partition.raft.term

    def _check_commits(self, broker: SimBroker, key: bytes, partition: Partition) -> None:
        """What is committed is the same everywhere and for ever, and offsets are dense."""
        life = (broker.name, broker.lives, key)
        copied = self._numbers.get(life, partition.log.number) != partition.log.number
        self._numbers[life] = partition.log.number
        before, index = self._seen.get(life, 0), partition.applied_index
        if index == before:
            return
        if index < before:
            raise Violation(f"{broker.name} took back commits: from {before} to {index}")
        if index > partition.log.durable_index and not copied:  # a copy holds what a majority has on disk
            raise Violation(f"{broker.name} committed {index}, and has only {partition.log.durable_index} on disk")
        self._seen[life] = index
        start = max(before, partition.log.anchor_index) + 1
        for at in range(start, index + 1):
            self._check_entry(broker, key, _read(partition, at))
        table = partition.producers.encode()
        if self._tables.setdefault((key, index), table) != table:
            raise Violation(f"{broker.name} knows other producers at entry {index} than another replica")
        self._check_start(broker, key, partition)

    def _check_start(self, broker: SimBroker, key: bytes, partition: Partition) -> None:
        """Where records begin is the same for all replicas at the same index, never goes back, and was asked for.

        After a restart, what the log has let go of may tell of a trim before its entry is known to be committed again.
        """
        name, index, start = broker.name, partition.applied_index, partition.start_offset
        is_exact = start > partition.log.group.first_offset
        if is_exact and self._starts.setdefault((key, index), start) != start:
            raise Violation(f"{name} begins at {start} at entry {index}, another one at {self._starts[key, index]}")
        life = (name, broker.lives, key)
        if start < self._begins[life]:
            raise Violation(f"{name} went back from first offset {self._begins[life]} to {start}")
        self._begins[life] = start
        if start > self._asked[key]:
            raise Violation(f"{name} begins at {start}, and nobody wanted more to go than up to {self._asked[key]}")

    def _check_gone(self, name: str, key: bytes, partition: Partition) -> None:
        """A leader that knows what is committed shows nothing of what was said to be gone, in its term or before."""
        if partition.raft.is_settled:
            told = max((offset for term, offset in self._gone[key].items() if term <= partition.raft.term), default=0)
            if partition.start_offset < told:
                raise Violation(f"{name} begins at {partition.start_offset}, though all up to {told} is gone")

    def asked(self, meta: ReplicaMeta, offset: int) -> None:
        """Somebody wants records below an offset to go."""
        key = meta.key.to_bytes()
        self._asked[key] = max(self._asked[key], offset)

    def check_deleted(self, meta: ReplicaMeta, partition: Partition, offset: int) -> None:
        """Records were said to be gone. What is left can be read from there on, without a gap."""
        self.deletions += 1
        told = self._gone[meta.key.to_bytes()]
        told[partition.raft.term] = max(offset, told.get(partition.raft.term, 0))
        at, log, number = partition.start_offset, partition.log.log, partition.log.number
        if at == partition.committed_offset:
            return
        entries = log.read(number, log.find_offset(number, at), bytes_max=4096)
        for data in select_batches(entries, at, partition.applied_index, 4096):
            for batch in split(data):
                header = BatchHeader.from_bytes(batch)
                if not header.base_offset <= at < header.next_offset:
                    raise Violation(f"at offset {at}, behind deleted records, lies a batch of {header.base_offset}")
                at = header.next_offset
        if at == partition.start_offset:
            raise Violation(f"nothing can be read at {at}, and records go to {partition.committed_offset}")

    def _check_entry(self, broker: SimBroker, key: bytes, entry: Entry) -> None:
        found = Committed(entry.term, entry.next_offset, bytes(entry.payload))
        known = self._committed[key].setdefault(entry.index, found)
        if known != found:
            raise Violation(f"{broker.name} committed another entry {entry.index}: {found}, known is {known}")
        before = self._committed[key].get(entry.index - 1)
        if before is not None and before.next_offset > entry.next_offset:
            raise Violation(f"offsets go back at entry {entry.index}")

    def check_acknowledged(self, meta: ReplicaMeta, offset: int, names: list[Name]) -> None:
        """What is acknowledged was committed, at that offset, and is on a majority of disks."""
        key = meta.key.to_bytes()
        mark = f"{names[0].producer} {names[0].number} ".encode()
        committed = self._committed[key]
        for index in sorted(committed, reverse=True):
            if mark in committed[index].payload:
                break
        else:
            raise Violation(f"{names[0]} was acknowledged at {offset}, and nobody committed it")
        before = committed.get(index - 1)
        if not (before is None or before.next_offset <= offset) or offset >= committed[index].next_offset:
            raise Violation(f"{names[0]} was acknowledged at {offset}, and lies in entry {index}")
        holders = sum(self._durable.get((name, key), 0) >= index for name in meta.members)
        if not is_majority(holders, len(meta.members)):
            raise Violation(f"{names[0]} was acknowledged, and is on {holders} disks")

    def saw(self, sender: str, to: str, key: bytes, message: Message) -> None:
        """A member votes once in a term, whatever happens to it in between."""
        if isinstance(message, CopyBegin):
            self.copies += 1
        if isinstance(message, Vote | VoteRequest):
            choice = sender if isinstance(message, VoteRequest) else to
            known = self._votes.setdefault((sender, key, message.term), choice)
            if known != choice:
                raise Violation(f"{sender} voted in term {message.term} for {known} and for {choice}")


def _read(partition: Partition, index: int) -> Entry:
    (entry,) = partition.log.log.read(partition.log.number, index, bytes_max=1, count_max=1)
    return Entry.from_log(entry)
