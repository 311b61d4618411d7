"""A replica of a partition: the state machine that a Raft group replicates.

It turns batches into entries, tracks the last sequence of each producer, and completes appends with their outcome.
Invariants:

1. Offsets are assigned in the same step in which the entry is appended, after all entries of the log, committed or not.
2. An append fails only if it was rejected before it was proposed, or an entry of another term was committed at its
   index. A leader that steps down does not know the outcome yet: it completes its appends when that index is committed.
3. The state (producers, first offset, seal) is a function of the log: truncation reverts uncommitted entries, and a
   restart restores the same state from the saved state and the entries after it.
"""

from collections import deque
from collections.abc import Callable, Sequence

from flotilla.producers.errors import InvalidProducerTable, ProducerRefused
from flotilla.producers.table import ProducerTable, Retry
from flotilla.records import BatchHeader, Buffer
from flotilla_broker.log import EntryMissing, Log
from flotilla_broker.partition.appends import (
    Appended,
    Done,
    Draft,
    Failed,
    Submitted,
    Unknown,
    Waiter,
    complete,
)
from flotilla_broker.partition.config import PartitionConfig
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
from flotilla_broker.partition.retention import Stretch, keep_from
from flotilla_broker.raft import Entry, EntryInvalid, GroupLog, NotLeader, Port, RaftConfig, RaftGroup

_REPLAY_BYTES = 4 << 20


class Partition:
    """One replica. Not thread-safe; `engine.py` schedules it."""

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
        random_float: Callable[[], float],
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
        self._instructions: dict[int, Instruction] = {}  # of uncommitted entries
        self._checked: dict[int, tuple[Entry, Content]] = {}  # checked entries of a leader, to be appended next
        self._draft: Draft | None = None  # the entry that this leader is appending
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
            random_float=random_float,
            commit_index=self.applied_index,
            now=now,
        )

    def check_state(self, index: int, state: bytes) -> None:
        """Check a state from another broker; raises EntryInvalid."""
        _decode_state(index, state)

    def _load(self, index: int, data: bytes) -> None:
        state, self.producers = _decode_state(index, data)
        self.applied_index = index
        self.start_offset = max(state.start_offset, self.log.group.first_offset)
        self.sealed_index = state.sealed_index
        self._time_ms = state.time_ms

    def _replay(self) -> None:
        """Apply the entries after the saved state."""
        log, index = self.log, self.applied_index + 1
        offset = log.offset_behind(self.applied_index)
        while index <= log.last_index:
            for found in log.plan(index, _REPLAY_BYTES).run():
                entry = Entry.from_log(found)
                self._apply(entry, parse(entry, offset))
                index, offset = entry.index + 1, entry.next_offset

    # -- state --------------------------------------------------------------------------------------------

    @property
    def committed_offset(self) -> int:
        """The offset after the last committed record."""
        return self.log.offset_behind(self.applied_index)

    def offset_at_time(self, time_ms: int) -> int:
        """Return the offset of the first committed record appended at `time_ms` or later, or the next offset."""
        index = self.log.log.find_time(self.log.number, time_ms)
        return max(self.start_offset, self.log.offset_behind(min(index - 1, self.applied_index)))

    @property
    def is_sealed(self) -> bool:
        """Whether the log has a Seal entry, committed or not."""
        return self.sealed_index > 0

    # -- appending ----------------------------------------------------------------------------------------

    def submit(self, header: BatchHeader, batch: Buffer, done: Done) -> None:
        """Queue a checked batch; raises NotLeader. `done` gets the outcome."""
        if not self.raft.is_leader:
            raise NotLeader("this replica is not the leader")
        self._queue.append(Submitted(header, batch, done))
        self.queued_bytes += header.total_bytes

    @property
    def has_work(self) -> bool:
        """Whether to propose the queued batches now.

        During a flush the next entry could not become durable anyway: waiting costs nothing, and combines small
        batches into one entry.
        """
        if not self._queue:
            return False
        return self.queued_bytes >= self._config.entry_bytes or self.log.durable_index == self.log.last_index

    def propose(self) -> None:
        """Propose all queued batches."""
        while self._queue:
            rejection = self._rejection()
            if rejection is not None:
                self._fail_queue(rejection)
                return
            self._propose_entry()

    def _rejection(self) -> Failed | None:
        if self.is_sealed:
            return Failed("sealed", "the partition epoch is sealed; refresh the metadata and use the new replicas")
        if not self.raft.accepts_entries:
            return Failed("not_leader", "this replica is not the leader")
        return None

    def _fail_queue(self, failed: Failed) -> None:
        queue, self._queue, self.queued_bytes = self._queue, deque(), 0
        for submitted in queue:
            complete(submitted.done, failed)

    def _propose_entry(self) -> None:
        """Propose one entry with as many batches as fit, at least one."""
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
                complete(done, Failed(error.code, str(error), error.details))
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
        """Complete a retry when the original batch is committed; it may be in the current draft."""
        known = Appended(retry.base_offset, 0, retried=True)
        if retry.index <= self.applied_index:
            complete(done, known)
        elif retry.index == draft.index:
            draft.waiters.append(Waiter(draft.term, known, done))
        else:
            self._waiters.setdefault(retry.index, []).append(Waiter(self.log.term_of(retry.index), known, done))

    def _next_time_ms(self) -> int:
        """Return the append time, which never decreases."""
        return max(self._clock_ms(), self._time_ms)

    def instruct(self, instruction: Instruction) -> int:
        """Propose an instruction to all replicas; return its index. Raises NotLeader."""
        return self.raft.propose(encode_instruction(instruction), self.log.next_offset, self._next_time_ms())

    def trim(self, offset: int) -> None:
        """Propose to remove the records below `offset`; raises NotLeader. It is done when `start_offset` reaches it.

        Uncommitted records are not removed.
        """
        offset = min(offset, self.committed_offset)
        if offset > self.start_offset:
            self.instruct(Trim(offset))

    def frees_entries(self, offset: int) -> bool:
        """Whether a trim to `offset` removes at least one entry."""
        return self.log.log.find_offset(self.log.number, offset) > self.log.anchor_index + 1

    def apply_retention(self) -> None:
        """Remove records by retention, and idle producers; only the leader does."""
        if self.is_sealed or not (self.raft.has_committed_in_term and self.raft.accepts_entries):
            return
        now_ms, log, meta = (
            self._clock_ms(),
            self.log,
            self.meta,
        )  # not the last append time: a clock may be wrong
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

    # -- callbacks of the Raft group ----------------------------------------------------------------------

    def check(self, entries: Sequence[Entry], next_offset: int) -> None:
        """Check entries from another broker, whose first record must have `next_offset`; raises EntryInvalid."""
        self._checked = {}
        checked: dict[int, tuple[Entry, Content]] = {}
        for entry in entries:
            checked[entry.index] = (entry, parse(entry, next_offset))
            next_offset = entry.next_offset
        self._checked = checked

    def make_noop(self) -> tuple[bytes, int]:
        """Return payload and time of a new leader's no-op entry."""
        return NOOP, self._next_time_ms()

    def appended(self, entry: Entry) -> None:
        """Apply an appended entry; truncation may revert it."""
        if self._draft is not None:
            self._time_ms = max(self._time_ms, entry.time_ms)  # its producers were recorded in the draft
            return
        checked = self._checked.get(entry.index)
        if checked is not None and checked[0] is entry:
            self._apply(entry, checked[1])
        else:
            self._apply(entry, parse(entry, self.log.next_offset))

    def _apply(self, entry: Entry, content: Content) -> None:
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
        """Revert the entries from `index` on."""
        self.producers.truncate(index)
        self._instructions = {at: what for at, what in self._instructions.items() if at < index}
        if self.sealed_index >= index:
            self.sealed_index = 0

    def committed(self, index: int) -> None:
        """Execute committed instructions and complete appends, in the order of the log."""
        before = (self.start_offset, self.committed_offset)
        for at in range(self.applied_index + 1, index + 1):
            self.applied_index = at
            self.producers.commit(at)
            instruction = self._instructions.pop(at, None)
            if instruction is not None:
                self._execute(at, instruction)
            waiters = self._waiters.pop(at, None)
            if waiters is not None:
                self._complete_waiters(at, waiters)
        if (self.start_offset, self.committed_offset) != before:
            self._notify()

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` once when offsets or the role change; return a function that cancels it."""
        self._watchers.append(notify)

        def undo() -> None:
            if notify in self._watchers:
                self._watchers.remove(notify)

        return undo

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, []
        for notify in watchers:
            notify()  # sets an event of the API

    def _execute(self, index: int, instruction: Instruction) -> None:
        if isinstance(instruction, Expire):
            self.producers.expire(instruction.before_ms)
        elif isinstance(instruction, Trim):
            self.start_offset = max(self.start_offset, min(instruction.offset, self.committed_offset))
            keep_from = min(self.log.log.find_offset(self.log.number, self.start_offset), index)
            if keep_from > self.log.anchor_index + 1:
                self.log.log.trim(self.log.number, keep_from)

    def _complete_waiters(self, index: int, waiters: list[Waiter]) -> None:
        try:
            term = self.log.term_of(index)
        except EntryMissing:
            term = None
        for waiter in waiters:
            if term is None:
                complete(waiter.done, Unknown("the entry was trimmed before its outcome was known"))
            elif waiter.term == term:
                complete(waiter.done, waiter.appended)
            else:
                complete(waiter.done, Failed("not_leader", "another leader committed other records at this index"))

    def role_changed(self) -> None:
        """Fail queued batches if this replica no longer leads; proposed ones wait for their outcome."""
        if not self.raft.is_leader:
            self._fail_queue(Failed("not_leader", "this replica is no longer the leader"))
        self._notify()

    def snapshot(self) -> tuple[int, bytes]:
        """Return the last applied index, and the state after it."""
        sealed = self.sealed_index if self.sealed_index <= self.applied_index else 0
        state = ReplicaState(self.start_offset, self._time_ms, sealed, self.producers.encode())
        return self.applied_index, state.to_bytes()

    def installed(self, index: int, state: bytes) -> None:
        """Load the state of an installed snapshot."""
        self._checked = {}
        self._instructions.clear()
        self._load(index, state)
        self.log.log.provide_state(self.log.number, self.snapshot)
        for at in sorted(at for at in self._waiters if at <= index):
            self._complete_unknown(self._waiters.pop(at), "a snapshot replaced the log before the outcome was known")
        self._notify()

    def close(self, reason: str) -> None:
        """Stop; the outcome of proposed appends is unknown."""
        self.raft.close()
        self._fail_queue(Failed("closed", reason))
        for at in sorted(self._waiters):
            self._complete_unknown(self._waiters.pop(at), reason)
        self._notify()

    def _complete_unknown(self, waiters: list[Waiter], reason: str) -> None:
        for waiter in waiters:
            complete(waiter.done, Unknown(reason))


def _decode_state(index: int, data: bytes) -> tuple[ReplicaState, ProducerTable]:
    """Decode a state after `index`; raises EntryInvalid."""
    state = ReplicaState.from_bytes(data)
    if not state.producers:
        return state, ProducerTable(committed_index=index)
    try:
        return state, ProducerTable.decode(state.producers, index)
    except InvalidProducerTable as error:
        raise EntryInvalid(f"invalid producer table in replica state: {error}") from error
