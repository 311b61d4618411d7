"""Wrapper of pysyncobj: the only module that imports it.

Two parts of pysyncobj are used, because they are correct and hard to write: elections (terms, votes, roles) and the
leader's commit rule. Everything else is switched off here: threads, sockets, timers, pickles, command queue, state
machine, snapshots, journal files and the send loop. `pysyncobj_internals.py` lists the private names that this
requires. `group.py` calls the core with messages that passed the guards.

pysyncobj sees no payloads. Its journal is the group's log on disk (`CoreLog`): positions and terms are looked up,
entries are passed on unchanged. Members are small numbers inside pysyncobj, so the order of its sets and of its
messages is the same in every run, as a simulation needs. Time and randomness are arguments too: the clock of
pysyncobj's module is set before each call.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol

from pysyncobj import syncobj
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.errors import UnsupportedCore
from flotilla_broker.raft.messages import Entry, Vote, VoteRequest
from flotilla_broker.raft.pysyncobj_internals import SUPPORTED_VERSION

_NEVER_S = 1e12
_NEVER = 1 << 60

if VERSION != SUPPORTED_VERSION:
    raise UnsupportedCore(
        f"pysyncobj {VERSION} is installed; only {SUPPORTED_VERSION} is supported: install the locked dependencies"
    )


class Role(IntEnum):
    """Role of a member, with pysyncobj's numbers."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


_ROLES = tuple(Role)  # by number; looked up many times per message


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
        """The vote that was saved with the term; empty if there is none."""

    def term_of(self, index: int) -> int:
        """Return the term of an entry, or of the anchor."""

    def append(self, entry: Entry) -> None:
        """Append an entry from a leader."""

    def append_noop(self, index: int, term: int) -> None:
        """Append a new leader's no-op entry."""

    def truncate(self, index: int) -> None:
        """Remove the entries from `index` on."""

    def save_term(self, term: int, vote: str) -> None:
        """Save term and vote. Messages that depend on them wait until they are durable."""


class _Clock:
    now = 0.0


syncobj.monotonicTime = lambda: _Clock.now


class Core:
    """One member's elections and commit rule."""

    def __init__(
        self,
        log: CoreLog,
        *,
        me: str,
        members: Sequence[str],
        config: RaftConfig,
        random_float: Callable[[], float],
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
            _VoteTransport(self._names, emit),
            random_float,
        )
        self.reload(commit_index)

    def reload(self, commit_index: int) -> None:
        """Load term, vote and commit index; pysyncobj reads entries through `CoreLog`."""
        self._sync.adopt(self._journal, commit_index)

    # -- state --------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """Follower, candidate or leader."""
        return _ROLES[self._sync._SyncObj__raftState]

    @property
    def term(self) -> int:
        """The current term."""
        term: int = self._sync._SyncObj__raftCurrentTerm
        return term

    @property
    def leader(self) -> str | None:
        """The known leader of the current term."""
        node = self._sync._SyncObj__raftLeader
        return None if node is None else self._names[node.id]

    @property
    def commit_index(self) -> int:
        """The commit index of pysyncobj; `guards.safe_commit_index` limits it to what is on this disk."""
        index: int = self._sync._SyncObj__raftCommitIndex
        return index

    @property
    def noop_index(self) -> int:
        """Index of the no-op entry of this member's last leadership."""
        index: int | None = self._sync._SyncObj__noopIDx
        return index or 0

    @property
    def election_at(self) -> float:
        """When the election timeout ends."""
        at: float = self._sync._SyncObj__raftElectionDeadline
        return at

    @election_at.setter
    def election_at(self, at: float) -> None:
        self._sync._SyncObj__raftElectionDeadline = at

    # -- events -------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Commit entries that a majority has; step down without responses of a majority."""
        _Clock.now = now
        self._sync._onTick(0.0)

    def campaign(self, now: float) -> None:
        """Start an election now; nothing else does."""
        self.election_at = now - 1
        self._sync.may_campaign = True
        try:
            self.tick(now)
        finally:
            self._sync.may_campaign = False

    def append(self, now: float, leader: str, term: int, prev: tuple[int, int], entries: Sequence[Entry]) -> None:
        """Store entries after `prev`, which matches. Entries of this log after `prev` conflict and are deleted."""
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
        """Follow a leader, and adopt its commit index as far as this log was verified.

        Without `prevLogIdx` pysyncobj accepts any commit index up to the end of its log (syncobj.py, line 1032), also
        for entries that conflict with the leader's. So the caller passes an index up to which the logs are known to
        match; a commit index from the network never reaches pysyncobj unchecked.
        """
        self._receive(now, leader, type="append_entries", term=term, commit_index=commit_index)

    def request_vote(self, now: float, candidate: str, request: VoteRequest) -> None:
        """Handle a vote request, and grant the vote if Raft allows it."""
        self._receive(
            now,
            candidate,
            type="request_vote",
            term=request.term,
            last_log_term=request.last_term,
            last_log_index=request.last_index,
        )

    def count_vote(self, now: float, voter: str, term: int) -> None:
        """Count a vote; the caller passes each once."""
        self._receive(now, voter, type="response_vote", term=term)

    def raise_term(self, now: float, member: str, term: int) -> None:
        """Adopt a higher term that a member has seen, without giving a vote in it."""
        request = {"type": "request_vote", "term": term, "last_log_term": -1, "last_log_index": -1}
        self._receive(now, member, **request)

    def record_response(self, now: float, follower: str) -> None:
        """Record a response of a follower: a leader without responses of a majority steps down."""
        if self.role is Role.LEADER:
            self._sync._SyncObj__lastResponseTime[self._nodes[follower]] = now

    def count_match(self, follower: str, index: int) -> None:
        """Set the match index of a follower; it counts at the next tick."""
        if self.role is Role.LEADER:
            self._sync._SyncObj__raftMatchIndex[self._nodes[follower]] = index

    def _receive(self, now: float, member: str, **message: Any) -> None:  # noqa: ANN401 - pysyncobj's own shape
        _Clock.now = now
        self._sync._SyncObj__onMessageReceived(self._nodes[member], message)


class _SyncObj(syncobj.SyncObj):  # type: ignore[misc]  # pysyncobj has no types
    """pysyncobj with everything switched off that the module's docstring lists."""

    def __init__(
        self, me: Node, others: list[Node], config: RaftConfig, transport: Transport, random_float: Callable[[], float]
    ) -> None:
        self.may_campaign = False
        self._random_float = random_float
        self._election_s = (config.election_s_min, config.election_s_max)
        conf = syncobj.SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,  # also avoids one notifier pipe per group
            # Nothing is sent; pysyncobj requires less than a third of raftMinTimeout.
            appendEntriesPeriod=config.election_s_min / 4,
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

        The commit index is at most the last index: with a higher one, an isolated leader would treat its own new
        entries as committed. The last applied index equals the commit index: pysyncobj applies nothing, so no error
        while applying can stall it or apply an entry twice.
        """
        self._SyncObj__raftLog = journal
        self._SyncObj__raftCurrentTerm = max(journal.getCurrentTerm(), journal[-1][2])
        self._SyncObj__votedForNodeId = journal.getVotedForNodeId()
        self._SyncObj__raftCommitIndex = min(commit_index, journal[-1][1])
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802 - an override of pysyncobj's private method
        shortest, longest = self._election_s
        return shortest + (longest - shortest) * self._random_float()

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """Allow an election only in `Core.campaign`: after a pre-vote, or in a leadership transfer."""
        return self.may_campaign

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """Do nothing: `leadership.py` sends."""

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        return False

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Do nothing: the log on disk is the state."""

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Do nothing: `RaftGroup.propose` appends.

        pysyncobj's queue would forward commands to the leader, and may never call back.
        """


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """Return at once: there are no sockets."""


class _VoteTransport(Transport):  # type: ignore[misc]
    """Forwards votes and vote requests. `following.py` replies to appends, with a term and after a flush."""

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
        """Append an entry of a leader, or the no-op (a single byte) of this member's new leadership."""
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
        """Return the saved term."""
        return self._log.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        """Return the saved vote, as the member's number."""
        return self._names.index(self._log.vote) if self._log.vote else None

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Do nothing: the commit index is saved with the partition's state."""

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
