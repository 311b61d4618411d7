"""A Raft group: one member of one partition's group, in one epoch.

It gets events (a message, a flush, a deadline, a proposal), and acts through its port. It has no thread, no clock
and no socket, so a simulation can run it, step by step, as well as a loop.

The core (`core.py`) decides elections and commits. Around it stand the guards (`guards.py`), and what a member does:
`elections.py`, `following.py`, `copied.py`, `leadership.py`. What holds, whatever arrives in whatever order:

1. A reply or a vote leaves only when what it promises is durable (held messages, guard D).
2. A leader commits only what is on a majority of disks, its own among them.
3. What is committed is never truncated.
4. Entries from others are stored only if they follow what is here, by index, term and record offset.
"""

from collections.abc import Callable, Sequence
from typing import Any

from flotilla_broker.log.files import Buffer
from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.copied import Copied
from flotilla_broker.raft.core import Role
from flotilla_broker.raft.elections import Elections
from flotilla_broker.raft.errors import NotLeader
from flotilla_broker.raft.following import Following
from flotilla_broker.raft.grouplog import GroupLog
from flotilla_broker.raft.guards import is_countable, known_commit
from flotilla_broker.raft.leadership import Leadership
from flotilla_broker.raft.member import Member
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
        self.member = member = Member(
            log,
            machine,
            port,
            me=me,
            members=members,
            config=config,
            chance=chance,
            commit_index=commit_index,
            now=now,
        )
        self.log = log
        self.peers = member.peers
        self._core = member.core
        self._elections = Elections(member)
        self._following = Following(member)
        self._copied = Copied(member, self._following)
        self._leadership: Leadership | None = None
        self._seen: tuple[Role, int, str | None] = (Role.FOLLOWER, 0, None)
        if not self.peers:
            self._core.election_at = now  # there is nobody to wait for
        self._handlers: dict[type, Callable[[float, str, Any], None]] = {
            Append: self._following.on_append,
            Heartbeat: self._following.on_heartbeat,
            Quiet: self._following.on_quiet,
            CopyBegin: self._copied.on_begin,
            CopyEntries: self._copied.on_entries,
            VoteRequest: self._core.request_vote,
            Vote: self._elections.on_vote,
            PreVoteRequest: self._elections.on_pre_vote_request,
            PreVote: self._elections.on_pre_vote,
            TimeoutNow: self._elections.on_timeout_now,
            Reply: self._on_reply,
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
    def commit_index(self) -> int:
        """Everything up to here is committed, and on this disk."""
        return self.member.commit_index

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
        return max(0, self._following.leader_commit - self.commit_index)

    @property
    def is_copying(self) -> bool:
        """Tell whether this follower is being given a copy of the log."""
        return self._copied.copy is not None

    @property
    def deadline(self) -> float:
        """When to call `run` at the latest."""
        return self._leadership.deadline if self._leadership is not None else self._core.election_at

    # -- events -------------------------------------------------------------------------------------------

    def connect(self, now: float, peer: str) -> None:
        """A connection to a member was made."""
        self.member.connected.add(peer)
        self._wake(now)
        if self._leadership is not None:
            self._leadership.connect(peer)
            self._leadership.run(now, self.commit_index)
        elif self._core.leader is None:
            self.member.hurry(now, _START * self.member.config.election_s_min)

    def disconnect(self, now: float, peer: str) -> None:
        """The connection to a member broke. If it was the leader, followers do not wait for the full time."""
        self._wake(now)
        self.member.connected.discard(peer)
        self._copied.drop_from(peer)
        if peer == self._core.leader and not self.is_leader:
            self.member.is_quiet = False
            self.member.hurry(now, _HURRY * self.member.config.election_s_min)

    def receive(self, now: float, peer: str, message: Message) -> None:
        """Take a message from a member. Raises EntryRefused if it cannot be right."""
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
            return self._leadership.run(now, self.commit_index)
        if now >= self._core.election_at and not self.is_leader:
            self._elections.start(now)
            self._observe(now)
        return False

    def stand(self, now: float) -> None:
        """Ask for an election at once, unless there is a leader, or the answers to an earlier question are due.

        A group that was made just now need not wait for anybody's patience to end. It is a question like any other:
        the others support it only if they hear no leader and have no more than this log.
        """
        if not self.member.leader_lives(now) and not self._elections.is_asking(now):
            self._elections.start(now)
            self._observe(now)

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
        candidates = [peer for peer in self.peers if peer in self.member.connected]
        if target is None and candidates:
            target = max(candidates, key=lambda peer: progress[peer].match_index)
        if target is None or target not in candidates:
            raise NotLeader(f"there is no connection to {target or 'any other member'}")
        self._leadership.hand_over(now, target)
        return target

    def close(self) -> None:
        """Let go: nothing that is still under way may come back.

        Quiet followers would trust in the connection of a broker that has no replica any more; a last heartbeat lets
        them expect more, and then elect another leader.
        """
        if self._leadership is not None and self._leadership.is_quiet:
            for peer in self.peers:
                self.member.say(peer, Heartbeat(self._core.term))
        self._end_leadership()
        self._copied.drop()

    # -- leading ------------------------------------------------------------------------------------------

    def _on_reply(self, now: float, peer: str, message: Reply) -> None:
        leadership = self._hear(now, peer, message.term)
        if leadership is None:
            return
        if message.accepted:
            self._core.count_match(peer, leadership.accepted(peer, message.index))
        else:
            leadership.refused(peer, message.index, message.hint_index, message.hint_term)

    def _on_copy_reply(self, now: float, peer: str, message: CopyReply) -> None:
        leadership = self._hear(now, peer, message.term)
        if leadership is None:
            return
        if message.given_up:
            leadership.copy_given_up(now, peer, message.copy)
        else:
            leadership.copy_accepted(now, peer, message.copy, message.index)

    def _hear(self, now: float, peer: str, term: int) -> Leadership | None:
        """Take note of a follower's answer; return the leadership in which it counts."""
        self.member.heed_term(now, peer, term)
        if self._leadership is None or not is_countable(term, self._core.term):
            return None
        self._core.hear(now, peer)
        return self._leadership

    def _wake(self, now: float) -> None:
        """Begin with heartbeats again; while there were none, followers were as alive as their connections."""
        if self._leadership is not None and self._leadership.is_quiet:
            for peer in self.peers:
                if peer in self.member.connected:
                    self._core.hear(now, peer)
            self._leadership.wake(now)

    def _end_leadership(self) -> None:
        if self._leadership is not None:
            self._leadership.over = True
            self._leadership = None

    # -- what follows from an event -----------------------------------------------------------------------

    def _observe(self, now: float) -> None:
        """Act on what the core decided: a new role or leader, a commit."""
        seen = (self._core.role, self._core.term, self._core.leader)
        if seen != self._seen:
            self._seen = seen
            self._end_leadership()
            self._copied.drop_unless(self._core.term)
            if self.is_leader:
                self._copied.drop()
                self._leadership = Leadership(self.member, now)
                self._core.tick(now)
            self.member.machine.role_changed()
        index = known_commit(self._core.commit_index, self.log.durable_index, self._core.noop_index)
        if index > self.commit_index:
            self.member.commit_index = index
            self.member.machine.committed(index)
