"""The behaviour of a follower: store the leader's entries if they match the log, and reply."""

import logging
from collections.abc import Sequence

from flotilla_broker.log import DiskFull
from flotilla_broker.raft.errors import EntryInvalid
from flotilla_broker.raft.guards import (
    Mismatch,
    NewEntries,
    StoredEntries,
    are_consecutive,
    classify_append,
    is_caught_up,
)
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import Append, Entry, Heartbeat, Quiesce, Reply

logger = logging.getLogger(__name__)


class Following:
    """Handles the messages of a leader."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.leader_commit = 0  # the leader's commit index, even if this log lacks the entry

    def on_append(self, now: float, leader: str, message: Append) -> None:
        """Store entries, possibly none. Raises EntryInvalid."""
        member = self._member
        if self.reject_old_term(leader, message.term, message.prev_index):
            return
        self.leader_commit = message.commit_index
        if not are_consecutive(message.prev_index, message.prev_term, message.entries):
            raise EntryInvalid(f"entries from {leader} after index {message.prev_index} are not consecutive")
        verdict = classify_append(
            member.log, member.commit_index, message.prev_index, message.prev_term, message.entries
        )
        if isinstance(verdict, Mismatch):
            self.follow(now, leader, message.term)
            self._reject(leader, message.prev_index, verdict.hint_index, verdict.hint_term)
            return
        if isinstance(verdict, NewEntries) and not self._store(now, leader, message, verdict):
            return
        verified = verdict.index if isinstance(verdict, StoredEntries) else message.entries[-1].index
        self.follow(now, leader, message.term, min(message.commit_index, verified))
        member.may_vote = member.may_vote or is_caught_up(member.log, verified, message.commit_index, message.term)
        member.send_after_flush(leader, Reply(member.core.term, accepted=True, index=verified))

    def _store(self, now: float, leader: str, message: Append, verdict: NewEntries) -> bool:
        """Store new entries; on a full disk only acknowledge the leader, and return False."""
        member = self._member
        entries = message.entries[verdict.skip :]
        next_offset = member.log.offset_behind(verdict.prev_index)
        member.machine.check(entries, next_offset)
        try:
            self._admit(entries, next_offset)
        except DiskFull as error:
            logger.warning(
                "entries rejected, disk full group=%d leader=%s error=%r", member.log.number, leader, str(error)
            )
            self.follow(now, leader, message.term)
            member.send_after_flush(
                leader, Reply(member.core.term, accepted=True, index=0)
            )  # the leader needs a response to stay leader
            return False
        member.core.append(now, leader, message.term, (verdict.prev_index, verdict.prev_term), entries)
        return True

    def _admit(self, entries: Sequence[Entry], next_offset: int) -> None:
        """Check the disk space for records. Entries without records, such as trims, may use the reserve."""
        size = 0
        for entry in entries:
            size += len(entry.payload) if entry.next_offset > next_offset else 0
            next_offset = entry.next_offset
        if size:
            self._member.log.log.admit(size)

    def on_heartbeat(self, now: float, leader: str, message: Heartbeat) -> None:
        """Acknowledge a heartbeat."""
        if not self.reject_old_term(leader, message.term):
            self.follow(now, leader, message.term)
            self._member.send_after_flush(leader, Reply(self._member.core.term, accepted=True, index=0))

    def on_quiesce(self, now: float, leader: str, message: Quiesce) -> None:
        """Expect no more heartbeats, if this log matches the leader's."""
        member, log = self._member, self._member.log
        if self.reject_old_term(leader, message.term, message.index):
            return
        if (log.last_index, log.last_term) != (message.index, message.index_term):
            self._reject(leader, message.index, member.commit_index, log.term_of(member.commit_index))
            return
        self.follow(now, leader, message.term, message.index)
        member.is_quiesced = member.may_vote = True
        member.reset_election_timeout(now, member.config.quiesce_timeout_s, 2 * member.config.quiesce_timeout_s)

    def follow(self, now: float, leader: str, term: int, commit_index: int = 0) -> None:
        """Follow a leader; `commit_index` must not exceed the verified part of this log."""
        self._member.leader_seen_at = now
        self._member.is_quiesced = False
        self._member.core.follow(now, leader, term, commit_index)

    def reject_old_term(self, leader: str, term: int, prev_index: int = 0) -> bool:
        """Reject a message of an earlier term, so that its sender steps down; return whether it was one."""
        if term >= self._member.core.term:
            return False
        self._reject(leader, prev_index, 0, 0)
        return True

    def _reject(self, leader: str, prev_index: int, hint_index: int, hint_term: int) -> None:
        term = self._member.core.term
        reply = Reply(term, accepted=False, index=prev_index, hint_index=hint_index, hint_term=hint_term)
        self._member.send_after_flush(leader, reply)
