"""Snapshot transfer, the follower's side.

The follower writes the snapshot as a separate group of the log. When it is complete, that group replaces the old one
atomically. Until then, the follower votes and replies with its old log.
"""

import logging
from collections.abc import Sequence

from flotilla_broker.log import DiskFull, Log, LogError
from flotilla_broker.raft.errors import EntryInvalid
from flotilla_broker.raft.following import Following
from flotilla_broker.raft.guards import are_consecutive, may_install
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import Entry, SnapshotBegin, SnapshotChunk, SnapshotReply
from flotilla_broker.raft.port import StateMachine

logger = logging.getLogger(__name__)

UNFINISHED = b""  # meta of a group whose snapshot is incomplete; a restart drops such groups


class IncomingSnapshot:
    """A snapshot that is being received, as a group of the log. The constructor raises EntryInvalid or DiskFull."""

    def __init__(self, log: Log, machine: StateMachine, leader: str, begin: SnapshotBegin) -> None:
        self.leader = leader
        self.begin = begin
        self._log = log
        self._machine = machine
        machine.check_state(begin.last_index, begin.state)
        log.admit(len(begin.state))
        self.number = log.create_group(
            UNFINISHED,
            anchor_index=begin.anchor_index,
            anchor_term=begin.anchor_term,
            first_offset=begin.first_offset,
        )

    @property
    def last_index(self) -> int:
        """The last entry that was received."""
        return self._log.group(self.number).last_index

    @property
    def is_complete(self) -> bool:
        """Whether all entries were received."""
        return self.last_index == self.begin.last_index

    def add(self, entries: Sequence[Entry]) -> None:
        """Append the next entries. After EntryInvalid or LogError the snapshot must be dropped."""
        group = self._log.group(self.number)
        if not are_consecutive(group.last_index, group.last_term, entries):
            raise EntryInvalid(f"snapshot entries do not follow entry {group.last_index}")
        if entries and entries[-1].index > self.begin.last_index:
            raise EntryInvalid(f"snapshot entry {entries[-1].index} is beyond the last index, {self.begin.last_index}")
        self._machine.check(entries, group.next_offset)
        for entry in entries:
            self._log.admit(len(entry.payload))
            self._log.append(self.number, entry.index, entry.term, entry.payload, entry.next_offset, entry.time_ms)

    def install(self, old: int, term: int, vote: bytes) -> None:
        """Replace group `old`, and keep its term and vote."""
        index, state = self.begin.last_index, self.begin.state
        self._log.set_term(self.number, term, vote)
        self._log.provide_state(self.number, lambda: (index, state))
        self._log.save_state(self.number)
        self._log.replace_group(old, self.number, self._log.group(old).meta)

    def drop(self) -> None:
        """Remove everything that was written."""
        try:
            self._log.drop_group(self.number)
        except LogError as error:  # the log has failed: the process is about to exit
            raise EntryInvalid(f"snapshot cannot be removed: {error}") from error


class SnapshotReceiver:
    """Receives snapshots for one member, at most one at a time."""

    def __init__(self, member: Member, following: Following) -> None:
        self._member = member
        self._following = following
        self.snapshot: IncomingSnapshot | None = None

    def on_begin(self, now: float, leader: str, message: SnapshotBegin) -> None:
        """Start to receive a snapshot, unless this log already has all of it."""
        if self._following.reject_old_term(leader, message.term):
            return
        member = self._member
        self._following.follow(now, leader, message.term)
        self.drop()
        if not may_install(member.log, member.commit_index, message.last_index, message.last_term):
            self._reply(leader, message.snapshot_id, message.last_index)
            return
        try:
            self.snapshot = IncomingSnapshot(member.log.log, member.machine, leader, message)
        except (DiskFull, EntryInvalid) as error:
            self._abort(leader, message.snapshot_id, error)
            return
        self._advance(leader, message.snapshot_id, ())

    def on_chunk(self, now: float, leader: str, message: SnapshotChunk) -> None:
        """Store the next entries of a snapshot."""
        if not self._following.reject_old_term(leader, message.term):
            self._following.follow(now, leader, message.term)
            self._advance(leader, message.snapshot_id, message.entries)

    def _advance(self, leader: str, snapshot_id: int, entries: Sequence[Entry]) -> None:
        snapshot, term = self.snapshot, self._member.core.term
        if snapshot is None or (snapshot.leader, snapshot.begin.snapshot_id, snapshot.begin.term) != (
            leader,
            snapshot_id,
            term,
        ):
            self._reply(leader, snapshot_id, 0, aborted=True)
            return
        try:
            snapshot.add(entries)
        except (DiskFull, EntryInvalid) as error:
            self._abort(leader, snapshot_id, error)
            return
        index = snapshot.last_index
        if snapshot.is_complete:
            self._install(snapshot)
        self._reply(leader, snapshot_id, index)

    def _install(self, snapshot: IncomingSnapshot) -> None:
        """Replace this log, unless it received the same entries in another way meanwhile."""
        self.snapshot = None
        member, begin = self._member, snapshot.begin
        if not may_install(member.log, member.commit_index, begin.last_index, begin.last_term):
            snapshot.drop()
            return
        snapshot.install(member.log.number, member.log.term, member.log.group.vote)
        member.log.switch(snapshot.number)
        member.commit_index = begin.last_index
        member.core.reload(begin.last_index)
        member.machine.installed(begin.last_index, begin.state)

    def _abort(self, leader: str, snapshot_id: int, error: Exception) -> None:
        logger.warning(
            "snapshot transfer aborted group=%d leader=%s error=%r", self._member.log.number, leader, str(error)
        )
        self.drop()
        self._reply(leader, snapshot_id, 0, aborted=True)

    def _reply(self, leader: str, snapshot_id: int, index: int, *, aborted: bool = False) -> None:
        self._member.send_after_flush(leader, SnapshotReply(self._member.core.term, snapshot_id, index, aborted))

    def drop(self) -> None:
        """Drop the snapshot that is being received, if any."""
        if self.snapshot is not None:
            self.snapshot.drop()
            self.snapshot = None

    def drop_unless(self, term: int) -> None:
        """Drop a snapshot of another term."""
        if self.snapshot is not None and self.snapshot.begin.term != term:
            self.drop()

    def drop_from(self, leader: str) -> None:
        """Drop a snapshot from this leader."""
        if self.snapshot is not None and self.snapshot.leader == leader:
            self.drop()
