"""Every private name of pysyncobj that `core.py` depends on: the complete list, for one version of pysyncobj.

pysyncobj has no public interface for what `core.py` needs, so `core.py` reads, writes, calls and overrides private
names. A release of pysyncobj may remove one or change its meaning without notice. Three rules keep that visible:

1. `core.py` is the only module that uses these names, and it uses no other private name of pysyncobj.
2. `tests/unit/raft/test_pysyncobj_internals.py` checks each entry against the installed version: the name exists,
   `core.py` uses it as `uses` says, and it has the meaning that `meaning` says.
3. `core.py` refuses to start with any version but `SUPPORTED_VERSION`.

To move to another version: install it, set `SUPPORTED_VERSION`, make those tests pass, run `make sim SEEDS=1000`,
then update the locked dependencies.
"""

from dataclasses import dataclass
from enum import Enum

SUPPORTED_VERSION = "0.3.17"


class Use(Enum):
    """How `core.py` uses a private name."""

    READ = "read"
    WRITE = "write"  # assigns the attribute, or an item of it
    CALL = "call"
    OVERRIDE = "override"


@dataclass(frozen=True, slots=True)
class Internal:
    """One private name: of `SyncObj` in pysyncobj's module `syncobj`, or of that module itself."""

    name: str
    uses: frozenset[Use]
    meaning: str  # in pysyncobj
    purpose: str  # in core.py
    of_module: bool = False


_READ = frozenset({Use.READ})
_WRITE = frozenset({Use.WRITE})
_READ_WRITE = _READ | _WRITE
_CALL = frozenset({Use.CALL})
_OVERRIDE = frozenset({Use.OVERRIDE})

INTERNALS = (
    # -- state of the member -----------------------------------------------------------------------------
    Internal(
        "_SyncObj__raftState",
        _READ,
        meaning="role of this member: 0 follower, 1 candidate, 2 leader",
        purpose="Core.role",
    ),
    Internal(
        "_SyncObj__raftCurrentTerm",
        _READ_WRITE,
        meaning="current term; an election starts the next one",
        purpose="Core.term; restored from the log on disk",
    ),
    Internal(
        "_SyncObj__votedForNodeId",
        _WRITE,
        meaning="id of the node that got this member's vote in the current term; None if the vote is free",
        purpose="restored from the log on disk",
    ),
    Internal(
        "_SyncObj__raftLeader",
        _READ,
        meaning="node of the known leader of the current term, or None",
        purpose="Core.leader",
    ),
    Internal(
        "_SyncObj__raftElectionDeadline",
        _READ_WRITE,
        meaning="time after which a follower or candidate starts an election at the next tick",
        purpose="Core.election_at; set to the past by Core.campaign",
    ),
    # -- log and commit index ----------------------------------------------------------------------------
    Internal(
        "_SyncObj__raftLog",
        _WRITE,
        meaning="journal: (command, index, term) by position, and where term and vote are saved",
        purpose="replaced by the group's log on disk",
    ),
    Internal(
        "_SyncObj__raftCommitIndex",
        _READ_WRITE,
        meaning="commit index; never moves back while the log keeps the entry",
        purpose="Core.commit_index; restored at start, at most the last index of the log",
    ),
    Internal(
        "_SyncObj__raftLastApplied",
        _WRITE,
        meaning="last applied index; truncating an entry up to it is logged as a critical error",
        purpose="kept equal to the commit index: pysyncobj applies nothing",
    ),
    Internal(
        "_SyncObj__noopIDx",
        _READ,
        meaning="index of the no-op that this member appended when it last became leader; None before",
        purpose="Core.noop_index",
    ),
    # -- what a leader knows of its followers ------------------------------------------------------------
    Internal(
        "_SyncObj__raftMatchIndex",
        _WRITE,
        meaning="match index by follower: an entry of the current term with a majority is committed at the next tick",
        purpose="Core.count_match",
    ),
    Internal(
        "_SyncObj__lastResponseTime",
        _WRITE,
        meaning="time of the last response by follower: without a recent majority a leader steps down at a tick",
        purpose="Core.record_response",
    ),
    # -- events ------------------------------------------------------------------------------------------
    Internal(
        "_onTick",
        _CALL,
        meaning="one step, without waiting: election, commit rule, step down",
        purpose="Core.tick",
    ),
    Internal(
        "_SyncObj__onMessageReceived",
        _CALL,
        meaning="handler of a message from a node: append_entries, request_vote, response_vote",
        purpose="Core.append, follow, request_vote, count_vote, raise_term",
    ),
    # -- overridden: randomness, permission to campaign, and what is switched off ------------------------------
    Internal(
        "_SyncObj__generateRaftTimeout",
        _OVERRIDE,
        meaning="random election timeout in seconds, drawn to set the election deadline; the only use of randomness",
        purpose="draws from the caller's random source",
    ),
    Internal(
        "_SyncObj__connectedToAnyone",
        _OVERRIDE,
        meaning="condition of an election, asked only when the election deadline has passed",
        purpose="False except in Core.campaign: an election needs a pre-vote or a leadership transfer",
    ),
    Internal(
        "_SyncObj__sendAppendEntries",
        _OVERRIDE,
        meaning="the only sender of append_entries; called by a new leader and by a leader's tick",
        purpose="empty: leadership.py sends",
    ),
    Internal(
        "_SyncObj__applyLogEntries",
        _OVERRIDE,
        meaning="applies committed entries, once per tick; returns whether to send entries at once",
        purpose="only moves the last applied index: payloads never reach pysyncobj",
    ),
    Internal(
        "_checkCommandsToApply",
        _OVERRIDE,
        meaning="appends or forwards queued commands, once per tick",
        purpose="empty: RaftGroup.propose appends",
    ),
    Internal(
        "_SyncObj__tryLogCompaction",
        _OVERRIDE,
        meaning="writes snapshots and trims the journal, once per tick; nothing else does",
        purpose="empty: the log on disk is the state",
    ),
    Internal(
        "_poller",
        _WRITE,
        meaning="waits for sockets at the end of each tick",
        purpose="replaced by one that returns at once",
    ),
    Internal(
        "monotonicTime",
        _WRITE,
        meaning="the only clock of the module, in seconds",
        purpose="replaced by the time that the caller passes",
        of_module=True,
    ),
)
