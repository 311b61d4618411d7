"""A replica of a partition: the machine that a Raft group replicates.

It turns batches into entries, knows what each producer sent last, and tells how each append ended. The rules:

1. Offsets are given out in the same step in which the entry is appended, behind all that is there, committed or not.
2. Failed means refused before it was proposed, or another term's entry was committed at its index. A leader that
   steps down does not know yet: its waiters stay, and learn it when that index is committed here.
3. Whatever depends on the log (producers, first offset, the seal) is a function of it: uncommitted entries can be
   taken back, and after a restart the summary and the entries behind it give the same again.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from flotilla.producers.errors import ProducerRefused, ProducerTableMalformed
from flotilla.producers.table import ProducerTable, Retry
from flotilla.records import BatchHeader, Buffer
from flotilla_broker.log import EntryMissing, Log
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.partition.draft import Draft, Submitted
from flotilla_broker.partition.entries import (
    NOOP,
    Content,
    Expire,
    Instruction,
    Seal,
    Trim,
    encode_instruction,
    parse,
)
from flotilla_broker.partition.meta import ReplicaMeta, ReplicaState
from flotilla_broker.partition.outcomes import Appended, Done, Failed, Unknown, Waiter, tell
from flotilla_broker.partition.retention import Stretch, keep_from
from flotilla_broker.raft import Entry, EntryRefused, GroupLog, NotLeader, Port, RaftConfig, RaftGroup

logger = logging.getLogger(__name__)

_REPLAY_BYTES = 4 << 20


class Partition:
    """One replica. It belongs to one thread; `engine.py` gives it turns."""

    def __init__(
        self,
        meta: ReplicaMeta,
        log: Log,
        number: int,
        port: Port,
        *,
        me: str,
        config: PartitionConfig,
        raft_config: RaftConfig,
        clock_ms: Callable[[], int],
        chance: Callable[[], float],
        now: float,
    ) -> None:
        self.meta = meta
        self.key = meta.key.to_bytes()
        self.log = GroupLog(log, number, self)
        self._config = config
        self._clock_ms = clock_ms
        self._queue: deque[Submitted] = deque()
        self.queued_bytes = 0
        self._watchers: list[Callable[[], None]] = []
        self._waiters: dict[int, list[Waiter]] = {}
        self._instructions: dict[int, Instruction] = {}  # of entries that are not committed
        self._checked: dict[int, tuple[Entry, Content]] = {}  # entries of others that may be appended next
        self._draft: Draft | None = None  # the entry that is being appended, if it is our own
        self._load(self.log.group.state_index, self.log.group.state)
        self._replay()
        log.provide_state(number, self.snapshot)
        self.raft = RaftGroup(
            self.log,
            self,
            port,
            me=me,
            members=meta.members,
            config=raft_config,
            chance=chance,
            commit_index=self.applied_index,
            now=now,
        )

    def check_state(self, index: int, state: bytes) -> None:
        """Raise EntryRefused unless a summary from another broker can be read."""
        _decode_state(index, state)

    def _load(self, index: int, data: bytes) -> None:
        state, self.producers = _decode_state(index, data)
        self.applied_index = index
        self.start_offset = max(state.start_offset, self.log.group.first_offset)
        self.sealed_index = state.sealed_index
        self._time_ms = state.time_ms

    def _replay(self) -> None:
        """Learn what the entries behind the summary add to it."""
        log, index = self.log, self.applied_index + 1
        offset = log.offset_behind(self.applied_index)
        while index <= log.last_index:
            for found in log.plan(index, _REPLAY_BYTES).run():
                entry = Entry.from_log(found)
                self._learn(entry, parse(entry, offset))
                index, offset = entry.index + 1, entry.next_offset

    # -- state --------------------------------------------------------------------------------------------

    @property
    def committed_offset(self) -> int:
        """The offset behind the last record that is committed."""
        return self.log.offset_behind(self.applied_index)

    def offset_at_time(self, time_ms: int) -> int:
        """Find the first committed record that was appended at `time_ms` or later; the next one if there is none."""
        index = self.log.log.find_time(self.log.number, time_ms)
        return max(self.start_offset, self.log.offset_behind(min(index - 1, self.applied_index)))

    @property
    def is_sealed(self) -> bool:
        """Tell whether the epoch was ended, perhaps not yet for good."""
        return self.sealed_index > 0

    # -- appending ----------------------------------------------------------------------------------------

    def submit(self, header: BatchHeader, batch: Buffer, done: Done) -> None:
        """Queue a batch that was checked; raises NotLeader. `done` hears how it ended."""
        if not self.raft.is_leader:
            raise NotLeader("this replica is not the leader")
        self._queue.append(Submitted(header, batch, done))
        self.queued_bytes += header.total_bytes

    @property
    def wants_turn(self) -> bool:
        """Tell whether queued batches should become an entry now.

        While the entry before is on its way to the disk, the next one could not become durable anyway: waiting
        costs nothing, and makes one entry of many small batches.
        """
        if not self._queue:
            return False
        return self.queued_bytes >= self._config.entry_bytes or self.log.durable_index == self.log.last_index

    def propose(self) -> None:
        """Make entries of everything that is queued."""
        while self._queue:
            refusal = self._refusal()
            if refusal is not None:
                self._fail_queue(refusal)
                return
            self._propose_entry()

    def _refusal(self) -> Failed | None:
        if self.is_sealed:
            return Failed("sealed", "this epoch of the partition has ended; ask for its new replicas")
        if not self.raft.takes_entries:
            return Failed("not_leader", "this replica is not the leader")
        return None

    def _fail_queue(self, failed: Failed) -> None:
        queue, self._queue, self.queued_bytes = self._queue, deque(), 0
        for submitted in queue:
            tell(submitted.done, failed)

    def _propose_entry(self) -> None:
        """Put batches into one entry: as many as fit, at least one."""
        draft = Draft(self.log.last_index + 1, self.raft.term, self.log.next_offset, self._next_time_ms())
        while self._queue:
            header, batch, done = self._queue[0]
            if draft.waiters and len(draft.payload) + header.total_bytes > self._config.entry_bytes:
                break
            self._queue.popleft()
            self.queued_bytes -= header.total_bytes
            try:
                retry = self.producers.check(header)
            except ProducerRefused as error:
                tell(done, Failed(error.code, str(error), error.details))
                continue
            if retry is not None:
                self._await(retry, done, draft)
                continue
            self.producers.append(draft.index, header, draft.next_offset, draft.time_ms)
            draft.add(header, batch, done)
        if draft.waiters:
            self._waiters.setdefault(draft.index, []).extend(draft.waiters)
            self._draft = draft
            self.raft.propose(draft.payload, draft.next_offset, draft.time_ms)
            self._draft = None

    def _await(self, retry: Retry, done: Done, draft: Draft) -> None:
        """Answer a retry when the batch that it repeats is committed, which may be in the entry being made."""
        known = Appended(retry.base_offset, 0, retried=True)
        if retry.index <= self.applied_index:
            tell(done, known)
        elif retry.index == draft.index:
            draft.waiters.append(Waiter(draft.term, known, done))
        else:
            self._waiters.setdefault(retry.index, []).append(Waiter(self.log.term_of(retry.index), known, done))

    def _next_time_ms(self) -> int:
        """Append times never go back, whatever clocks and leaders do."""
        return max(self._clock_ms(), self._time_ms)

    def instruct(self, instruction: Instruction) -> int:
        """Propose an instruction to all replicas; return its index. Raises NotLeader."""
        return self.raft.propose(encode_instruction(instruction), self.log.next_offset, self._next_time_ms())

    def trim(self, offset: int) -> None:
        """Propose that records below `offset` are gone; raises NotLeader. It is so when `start_offset` is there.

        What is not committed now is not touched, so that nothing goes that nobody has seen.
        """
        offset = min(offset, self.committed_offset)
        if offset > self.start_offset:
            self.instruct(Trim(offset))

    def frees_entries(self, offset: int) -> bool:
        """Tell whether a whole entry lies below `offset`."""
        return self.log.log.find_offset(self.log.number, offset) > self.log.anchor_index + 1

    def clean_up(self) -> None:
        """As the leader, let go of records and of producers whose time is over."""
        if self.is_sealed or not (self.raft.is_settled and self.raft.takes_entries):
            return
        now_ms, log, meta = self._clock_ms(), self.log, self.meta  # not the last append's time: a clock may have erred
        expired = log.anchor_index + 1
        if meta.retention_ms is not None:
            expired = log.log.find_time(log.number, now_ms - meta.retention_ms)
        keep = keep_from(
            first_index=log.anchor_index + 1,
            committed_index=self.applied_index,
            expired_index=expired,
            stretches=(Stretch(run.next_index, run.live_bytes) for run in log.group.runs),
            bytes_max=meta.retention_bytes,
        )
        if log.offset_behind(keep - 1) > self.start_offset:
            self.instruct(Trim(log.offset_behind(keep - 1)))
        before_ms = self.producers.expiry_due(
            now_ms, age_ms_max=self._config.producer_age_ms, count_max=self._config.producers_max
        )
        if before_ms is not None:
            self.instruct(Expire(before_ms))

    # -- what the group tells -----------------------------------------------------------------------------

    def check(self, entries: Sequence[Entry], next_offset: int) -> None:
        """Raise EntryRefused unless entries from another broker follow the record before `next_offset`."""
        self._checked = {}
        checked: dict[int, tuple[Entry, Content]] = {}
        for entry in entries:
            checked[entry.index] = (entry, parse(entry, next_offset))
            next_offset = entry.next_offset
        self._checked = checked

    def make_noop(self) -> tuple[bytes, int]:
        """Make the entry with which a leader begins."""
        return NOOP, self._next_time_ms()

    def appended(self, entry: Entry) -> None:
        """Learn what an entry adds: it may still be taken back."""
        if self._draft is not None:
            self._time_ms = max(self._time_ms, entry.time_ms)  # its producers were noted as it was made
            return
        checked = self._checked.get(entry.index)
        if checked is not None and checked[0] is entry:
            self._learn(entry, checked[1])
        else:
            self._learn(entry, parse(entry, self.log.next_offset))

    def _learn(self, entry: Entry, content: Content) -> None:
        self._time_ms = max(self._time_ms, entry.time_ms)
        if content is None:
            return
        if isinstance(content, Instruction):
            self._instructions[entry.index] = content
            if isinstance(content, Seal) and not self.sealed_index:
                self.sealed_index = entry.index
            return
        for header in content:
            self.producers.append(entry.index, header, header.base_offset, entry.time_ms)

    def truncated(self, index: int) -> None:
        """Take back what entries from `index` on had added."""
        self.producers.truncate(index)
        self._instructions = {at: what for at, what in self._instructions.items() if at < index}
        if self.sealed_index >= index:
            self.sealed_index = 0

    def committed(self, index: int) -> None:
        """Act on what is committed, in the order of the log."""
        before = (self.start_offset, self.committed_offset)
        for at in range(self.applied_index + 1, index + 1):
            self.applied_index = at
            self.producers.commit(at)
            instruction = self._instructions.pop(at, None)
            if instruction is not None:
                self._carry_out(at, instruction)
            waiters = self._waiters.pop(at, None)
            if waiters is not None:
                self._answer(at, waiters)
        if (self.start_offset, self.committed_offset) != before:
            self._notify()

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` once, when records came or went, or this replica's role changes; return how to undo."""
        self._watchers.append(notify)

        def undo() -> None:
            if notify in self._watchers:
                self._watchers.remove(notify)

        return undo

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, []
        for notify in watchers:
            notify()  # the API's own, which sets an event

    def _carry_out(self, index: int, instruction: Instruction) -> None:
        if isinstance(instruction, Expire):
            self.producers.expire(instruction.before_ms)
        elif isinstance(instruction, Trim):
            self.start_offset = max(self.start_offset, min(instruction.offset, self.committed_offset))
            keep_from = min(self.log.log.find_offset(self.log.number, self.start_offset), index)
            if keep_from > self.log.anchor_index + 1:
                self.log.log.trim(self.log.number, keep_from)

    def _answer(self, index: int, waiters: list[Waiter]) -> None:
        try:
            term = self.log.term_of(index)
        except EntryMissing:
            term = None
        for waiter in waiters:
            if term is None:
                tell(waiter.done, Unknown("the entry was trimmed before its fate was known"))
            elif waiter.term == term:
                tell(waiter.done, waiter.appended)
            else:
                tell(waiter.done, Failed("not_leader", "another leader committed other records in its place"))

    def role_changed(self) -> None:
        """Refuse what is queued if this replica does not lead any more; what was proposed waits for its fate."""
        if not self.raft.is_leader:
            self._fail_queue(Failed("not_leader", "this replica is not the leader any more"))
        self._notify()

    def snapshot(self) -> tuple[int, bytes]:
        """Summarise the entries up to the last committed one."""
        sealed = self.sealed_index if self.sealed_index <= self.applied_index else 0
        state = ReplicaState(self.start_offset, self._time_ms, sealed, self.producers.encode())
        return self.applied_index, state.to_bytes()

    def installed(self, index: int, state: bytes) -> None:
        """Start over from a copy of another replica's log."""
        self._checked = {}
        self._instructions.clear()
        self._load(index, state)
        self.log.log.provide_state(self.log.number, self.snapshot)
        for at in sorted(at for at in self._waiters if at <= index):
            self._answer_lost(self._waiters.pop(at), "the log was replaced by a copy before its fate was known")
        self._notify()

    def close(self, reason: str) -> None:
        """Stop; nobody learns any more how what was proposed ended."""
        self.raft.close()
        self._fail_queue(Failed("closed", reason))
        for at in sorted(self._waiters):
            self._answer_lost(self._waiters.pop(at), reason)
        self._notify()

    def _answer_lost(self, waiters: list[Waiter], reason: str) -> None:
        for waiter in waiters:
            tell(waiter.done, Unknown(reason))


def _decode_state(index: int, data: bytes) -> tuple[ReplicaState, ProducerTable]:
    """Read a summary of the entries up to `index`; raises EntryRefused."""
    state = ReplicaState.from_bytes(data)
    if not state.producers:
        return state, ProducerTable(committed_index=index)
    try:
        return state, ProducerTable.decode(state.producers, index)
    except ProducerTableMalformed as error:
        raise EntryRefused(f"what a summary says of producers cannot be read: {error}") from error
