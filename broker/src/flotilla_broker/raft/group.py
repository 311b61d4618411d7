"""One member of a Raft group: a partition, in one partition epoch.

It handles events (a message, a flush, a deadline, a proposal) and acts through its port. It has no thread, clock or
socket, so that the simulation runs the same code as a broker.

The core (`core.py`) decides elections and commits. The guards (`guards.py`) decide which messages reach it. The
behaviour is in `elections.py`, `following.py`, `snapshot_receive.py` and `leadership.py`. Invariants, whatever arrives
in whatever order:

1. A reply or a vote is sent only after the flush that makes it durable (`Member.send_after_flush`).
2. A leader commits only entries that are on a majority of disks, including its own.
3. Committed entries are never truncated.
4. Entries of other members are stored only if they follow this log by index, term and record offset.
"""

from collections.abc import Callable, Sequence
from typing import Any

from flotilla_broker.log.files import Buffer
from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.core import Role
from flotilla_broker.raft.elections import Elections
from flotilla_broker.raft.errors import NotLeader
from flotilla_broker.raft.following import Following
from flotilla_broker.raft.grouplog import GroupLog
from flotilla_broker.raft.guards import is_countable, safe_commit_index
from flotilla_broker.raft.leadership import Leadership
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import (
    Append,
    Entry,
    Heartbeat,
    Message,
    PreVote,
    PreVoteRequest,
    Quiesce,
    Reply,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from flotilla_broker.raft.port import Port, StateMachine
from flotilla_broker.raft.snapshot_receive import SnapshotReceiver

# Shares of election_s_min: the election timeout in two cases in which there is probably no leader.
_TIMEOUT_SHARE_LEADER_LOST = 0.1  # the connection to the leader was lost
_TIMEOUT_SHARE_NO_LEADER = 0.3  # another member connected, and no leader is known


class RaftGroup:
    """One member of a group."""

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
        self.member = member = Member(
            log,
            machine,
            port,
            me=me,
            members=members,
            config=config,
            random_float=random_float,
            commit_index=commit_index,
            now=now,
        )
        self.log = log
        self.peers = member.peers
        self._core = member.core
        self._elections = Elections(member)
        self._following = Following(member)
        self._snapshots = SnapshotReceiver(member, self._following)
        self._leadership: Leadership | None = None
        self._seen: tuple[Role, int, str | None] = (Role.FOLLOWER, 0, None)
        if not self.peers:
            self._core.election_at = now  # no other member can be the leader
        self._handlers: dict[type, Callable[[float, str, Any], None]] = {
            Append: self._following.on_append,
            Heartbeat: self._following.on_heartbeat,
            Quiesce: self._following.on_quiesce,
            SnapshotBegin: self._snapshots.on_begin,
            SnapshotChunk: self._snapshots.on_chunk,
            VoteRequest: self._elections.on_vote_request,
            Vote: self._elections.on_vote,
            PreVoteRequest: self._elections.on_pre_vote_request,
            PreVote: self._elections.on_pre_vote,
            TimeoutNow: self._elections.on_timeout_now,
            Reply: self._on_reply,
            SnapshotReply: self._on_snapshot_reply,
        }

    # -- state --------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """Follower, candidate or leader."""
        return self._core.role

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.term

    @property
    def leader(self) -> str | None:
        """The known leader of the current term."""
        return self._core.leader

    @property
    def commit_index(self) -> int:
        """All entries up to here are committed, and durable on this broker."""
        return self.member.commit_index

    @property
    def is_leader(self) -> bool:
        """Whether this member is the leader of its current term."""
        return self._core.role is Role.LEADER

    @property
    def has_committed_in_term(self) -> bool:
        """Whether this leader has committed an entry of its own term, and so knows the commit index of the group."""
        return self.is_leader and self.commit_index >= self._core.noop_index

    @property
    def accepts_entries(self) -> bool:
        """Whether `propose` would succeed now."""
        return self._leadership is not None and self._leadership.transfer is None

    @property
    def leadership(self) -> Leadership | None:
        """The current leadership of this member, read-only; None unless it leads."""
        return self._leadership

    @property
    def lag(self) -> int:
        """Entries between the leader's last known commit index and this member's."""
        return max(0, self._following.leader_commit - self.commit_index)

    @property
    def is_receiving_snapshot(self) -> bool:
        """Whether a snapshot transfer to this follower is in progress."""
        return self._snapshots.snapshot is not None

    @property
    def deadline(self) -> float:
        """When to call `run` at the latest."""
        return self._leadership.deadline if self._leadership is not None else self._core.election_at

    @property
    def may_vote(self) -> bool:
        """Whether this member votes and starts elections."""
        return self.member.may_vote

    @may_vote.setter
    def may_vote(self, value: bool) -> None:
        self.member.may_vote = value

    # -- events -------------------------------------------------------------------------------------------

    def connect(self, now: float, peer: str) -> None:
        """A connection to a member was made."""
        self.member.connected.add(peer)
        self._wake(now)
        if self._leadership is not None:
            self._leadership.connect(peer)
            self._leadership.run(now, self.commit_index)
        elif self._core.leader is None:
            self.member.shorten_election_timeout(now, _TIMEOUT_SHARE_NO_LEADER * self.member.config.election_s_min)

    def disconnect(self, now: float, peer: str) -> None:
        """The connection to a member was lost. If it was the leader, the election timeout is shortened."""
        self._wake(now)
        self.member.connected.discard(peer)
        self._snapshots.drop_from(peer)
        if peer == self._core.leader and not self.is_leader:
            self.member.is_quiesced = False
            self.member.shorten_election_timeout(now, _TIMEOUT_SHARE_LEADER_LOST * self.member.config.election_s_min)

    def receive(self, now: float, peer: str, message: Message) -> None:
        """Handle a message of a member. Raises EntryInvalid."""
        if peer in self.peers:
            self._wake(now)
            self._handlers[type(message)](now, peer, message)
            self._apply_core_changes(now)

    def durable(self, now: float) -> None:
        """A flush made more of this log durable."""
        self._apply_core_changes(now)

    def run(self, now: float) -> bool:
        """Start elections, send heartbeats and entries. Return True if there is more to send."""
        if self._leadership is not None and self._leadership.is_quiesced:
            if self.log.last_index == self.commit_index and self._leadership.transfer is None:
                return False
            self._wake(now)
        if self._leadership is not None:
            self._core.tick(now)
            self._apply_core_changes(now)
        if self._leadership is not None:
            return self._leadership.run(now, self.commit_index)
        if now >= self._core.election_at and not self.is_leader:
            self._elections.start(now)
            self._apply_core_changes(now)
        return False

    def campaign(self, now: float) -> None:
        """Start a pre-vote at once, unless there is a leader or a pre-vote is in progress.

        A new group need not wait for an election timeout. The other members grant the pre-vote only if they know no
        leader, and their logs are not more up to date.
        """
        if not self.member.leader_is_alive(now) and not self._elections.is_pre_voting(now):
            self._elections.start(now)
            self._apply_core_changes(now)

    def propose(self, payload: Buffer, next_offset: int, time_ms: int) -> int:
        """Append an entry as the leader; return its index. The caller has checked the disk space (`Log.admit`)."""
        if self._leadership is None:
            raise NotLeader("this replica is not the leader")
        if self._leadership.transfer is not None:
            raise NotLeader(f"leadership is being transferred to {self._leadership.transfer.target}")
        index = self.log.last_index + 1
        self.log.append(Entry(index, self._core.term, next_offset, time_ms, memoryview(payload)))
        return index

    def transfer_leadership(self, now: float, target: str | None = None) -> str:
        """Transfer leadership to a connected member, by default the most up-to-date one; return it."""
        if self._leadership is None:
            raise NotLeader("this replica is not the leader, and cannot transfer leadership")
        progress = self._leadership.progress
        candidates = [peer for peer in self.peers if peer in self.member.connected]
        if target is None and candidates:
            target = max(candidates, key=lambda peer: progress[peer].match_index)
        if target is None or target not in candidates:
            raise NotLeader(f"cannot transfer leadership: no connection to {target or 'any other member'}")
        self._leadership.transfer_leadership(now, target)
        return target

    def close(self) -> None:
        """Stop, and drop all transfers in progress.

        Followers of a quiesced group would rely on the connection to a broker without a replica. A last heartbeat
        makes them expect more heartbeats, and so elect another leader.
        """
        if self._leadership is not None and self._leadership.is_quiesced:
            for peer in self.peers:
                self.member.send(peer, Heartbeat(self._core.term))
        self._end_leadership()
        self._snapshots.drop()

    # -- leading ------------------------------------------------------------------------------------------

    def _on_reply(self, now: float, peer: str, message: Reply) -> None:
        leadership = self._on_response(now, peer, message.term)
        if leadership is None:
            return
        if message.accepted:
            self._core.count_match(peer, leadership.accepted(peer, message.index))
        else:
            leadership.rejected(peer, message.index, message.hint_index, message.hint_term)

    def _on_snapshot_reply(self, now: float, peer: str, message: SnapshotReply) -> None:
        leadership = self._on_response(now, peer, message.term)
        if leadership is None:
            return
        if message.aborted:
            leadership.snapshot_aborted(now, peer, message.snapshot_id)
        else:
            leadership.snapshot_accepted(now, peer, message.snapshot_id, message.index)

    def _on_response(self, now: float, peer: str, term: int) -> Leadership | None:
        """Record a follower's response; return the leadership if it counts in this term."""
        self.member.adopt_term(now, peer, term)
        if self._leadership is None or not is_countable(term, self._core.term):
            return None
        self._core.record_response(now, peer)
        return self._leadership

    def _wake(self, now: float) -> None:
        """End quiescence. Connected followers count as responsive: without heartbeats they could not respond."""
        if self._leadership is not None and self._leadership.is_quiesced:
            for peer in self.peers:
                if peer in self.member.connected:
                    self._core.record_response(now, peer)
            self._leadership.wake(now)

    def _end_leadership(self) -> None:
        if self._leadership is not None:
            self._leadership.is_over = True
            self._leadership = None

    # -- what follows from an event -----------------------------------------------------------------------

    def _apply_core_changes(self, now: float) -> None:
        """Act on decisions of the core: a new role or leader, a commit."""
        seen = (self._core.role, self._core.term, self._core.leader)
        if seen != self._seen:
            self._seen = seen
            self._end_leadership()
            self._snapshots.drop_unless(self._core.term)
            if self.is_leader:
                self._snapshots.drop()
                self._leadership = Leadership(self.member, now)
                self._core.tick(now)
            self.member.machine.role_changed()
        index = safe_commit_index(self._core.commit_index, self.log.durable_index, self._core.noop_index)
        if index > self.commit_index:
            self.member.commit_index = index
            self.member.machine.committed(index)
