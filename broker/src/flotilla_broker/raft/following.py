"""What a follower does: it stores what the leader sends, if it follows what is here, and says how far it got."""

import logging
from collections.abc import Sequence

from flotilla_broker.log import DiskFull
from flotilla_broker.raft.errors import EntryRefused
from flotilla_broker.raft.guards import Fresh, Known, Mismatch, are_in_line, judge_append
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import Append, Entry, Heartbeat, Quiet, Reply

logger = logging.getLogger(__name__)


class Following:
    """A member's answers to its leader."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.leader_commit = 0  # as the last append said, whether or not that entry is here

    def on_append(self, now: float, leader: str, message: Append) -> None:
        """Take entries, perhaps none. Raises EntryRefused if they cannot be right."""
        member = self._member
        if self.is_deposed(leader, message.term, message.prev_index):
            return
        self.leader_commit = message.commit_index
        if not are_in_line(message.prev_index, message.prev_term, message.entries):
            raise EntryRefused(f"{leader} sent entries that do not follow each other behind {message.prev_index}")
        verdict = judge_append(member.log, member.commit_index, message.prev_index, message.prev_term, message.entries)
        if isinstance(verdict, Mismatch):
            self.follow(now, leader, message.term)
            self._refuse(leader, message.prev_index, verdict.hint_index, verdict.hint_term)
            return
        if isinstance(verdict, Fresh) and not self._store(now, leader, message, verdict):
            return
        verified = verdict.index if isinstance(verdict, Known) else message.entries[-1].index
        self.follow(now, leader, message.term, min(message.commit_index, verified))
        member.promise(leader, Reply(member.core.term, accepted=True, index=verified))

    def _store(self, now: float, leader: str, message: Append, verdict: Fresh) -> bool:
        """Store new entries; or only follow, if there is no room for them."""
        member = self._member
        entries = message.entries[verdict.skip :]
        next_offset = member.log.offset_behind(verdict.prev_index)
        member.machine.check(entries, next_offset)
        try:
            self._admit(entries, next_offset)
        except DiskFull as error:
            logger.warning("group %d takes no entries from %s: %s", member.log.number, leader, error)
            self.follow(now, leader, message.term)
            member.promise(leader, Reply(member.core.term, accepted=True, index=0))  # alive all the same
            return False
        member.core.append(now, leader, message.term, (verdict.prev_index, verdict.prev_term), entries)
        return True

    def _admit(self, entries: Sequence[Entry], next_offset: int) -> None:
        """Ask for room for records. Entries without any may use the reserve: a trim is how room is made."""
        size = 0
        for entry in entries:
            size += len(entry.payload) if entry.next_offset > next_offset else 0
            next_offset = entry.next_offset
        if size:
            self._member.log.log.admit(size)

    def on_heartbeat(self, now: float, leader: str, message: Heartbeat) -> None:
        """Take note that the leader lives."""
        if not self.is_deposed(leader, message.term):
            self.follow(now, leader, message.term)
            self._member.promise(leader, Reply(self._member.core.term, accepted=True, index=0))

    def on_quiet(self, now: float, leader: str, message: Quiet) -> None:
        """Stop waiting for heartbeats, if this log is the same as the leader's."""
        member, log = self._member, self._member.log
        if self.is_deposed(leader, message.term, message.index):
            return
        if (log.last_index, log.last_term) != (message.index, message.index_term):
            self._refuse(leader, message.index, member.commit_index, log.term_of(member.commit_index))
            return
        self.follow(now, leader, message.term, message.index)
        member.is_quiet = True
        member.wait_for_leader(now, member.config.quiet_s, 2 * member.config.quiet_s)

    def follow(self, now: float, leader: str, term: int, commit_index: int = 0) -> None:
        """Take note of a leader, and of what it committed of that which was verified here."""
        self._member.heard_at = now
        self._member.is_quiet = False
        self._member.core.follow(now, leader, term, commit_index)

    def is_deposed(self, leader: str, term: int, prev_index: int = 0) -> bool:
        """Tell whether a leader's time is over, and let it know."""
        if term >= self._member.core.term:
            return False
        self._refuse(leader, prev_index, 0, 0)
        return True

    def _refuse(self, leader: str, prev_index: int, hint_index: int, hint_term: int) -> None:
        term = self._member.core.term
        reply = Reply(term, accepted=False, index=prev_index, hint_index=hint_index, hint_term=hint_term)
        self._member.promise(leader, reply)
