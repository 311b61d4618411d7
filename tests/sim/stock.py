"""Stock pysyncobj instead of a guarded group, to show what the guards are for.

It runs under milder faults: logged entries are on disk at once, processes are killed but the machine never loses power,
nothing is trimmed, and connections deliver messages in order.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pysyncobj.syncobj as stock
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from flotilla_broker.log.files import Buffer
from flotilla_broker.raft import Entry, GroupLog, NotLeader, Port, RaftConfig, Role, StateMachine
from flotilla_broker.raft import core as ours

_NEVER = 1 << 60
_TICK_S = 0.05
_NOOP = b"\1"  # also the first byte of all others: the core must not unpickle them


class StockGroup:
    """Has the interface of `RaftGroup`, and none of its guards."""

    def __init__(
        self,
        log: GroupLog,
        machine: StateMachine,
        port: Port,
        *,
        me: str,
        members: Sequence[str],
        config: RaftConfig,
        random_float: Callable[[], float],
        commit_index: int,
        now: float,
    ) -> None:
        self.log = log
        self.peers = tuple(sorted(member for member in members if member != me))
        self.commit_index = commit_index
        self._machine = machine
        self._names = sorted(members)
        self._nodes = {name: Node(at) for at, name in enumerate(self._names)}
        self._ticked_at = now
        self._was_leader = False
        ours._Clock.now = now
        self._transport = _Transport(self._names, port)
        self._sync = _Stock(
            self._nodes[me], [self._nodes[peer] for peer in self.peers], self._transport, config, random_float
        )
        self._sync._SyncObj__raftLog = journal = _Journal(log, self._names, machine)
        self._sync._SyncObj__raftCurrentTerm = max(log.term, log.last_term)
        self._sync._SyncObj__votedForNodeId = journal.vote
        self._sync._SyncObj__raftCommitIndex = self._sync._SyncObj__raftLastApplied = commit_index

    @property
    def role(self) -> Role:
        return Role(self._sync._SyncObj__raftState)

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    accepts_entries = is_leader

    @property
    def has_committed_in_term(self) -> bool:
        return self.is_leader and self.commit_index >= (self._sync._SyncObj__noopIDx or 0)

    @property
    def term(self) -> int:
        term: int = self._sync.raftCurrentTerm
        return term

    @property
    def leader(self) -> str | None:
        node = self._sync._getLeader()
        return None if node is None else self._names[node.id]

    @property
    def deadline(self) -> float:
        return self._ticked_at + _TICK_S

    def connect(self, now: float, peer: str) -> None:
        ours._Clock.now = now
        self._transport._onNodeConnected(self._nodes[peer])

    def disconnect(self, now: float, peer: str) -> None:
        ours._Clock.now = now
        self._transport._onNodeDisconnected(self._nodes[peer])

    def receive(self, now: float, peer: str, message: Any) -> None:  # noqa: ANN401 - pysyncobj's dicts
        ours._Clock.now = now
        self._transport._onMessageReceived(self._nodes[peer], message)
        self._observe()

    def durable(self, now: float) -> None:
        ours._Clock.now = now

    def run(self, now: float) -> bool:
        self._ticked_at = ours._Clock.now = now
        self._sync.doTick()
        self._observe()
        return False

    def propose(self, payload: Buffer, next_offset: int, time_ms: int) -> int:
        if not self.is_leader:
            raise NotLeader("this replica is not the leader")
        index = self.log.last_index + 1
        self.log.append(Entry(index, self.term, next_offset, time_ms, memoryview(payload)))
        self._sync._SyncObj__sendAppendEntries()
        return index

    def transfer_leadership(self, now: float, target: str | None = None) -> str:
        raise NotLeader(f"not at {now}, not to {target}")

    def close(self) -> None:
        pass

    def _observe(self) -> None:
        if self.is_leader != self._was_leader:
            self._was_leader = self.is_leader
            self._machine.role_changed()
        if self._sync.raftCommitIndex > self.commit_index:
            self.commit_index = self._sync.raftCommitIndex
            self._machine.committed(self.commit_index)


class _Stock(stock.SyncObj):  # type: ignore[misc]
    def __init__(
        self, me: Node, others: list[Node], transport: Transport, config: RaftConfig, random_float: Callable[[], float]
    ) -> None:
        self._random_float = random_float
        conf = stock.SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=config.heartbeat_s,
            appendEntriesBatchSizeBytes=1600,
            raftMinTimeout=config.election_s_min,
            raftMaxTimeout=config.election_s_max,
            logCompactionMinEntries=_NEVER,
            logCompactionMinTime=_NEVER,
        )
        super().__init__(me, others, conf, transport=transport, nodeClass=Node)

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802 - so that a seed gives one run
        shortest, longest = self.conf.raftMinTimeout, self.conf.raftMaxTimeout
        timeout: float = shortest + (longest - shortest) * self._random_float()
        return timeout


class _Transport(Transport):  # type: ignore[misc]
    ready = True

    def __init__(self, names: list[str], port: Port) -> None:
        super().__init__(None, None, None)
        self._names = names
        self._port = port

    def send(self, node: Node, message: Any) -> bool:  # noqa: ANN401
        self._port.send(self._names[node.id], dict(message), after_flush=False)  # type: ignore[arg-type]
        return True


class _Journal:
    """The log with payloads, as the send loop of the stock core needs it."""

    def __init__(self, log: GroupLog, names: list[str], machine: StateMachine) -> None:
        self._log = log
        self._names = names
        self._machine = machine

    @property
    def vote(self) -> int | None:
        return self._names.index(self._log.vote) if self._log.vote else None

    def __len__(self) -> int:
        return self._log.last_index - self._log.anchor_index + 1

    def __getitem__(self, item: Any) -> Any:  # noqa: ANN401
        if isinstance(item, slice):
            return [self[at] for at in range(len(self))[item]]
        index = (self._log.last_index + 1 if item < 0 else self._log.anchor_index) + item
        if index == self._log.anchor_index:
            return _NOOP, index, self._log.term_of(index)
        (entry,) = self._log.log.read(self._log.number, index, bytes_max=1, count_max=1)
        return _NOOP + msgspec.msgpack.encode(Entry.from_log(entry)), index, entry.term

    def add(self, command: bytes, index: int, term: int) -> None:
        if command == _NOOP:
            self._log.append_noop(index, term)
        else:
            entry = msgspec.msgpack.decode(command[1:], type=Entry)
            self._machine.check([entry], self._log.next_offset)
            self._log.append(entry)

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802
        self._log.truncate(self._log.anchor_index + position)

    def setCurrentTerm(self, term: int, vote: int | None) -> None:  # noqa: N802
        self._log.save_term(term, "" if vote is None else self._names[vote])

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        pass

    def onOneSecondTimer(self) -> None:  # noqa: N802
        pass
