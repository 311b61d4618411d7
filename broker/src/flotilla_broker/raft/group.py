"""A Raft group: one member of one partition's group, in one epoch.

It gets events (a message, a flush, a deadline, a proposal), and acts through its port. It has no thread, no clock
and no socket, so a simulation can run it, step by step, as well as a loop.

The core (`core.py`) decides elections and commits. Around it stand the guards (`guards.py`) and the leader's own
way of sending (`leadership.py`). What holds, whatever arrives in whatever order:

1. A reply or a vote leaves only when what it promises is durable (held messages, guard D).
2. A leader commits only what is on a majority of disks, its own among them.
3. What is committed is never truncated.
4. Entries from others are stored only if they follow what is here, by index, term and record offset.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from flotilla_broker.log import DiskFull
from flotilla_broker.log.files import Buffer
from flotilla_broker.raft.ballot import Ballot
from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.copying import CopyIn
from flotilla_broker.raft.core import Core, Role
from flotilla_broker.raft.errors import EntryRefused, NotLeader
from flotilla_broker.raft.grouplog import GroupLog
from flotilla_broker.raft.guards import (
    Fresh,
    Known,
    Mismatch,
    are_in_line,
    grants_pre_vote,
    is_countable,
    is_first_vote,
    judge_append,
    known_commit,
    may_install,
)
from flotilla_broker.raft.leadership import Leadership
from flotilla_broker.raft.messages import (
    Append,
    CopyBegin,
    CopyEntries,
    CopyReply,
    Entry,
    Heartbeat,
    Message,
    PreVote,
    PreVoteRequest,
    Quiet,
    Reply,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from flotilla_broker.raft.port import Machine, Port

logger = logging.getLogger(__name__)

_HURRY = 0.1  # of the shortest election time: how soon followers act on a lost connection to the leader
_START = 0.3  # ... and how soon after a start, when nobody leads


class RaftGroup:
    """One member of a group."""

    def __init__(
        self,
        log: GroupLog,
        machine: Machine,
        port: Port,
        *,
        me: str,
        members: Sequence[str],
        config: RaftConfig,
        chance: Callable[[], float],
        commit_index: int,
        now: float,
    ) -> None:
        self.me = me
        self.peers = tuple(sorted(member for member in members if member != me))
        self.log = log
        self.commit_index = min(commit_index, log.last_index)
        self._machine = machine
        self._port = port
        self._config = config
        self._chance = chance
        self._connected: set[str] = set()
        self._voters: set[str] = set()
        self._ballot: Ballot | None = None
        self._ballots = 0
        self._leadership: Leadership | None = None
        self._copy: CopyIn | None = None
        self._heard_at = now - config.election_s_max
        self._is_quiet = False  # this follower does not expect heartbeats: it trusts in the connection
        self._leader_commit = 0  # as the last append said, whether or not that entry is here
        self._seen: tuple[Role, int, str | None] = (Role.FOLLOWER, 0, None)
        self._core = Core(
            log,
            me=me,
            members=members,
            config=config,
            chance=chance,
            commit_index=self.commit_index,
            now=now,
            emit=lambda peer, message: port.send(peer, message, held=True),
        )
        if not self.peers:
            self._core.election_at = now  # there is nobody to wait for
        self._handlers: dict[type, Callable[[float, str, Any], None]] = {
            Append: self._on_append,
            Reply: self._on_reply,
            Heartbeat: self._on_heartbeat,
            Quiet: self._on_quiet,
            VoteRequest: self._core.request_vote,
            Vote: self._on_vote,
            PreVoteRequest: self._on_pre_vote_request,
            PreVote: self._on_pre_vote,
            TimeoutNow: self._on_timeout_now,
            CopyBegin: self._on_copy_begin,
            CopyEntries: self._on_copy_entries,
            CopyReply: self._on_copy_reply,
        }

    # -- state --------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """What this member is now."""
        return self._core.role

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.term

    @property
    def leader(self) -> str | None:
        """The leader, as far as is known."""
        return self._core.leader

    @property
    def is_leader(self) -> bool:
        """Tell whether this member leads, as far as it knows."""
        return self._core.role is Role.LEADER

    @property
    def is_settled(self) -> bool:
        """Tell whether this leader has committed in its own term: before, it does not know what is committed."""
        return self.is_leader and self.commit_index >= self._core.noop_index

    @property
    def takes_entries(self) -> bool:
        """Tell whether `propose` would work now."""
        return self._leadership is not None and self._leadership.handover is None

    @property
    def leadership(self) -> Leadership | None:
        """What this member does as a leader, to look at."""
        return self._leadership

    @property
    def lag(self) -> int:
        """How many entries this follower lacks of what it last heard was committed."""
        return max(0, self._leader_commit - self.commit_index)

    @property
    def is_copying(self) -> bool:
        """Tell whether this follower is being given a copy of the log."""
        return self._copy is not None

    @property
    def deadline(self) -> float:
        """When to call `run` at the latest."""
        return self._leadership.deadline if self._leadership is not None else self._core.election_at

    # -- events -------------------------------------------------------------------------------------------

    def connect(self, now: float, peer: str) -> None:
        """A connection to a member was made."""
        self._connected.add(peer)
        self._wake(now)
        if self._leadership is not None:
            self._leadership.connect(peer)
            self._run_leadership(now)
        elif self._core.leader is None:
            self._hurry(now, _START * self._config.election_s_min)

    def disconnect(self, now: float, peer: str) -> None:
        """The connection to a member broke. If it was the leader, followers do not wait for the full time."""
        self._wake(now)
        self._connected.discard(peer)
        if self._copy is not None and self._copy.leader == peer:
            self._drop_copy()
        if peer == self._core.leader and not self.is_leader:
            self._is_quiet = False
            self._hurry(now, _HURRY * self._config.election_s_min)

    def _hurry(self, now: float, within_s: float) -> None:
        """Ask for an election soon: there is no leader to wait for. If there is one after all, pre-votes tell."""
        self._core.election_at = min(self._core.election_at, now + within_s * (0.5 + self._chance()))

    def _wake(self, now: float) -> None:
        """Begin with heartbeats again; while there were none, followers were as alive as their connections."""
        if self._leadership is not None and self._leadership.is_quiet:
            for peer in self.peers:
                if peer in self._connected:
                    self._core.hear(now, peer)
            self._leadership.wake(now)

    def receive(self, now: float, peer: str, message: Message) -> None:
        """Take a message from a member."""
        if peer in self.peers:
            self._wake(now)
            self._handlers[type(message)](now, peer, message)
            self._observe(now)

    def durable(self, now: float) -> None:
        """More of this log is durable."""
        self._observe(now)

    def run(self, now: float) -> bool:
        """Do what is due: elections, heartbeats, entries for followers. Returns True if there is more to send."""
        if self._leadership is not None and self._leadership.is_quiet:
            if self.log.last_index == self.commit_index and self._leadership.handover is None:
                return False
            self._wake(now)
        if self._leadership is not None:
            self._core.tick(now)
            self._observe(now)
        if self._leadership is not None:
            return self._run_leadership(now)
        if now >= self._core.election_at and not self.is_leader:
            self._start_ballot(now)
            self._observe(now)
        return False

    def propose(self, payload: Buffer, next_offset: int, time_ms: int) -> int:
        """Append an entry as the leader; return its index. The caller has asked the log whether there is room."""
        if self._leadership is None:
            raise NotLeader("this replica is not the leader")
        if self._leadership.handover is not None:
            raise NotLeader(f"leadership is being handed over to {self._leadership.handover.target}")
        index = self.log.last_index + 1
        self.log.append(Entry(index, self._core.term, next_offset, time_ms, memoryview(payload)))
        return index

    def hand_over(self, now: float, target: str | None = None) -> str:
        """Make another member leader, by default the one that has most; return which."""
        if self._leadership is None:
            raise NotLeader("this replica is not the leader, it cannot hand over")
        progress = self._leadership.progress
        candidates = [peer for peer in self.peers if peer in self._connected]
        if target is None and candidates:
            target = max(candidates, key=lambda peer: progress[peer].match_index)
        if target is None or target not in candidates:
            raise NotLeader(f"there is no connection to {target or 'any other member'}")
        self._leadership.hand_over(now, target)
        return target

    def close(self) -> None:
        """Let go: nothing that is still under way may come back."""
        self._end_leadership()
        self._drop_copy()

    # -- following ----------------------------------------------------------------------------------------

    def _on_append(self, now: float, leader: str, message: Append) -> None:
        if message.term < self._core.term:
            self._refuse(leader, message.prev_index, 0, 0)
            return
        self._leader_commit = message.commit_index
        if not are_in_line(message.prev_index, message.prev_term, message.entries):
            raise EntryRefused(f"{leader} sent entries that do not follow each other behind {message.prev_index}")
        verdict = judge_append(self.log, self.commit_index, message.prev_index, message.prev_term, message.entries)
        if isinstance(verdict, Mismatch):
            self._follow(now, leader, message.term, 0)
            self._refuse(leader, message.prev_index, verdict.hint_index, verdict.hint_term)
            return
        if isinstance(verdict, Fresh) and not self._store(now, leader, message, verdict):
            return
        verified = verdict.index if isinstance(verdict, Known) else message.entries[-1].index
        self._follow(now, leader, message.term, min(message.commit_index, verified))
        self._port.send(leader, Reply(self._core.term, accepted=True, index=verified), held=True)

    def _store(self, now: float, leader: str, message: Append, verdict: Fresh) -> bool:
        """Store new entries; or only follow, if there is no room for them."""
        entries = message.entries[verdict.skip :]
        self._machine.check(entries, self.log.offset_behind(verdict.prev_index))
        try:
            self._admit(entries, self.log.offset_behind(verdict.prev_index))
        except DiskFull as error:
            logger.warning("group %d takes no entries from %s: %s", self.log.number, leader, error)
            self._follow(now, leader, message.term, 0)
            self._port.send(leader, Reply(self._core.term, accepted=True, index=0), held=True)  # alive all the same
            return False
        self._core.append(now, leader, message.term, (verdict.prev_index, verdict.prev_term), entries)
        return True

    def _admit(self, entries: Sequence[Entry], next_offset: int) -> None:
        """Ask for room for records. Entries without any may use the reserve: a trim is how room is made."""
        size = 0
        for entry in entries:
            size += len(entry.payload) if entry.next_offset > next_offset else 0
            next_offset = entry.next_offset
        if size:
            self.log.log.admit(size)

    def _on_quiet(self, now: float, leader: str, message: Quiet) -> None:
        """Stop waiting for heartbeats, if this log is the same as the leader's."""
        end = (self.log.last_index, self.log.last_term)
        if message.term < self._core.term or end != (message.index, message.index_term):
            self._refuse(leader, message.index, self.commit_index, self.log.term_of(self.commit_index))
            return
        self._follow(now, leader, message.term, message.index)
        self._is_quiet = True
        self._core.election_at = now + self._config.quiet_s * (1 + self._chance())

    def _follow(self, now: float, leader: str, term: int, commit_index: int) -> None:
        self._heard_at = now
        self._is_quiet = False
        self._ballot = None
        self._core.follow(now, leader, term, commit_index)

    def _refuse(self, leader: str, prev_index: int, hint_index: int, hint_term: int) -> None:
        reply = Reply(self._core.term, accepted=False, index=prev_index, hint_index=hint_index, hint_term=hint_term)
        self._port.send(leader, reply, held=True)

    def _on_heartbeat(self, now: float, leader: str, message: Heartbeat) -> None:
        if message.term < self._core.term:
            self._refuse(leader, 0, 0, 0)
            return
        self._follow(now, leader, message.term, 0)
        self._port.send(leader, Reply(self._core.term, accepted=True, index=0), held=True)

    # -- leading ------------------------------------------------------------------------------------------

    def _on_reply(self, now: float, peer: str, message: Reply) -> None:
        self._heed_term(now, peer, message.term)
        if self._leadership is None or not is_countable(message.term, self._core.term):
            return
        self._core.hear(now, peer)
        if message.accepted:
            self._core.count_match(peer, self._leadership.accepted(peer, message.index))
        else:
            self._leadership.refused(peer, message.index, message.hint_index, message.hint_term)

    def _heed_term(self, now: float, peer: str, term: int) -> None:
        """Adopt a higher term. Nobody tells a leader of one otherwise, and it would never reach that member again."""
        if term > self._core.term:
            self._core.raise_term(now, peer, term)

    def _run_leadership(self, now: float) -> bool:
        return self._leadership is not None and self._leadership.run(now, self.commit_index)

    def _begin_leadership(self, now: float) -> None:
        self._drop_copy()
        self._leadership = Leadership(
            self.log,
            term=self._core.term,
            noop_index=self._core.noop_index,
            peers=self.peers,
            connected=self._connected,
            config=self._config,
            port=self._port,
            machine=self._machine,
            now=now,
        )

    def _end_leadership(self) -> None:
        if self._leadership is not None:
            self._leadership.over = True
            self._leadership = None

    # -- elections ----------------------------------------------------------------------------------------

    def _start_ballot(self, now: float) -> None:
        """Ask whether a candidacy would have a majority; ask again later if there is no answer."""
        self._ballots += 1
        self._is_quiet = False
        self._ballot = Ballot(self._ballots, len(self.peers) + 1)
        shortest, longest = self._config.election_s_min, self._config.election_s_max
        self._core.election_at = now + shortest + (longest - shortest) * self._chance()
        request = PreVoteRequest(self._core.term + 1, self.log.last_index, self.log.last_term, self._ballots)
        for peer in self.peers:
            self._port.send(peer, request, held=False)
        if self._ballot.grant(self.me):
            self._campaign(now)

    def _on_pre_vote_request(self, now: float, peer: str, message: PreVoteRequest) -> None:
        granted = grants_pre_vote(
            term=message.term,
            own_term=self._core.term,
            last=(message.last_term, message.last_index),
            own_last=(self.log.last_term, self.log.last_index),
            leader_lives=self._leader_lives(now),
        )
        self._port.send(peer, PreVote(self._core.term, message.ballot, granted), held=False)

    def _leader_lives(self, now: float) -> bool:
        if self.is_leader:
            return True
        heard = self._is_quiet or now - self._heard_at < self._config.election_s_min
        return heard and self._core.leader in self._connected

    def _on_pre_vote(self, now: float, peer: str, message: PreVote) -> None:
        self._heed_term(now, peer, message.term)
        ballot = self._ballot
        if message.granted and ballot is not None and message.ballot == ballot.number and ballot.grant(peer):
            self._campaign(now)

    def _campaign(self, now: float) -> None:
        self._ballot = None
        self._voters = {self.me}
        self._core.campaign(now)

    def _on_vote(self, now: float, peer: str, message: Vote) -> None:
        if message.term == self._core.term and is_first_vote(self._voters, peer):
            self._voters.add(peer)
            self._core.count_vote(now, peer, message.term)

    def _on_timeout_now(self, now: float, peer: str, message: TimeoutNow) -> None:
        """Take over from the leader that hands over: without asking first, as everybody still hears that leader."""
        if message.term == self._core.term and peer == self._core.leader:
            self._campaign(now)

    # -- being copied to ----------------------------------------------------------------------------------

    def _on_copy_begin(self, now: float, leader: str, message: CopyBegin) -> None:
        if message.term < self._core.term:
            self._refuse(leader, 0, 0, 0)
            return
        self._follow(now, leader, message.term, 0)
        self._drop_copy()
        if not may_install(self.log, self.commit_index, message.last_index, message.last_term):
            self._answer_copy(leader, message.copy, message.last_index)
            return
        try:
            self._copy = CopyIn(self.log.log, self._machine, leader, message)
        except (DiskFull, EntryRefused) as error:
            self._give_up_copy(leader, message.copy, error)
            return
        self._advance_copy(leader, message.copy, ())

    def _on_copy_entries(self, now: float, leader: str, message: CopyEntries) -> None:
        if message.term < self._core.term:
            self._refuse(leader, 0, 0, 0)
            return
        self._follow(now, leader, message.term, 0)
        self._advance_copy(leader, message.copy, message.entries)

    def _advance_copy(self, leader: str, number: int, entries: Sequence[Entry]) -> None:
        copy = self._copy
        if copy is None or (copy.leader, copy.begin.copy, copy.begin.term) != (leader, number, self._core.term):
            self._answer_copy(leader, number, 0, given_up=True)
            return
        try:
            copy.add(entries)
        except (DiskFull, EntryRefused) as error:
            self._give_up_copy(leader, number, error)
            return
        index = copy.last_index
        if copy.is_whole:
            self._install(copy)
        self._answer_copy(leader, number, index)

    def _give_up_copy(self, leader: str, number: int, error: Exception) -> None:
        logger.warning("group %d gives up a copy from %s: %s", self.log.number, leader, error)
        self._drop_copy()
        self._answer_copy(leader, number, 0, given_up=True)

    def _install(self, copy: CopyIn) -> None:
        """Let the copy take this log's place, unless everything in it arrived in another way meanwhile."""
        self._copy = None
        begin = copy.begin
        if not may_install(self.log, self.commit_index, begin.last_index, begin.last_term):
            copy.drop()
            return
        copy.install(self.log.number, self.log.term, self.log.group.vote)
        self.log.switch(copy.number)
        self.commit_index = begin.last_index
        self._core.reload(begin.last_index)
        self._machine.installed(begin.last_index, begin.state)

    def _answer_copy(self, leader: str, copy: int, index: int, *, given_up: bool = False) -> None:
        self._port.send(leader, CopyReply(self._core.term, copy, index, given_up), held=True)

    def _drop_copy(self) -> None:
        if self._copy is not None:
            self._copy.drop()
            self._copy = None

    def _on_copy_reply(self, now: float, peer: str, message: CopyReply) -> None:
        self._heed_term(now, peer, message.term)
        if self._leadership is None or not is_countable(message.term, self._core.term):
            return
        self._core.hear(now, peer)
        if message.given_up:
            self._leadership.copy_given_up(now, peer, message.copy)
        else:
            self._leadership.copy_accepted(now, peer, message.copy, message.index)

    # -- what follows from an event -----------------------------------------------------------------------

    def _observe(self, now: float) -> None:
        """Act on what the core decided: a new role or leader, a commit."""
        seen = (self._core.role, self._core.term, self._core.leader)
        if seen != self._seen:
            self._seen = seen
            self._end_leadership()
            if self._copy is not None and self._copy.begin.term != self._core.term:
                self._drop_copy()
            if self.is_leader:
                self._begin_leadership(now)
                self._core.tick(now)
            self._machine.role_changed()
        index = known_commit(self._core.commit_index, self.log.durable_index)
        if index > self.commit_index:
            self.commit_index = index
            self._machine.committed(index)
