"""pysyncobj, behind an interface of ours: the one module that imports it, and where its camelCase ends.

Of pysyncobj we use what is right and hard to get right: elections (terms, votes, roles) and the leader's commit
rule. The rest of it is switched off here: its threads, sockets, timers, pickles, command queue, state machine,
snapshots, journal files and its send loop. `group.py` calls the core, with messages that the guards let through.

The core sees no payloads. Its journal is the group's log on disk (`CoreLog`): positions and terms are looked up,
entries are handed on as they are. Members are small numbers inside the core: the order of its sets, and so of its
messages, is the same in each run, which a simulation needs. Time and chance are arguments too: pysyncobj asks a
clock of its module, so that is set before each call.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol

import pysyncobj.syncobj as stock
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.errors import UnsupportedCore
from flotilla_broker.raft.messages import Entry, Vote, VoteRequest

SUPPORTED_VERSION = "0.3.17"
_NEVER_S = 1e12
_NEVER = 1 << 60

if VERSION != SUPPORTED_VERSION:
    raise UnsupportedCore(
        f"pysyncobj {VERSION} is installed; the guards around it are made and tested for {SUPPORTED_VERSION} only"
    )


class Role(IntEnum):
    """What a member is, in the core's numbers."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


_ROLES = tuple(Role)  # by number; asked many times per message


class CoreLog(Protocol):
    """The log as the core sees it."""

    @property
    def anchor_index(self) -> int:
        """The index before the first entry."""

    @property
    def last_index(self) -> int:
        """The index of the last entry."""

    @property
    def term(self) -> int:
        """The term that was saved last."""

    @property
    def vote(self) -> str:
        """The vote that was saved with it; empty if none was given."""

    def term_of(self, index: int) -> int:
        """Tell the term of an entry, or of the anchor."""

    def append(self, entry: Entry) -> None:
        """Append an entry from a leader."""

    def append_noop(self, index: int, term: int) -> None:
        """Append the entry with which a leader begins."""

    def truncate(self, index: int) -> None:
        """Remove the entries from `index` on."""

    def save_term(self, term: int, vote: str) -> None:
        """Save term and vote; they leave this broker only when they are durable."""


class _Clock:
    now = 0.0


stock.monotonicTime = lambda: _Clock.now


class Core:
    """One member's elections and commit rule."""

    def __init__(
        self,
        log: CoreLog,
        *,
        me: str,
        members: Sequence[str],
        config: RaftConfig,
        chance: Callable[[], float],
        commit_index: int,
        now: float,
        emit: Callable[[str, VoteRequest | Vote], None],
    ) -> None:
        _Clock.now = now
        self._names = sorted(members)
        self._nodes = {name: Node(number) for number, name in enumerate(self._names)}
        self._journal = _Journal(log, self._names)
        self._sync = _SyncObj(
            self._nodes[me],
            [node for name, node in self._nodes.items() if name != me],
            config,
            _Outlet(self._names, emit),
            chance,
        )
        self.reload(commit_index)

    def reload(self, commit_index: int) -> None:
        """Take over term, vote and commit index; the log is behind its own interface."""
        self._sync.adopt(self._journal, commit_index)

    # -- state --------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """What this member is now."""
        return _ROLES[self._sync._SyncObj__raftState]

    @property
    def term(self) -> int:
        """The current term."""
        term: int = self._sync._SyncObj__raftCurrentTerm
        return term

    @property
    def leader(self) -> str | None:
        """The leader, as far as is known."""
        node = self._sync._SyncObj__raftLeader
        return None if node is None else self._names[node.id]

    @property
    def commit_index(self) -> int:
        """How far the core has committed; guard D may know better."""
        index: int = self._sync._SyncObj__raftCommitIndex
        return index

    @property
    def noop_index(self) -> int:
        """The entry with which this member's last leadership began."""
        index: int | None = self._sync._SyncObj__noopIDx
        return index or 0

    @property
    def election_at(self) -> float:
        """When a follower that hears nothing loses patience."""
        at: float = self._sync._SyncObj__raftElectionDeadline
        return at

    @election_at.setter
    def election_at(self, at: float) -> None:
        self._sync._SyncObj__raftElectionDeadline = at

    # -- events -------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Let the core count: commit what a majority has, give up leadership without one."""
        _Clock.now = now
        self._sync._onTick(0.0)

    def campaign(self, now: float) -> None:
        """Ask for votes now; the only way to an election."""
        self.election_at = now - 1
        self._sync.may_campaign = True
        try:
            self.tick(now)
        finally:
            self._sync.may_campaign = False

    def append(self, now: float, leader: str, term: int, prev: tuple[int, int], entries: Sequence[Entry]) -> None:
        """Store entries behind `prev`, which is held; what is behind it contradicts them and goes."""
        added = [(entry, entry.index, entry.term) for entry in entries]
        self._receive(
            now,
            leader,
            type="append_entries",
            term=term,
            prevLogIdx=prev[0],
            prevLogTerm=prev[1],
            entries=added,
            commit_index=0,
        )

    def follow(self, now: float, leader: str, term: int, commit_index: int) -> None:
        """Take note that a leader lives, and of what it committed of that which was verified here.

        Without `prevLogIdx` the core believes any commit index, for whatever it holds (1032: guard G5). So the
        caller names one up to which this log is known to be the leader's, and the network never names one.
        """
        self._receive(now, leader, type="append_entries", term=term, commit_index=commit_index)

    def request_vote(self, now: float, candidate: str, request: VoteRequest) -> None:
        """Answer a candidate, perhaps with a vote."""
        self._receive(
            now,
            candidate,
            type="request_vote",
            term=request.term,
            last_log_term=request.last_term,
            last_log_index=request.last_index,
        )

    def count_vote(self, now: float, voter: str, term: int) -> None:
        """Count a vote, each once."""
        self._receive(now, voter, type="response_vote", term=term)

    def raise_term(self, now: float, member: str, term: int) -> None:
        """Adopt a higher term that a member has seen, without giving a vote in it."""
        request = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1}
        self._receive(now, member, **request)

    def hear(self, now: float, follower: str) -> None:
        """Take note that a follower answers: a leader stays one only while a majority does."""
        if self.role is Role.LEADER:
            self._sync._SyncObj__lastResponseTime[self._nodes[follower]] = now

    def count_match(self, follower: str, index: int) -> None:
        """Count a follower's copy up to `index`, at the next tick."""
        if self.role is Role.LEADER:
            self._sync._SyncObj__raftMatchIndex[self._nodes[follower]] = index

    def _receive(self, now: float, member: str, **message: Any) -> None:  # noqa: ANN401 - pysyncobj's own shape
        _Clock.now = now
        self._sync._SyncObj__onMessageReceived(self._nodes[member], message)


class _SyncObj(stock.SyncObj):  # type: ignore[misc]  # pysyncobj has no types
    """pysyncobj with everything switched off that the module's docstring lists."""

    def __init__(
        self, me: Node, others: list[Node], config: RaftConfig, transport: Transport, chance: Callable[[], float]
    ) -> None:
        self.may_campaign = False
        self._chance = chance
        self._election_s = (config.election_s_min, config.election_s_max)
        conf = stock.SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,  # also: no pipe per group
            appendEntriesPeriod=config.election_s_min / 4,  # nothing is sent; it must be below a third
            raftMinTimeout=config.election_s_min,
            raftMaxTimeout=config.election_s_max,
            leaderFallbackTimeout=config.election_s_max,
            connectionTimeout=_NEVER_S,
            logCompactionMinEntries=_NEVER,
            logCompactionMinTime=_NEVER,
            dynamicMembershipChange=False,
            commandsWaitLeader=False,
        )
        super().__init__(me, others, conf, transport=transport, nodeClass=Node)
        self._poller = _NoPoller()

    def adopt(self, journal: "_Journal", commit_index: int) -> None:
        """Use our log instead of the one that the constructor made.

        The commit index is clamped to the log's end: beyond it, an isolated leader took its own entries for
        committed (H2). Nothing is applied here, so nothing can be applied twice (H3).
        """
        self._SyncObj__raftLog = journal
        self._SyncObj__raftCurrentTerm = max(journal.getCurrentTerm(), journal[-1][2])
        self._SyncObj__votedForNodeId = journal.getVotedForNodeId()
        self._SyncObj__raftCommitIndex = min(commit_index, journal[-1][1])
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802 - an override of pysyncobj's private method
        shortest, longest = self._election_s
        return shortest + (longest - shortest) * self._chance()

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """Asked before an election, and nowhere else: it needs a pre-vote, or an order to take over."""
        return self.may_campaign

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Ours (`progress.py`)."""

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        return False

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """There are no snapshots: the log on disk is the state."""

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """`RaftGroup.propose` appends; the core's queue forwards commands to others and may never call back."""


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """There are no sockets to wait for."""


class _Outlet(Transport):  # type: ignore[misc]
    """Lets out what the core may say itself: votes and requests for them. Replies to appends are ours (G1, D)."""

    ready = True

    def __init__(self, names: list[str], emit: Callable[[str, VoteRequest | Vote], None]) -> None:
        super().__init__(None, None, None)
        self._names = names
        self._emit = emit

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        member = self._names[node.id]
        if message["type"] == "request_vote":
            self._emit(member, VoteRequest(message["term"], message["last_log_index"], message["last_log_term"]))
        elif message["type"] == "response_vote":
            self._emit(member, Vote(message["term"]))
        return True


class _Journal:
    """The log in the shape of pysyncobj's journal: position 0 is the anchor, then the entries.

    An element is (entry, index, term); the core looks only at the last two, and slices are lazy.
    """

    def __init__(self, log: CoreLog, names: list[str]) -> None:
        self._log = log
        self._names = names

    def __len__(self) -> int:
        return self._log.last_index - self._log.anchor_index + 1

    def __getitem__(self, item: "int | slice") -> "tuple[None, int, int] | _Slice":
        if isinstance(item, slice):
            return _Slice(self, range(len(self))[item])
        index = (self._log.last_index + 1 if item < 0 else self._log.anchor_index) + item
        return None, index, self._log.term_of(index)

    def add(self, command: Entry | bytes, index: int, term: int) -> None:
        """Append what a leader sent, or the no-op (a single byte) with which this member's leadership begins."""
        if isinstance(command, Entry):
            self._log.append(command)
        else:
            self._log.append_noop(index, term)

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802
        """Truncate."""
        self._log.truncate(self._log.anchor_index + position)

    def setCurrentTerm(self, term: int, vote: int | None) -> None:  # noqa: N802
        """Save term and vote."""
        self._log.save_term(term, "" if vote is None else self._names[vote])

    def getCurrentTerm(self) -> int:  # noqa: N802
        """Tell the saved term."""
        return self._log.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        """Tell the saved vote, as the member's number."""
        return self._names.index(self._log.vote) if self._log.vote else None

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """The commit index is saved with the partition's state."""

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing to do."""


class _Slice(Sequence["tuple[None, int, int]"]):
    def __init__(self, journal: _Journal, positions: range) -> None:
        self._journal = journal
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, item: Any) -> Any:  # noqa: ANN401 - as Sequence has it
        return self._journal[self._positions[item]]
