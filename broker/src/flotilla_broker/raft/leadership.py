"""The behaviour of a leader, from its election until it steps down. Each leadership starts with empty state."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from flotilla_broker.log import Entry as LogEntry
from flotilla_broker.raft.guards import find_conflict
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import Append, Entry, Heartbeat, Quiesce, SnapshotBegin, SnapshotChunk, TimeoutNow
from flotilla_broker.raft.progress import Mode, Progress
from flotilla_broker.raft.snapshot_send import OutgoingSnapshot

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LeadershipTransfer:
    """A leadership transfer in progress. The leader accepts no entries until it ends."""

    target: str
    until: float
    is_sent: bool = False  # TimeoutNow


class Leadership:
    """Leads a group in one term."""

    def __init__(self, member: Member, now: float) -> None:
        self.term = member.core.term
        self.is_over = False
        self.transfer: LeadershipTransfer | None = None
        self.progress = {peer: Progress(member.core.noop_index) for peer in member.peers}
        self.snapshots: dict[str, OutgoingSnapshot] = {}
        self.deadline = now  # of the next heartbeat or commit notice
        self.is_quiesced = False  # no heartbeats are sent, and followers know it
        self._member = member
        self._log = member.log
        self._config = member.config
        self._port = member.port
        self._connected = member.connected
        self._heartbeat_at = now
        self._commit_notice_at = inf
        self._snapshots_started = 0
        self._snapshot_retry_at: dict[str, float] = {}  # by follower that aborted a snapshot

    # -- responses of followers ---------------------------------------------------------------------------

    def accepted(self, peer: str, index: int) -> int:
        """Record that a follower has all entries up to `index`; return its match index."""
        progress = self.progress[peer]
        progress.accepted(min(index, self._log.last_index))
        return progress.match_index

    def rejected(self, peer: str, prev_index: int, hint_index: int, hint_term: int) -> None:
        """Probe at another index: the entry before those that were sent does not match on the follower."""
        progress = self.progress[peer]
        hint = hint_index
        if hint_index >= self._log.anchor_index:
            hint, _ = find_conflict(self._log, progress.match_index, hint_index, hint_term)
        progress.rejected(prev_index, hint + 1)

    def connect(self, peer: str) -> None:
        """Probe a follower after a new connection: messages in flight are lost."""
        self.snapshots.pop(peer, None)
        self.progress[peer].restart(self._log.last_index)

    def snapshot_accepted(self, now: float, peer: str, snapshot_id: int, index: int) -> None:
        """Record that a snapshot is durable on a follower up to `index`."""
        out = self.snapshots.get(peer)
        if out is not None and out.number == snapshot_id:
            out.accepted(now, index)
            if out.is_done:
                self._end_snapshot(peer, out.begin.last_index)

    def snapshot_aborted(self, now: float, peer: str, snapshot_id: int) -> None:
        """Retry later with a follower that aborted a snapshot, for example because its disk is full."""
        out = self.snapshots.get(peer)
        if out is not None and out.number == snapshot_id:
            self._end_snapshot(peer, self.progress[peer].next_index - 1)
            self._snapshot_retry_at[peer] = now + self._config.election_s_min

    def _end_snapshot(self, peer: str, index: int) -> None:
        del self.snapshots[peer]
        self.progress[peer].end_snapshot(index)

    # -- messages to followers ----------------------------------------------------------------------------

    def run(self, now: float, commit_index: int) -> bool:
        """Send heartbeats and entries; return True if there is more to send."""
        is_heartbeat_due = now >= self._heartbeat_at
        if is_heartbeat_due:
            self._heartbeat_at = now + self._config.heartbeat_s
        if is_heartbeat_due and self._can_quiesce(commit_index):
            self._quiesce()
            return False
        more = False
        for peer, progress in self.progress.items():
            if peer not in self._connected:
                continue
            if is_heartbeat_due:
                self._retry(now, peer, progress)
            sent = self._pump(now, peer, progress, commit_index)
            if is_heartbeat_due and not sent:
                self._send_heartbeat(peer, progress, commit_index)
            more = more or (sent and self._may_send(peer, progress))
        self._send_commit(now, commit_index)
        self._continue_transfer(now)
        self.deadline = min(self._heartbeat_at, self._commit_notice_at, self.transfer.until if self.transfer else inf)
        return more

    def _can_quiesce(self, commit_index: int) -> bool:
        """Whether every follower has all entries, and the commit index."""
        last = self._log.last_index
        return (
            commit_index == last
            and self.transfer is None
            and all(
                peer in self._connected
                and progress.mode is Mode.STREAM
                and progress.match_index == last
                and progress.commit_sent == last
                for peer, progress in self.progress.items()
            )
        )

    def _quiesce(self) -> None:
        """Stop heartbeats: hundreds of idle groups then cost nothing."""
        self.is_quiesced = True
        self.deadline = inf
        for peer in self.progress:
            self._member.send(peer, Quiesce(self.term, self._log.last_index, self._log.last_term))

    def wake(self, now: float) -> None:
        """Resume heartbeats."""
        self.is_quiesced = False
        self.deadline = self._heartbeat_at = now

    def _send_commit(self, now: float, commit_index: int) -> None:
        """Send the commit index to followers if no entries carry it within `commit_notice_s`."""
        uninformed = [
            peer
            for peer, progress in self.progress.items()
            if progress.mode is Mode.STREAM and progress.commit_sent < commit_index and peer in self._connected
        ]
        if not uninformed:
            self._commit_notice_at = inf
        elif self._commit_notice_at == inf:
            self._commit_notice_at = now + self._config.commit_notice_s
        elif now >= self._commit_notice_at:
            self._commit_notice_at = inf
            for peer in uninformed:
                self._send_heartbeat(peer, self.progress[peer], commit_index)

    def _may_send(self, peer: str, progress: Progress) -> bool:
        return progress.may_send(self._log.last_index, self._config.window_bytes) and self._port.is_writable(peer)

    def _pump(self, now: float, peer: str, progress: Progress, commit_index: int) -> bool:
        """Send one message with entries, or the next chunk of a snapshot; return whether one was sent."""
        if progress.mode is not Mode.SNAPSHOT and progress.next_index <= self._log.anchor_index:
            if now < self._snapshot_retry_at.get(peer, 0.0) or not self._port.is_writable(peer):
                return False
            self._begin_snapshot(now, peer, progress)
        if progress.mode is Mode.SNAPSHOT:
            return self._pump_snapshot(peer)
        if not self._may_send(peer, progress):
            return False
        plan = self._log.plan(progress.next_index, self._config.append_bytes_max)
        if plan.is_in_memory:
            self._send(peer, progress, plan.run(), commit_index)
            return True
        done = partial(self._read, peer, progress.begin_read(), progress.next_index, commit_index)
        self._port.read(self._log.number, progress.next_index, self._config.append_bytes_max, done)
        return progress.reading is None

    def _read(self, peer: str, read: object, index: int, commit_index: int, entries: list[LogEntry] | None) -> None:
        progress = self.progress[peer]
        if self.is_over or not progress.end_read(read) or progress.next_index != index:
            return
        if entries and index > self._log.anchor_index and peer in self._connected and self._port.is_writable(peer):
            self._send(peer, progress, entries, commit_index)

    def _send(self, peer: str, progress: Progress, entries: Sequence[LogEntry], commit_index: int) -> None:
        prev = progress.next_index - 1
        wired = [Entry.from_log(entry) for entry in entries]
        message = Append(self.term, prev, self._log.term_of(prev), commit_index, wired)
        self._member.send(peer, message)
        progress.sent(entries[-1].index, sum(len(entry.payload) for entry in entries), commit_index)

    def _send_heartbeat(self, peer: str, progress: Progress, commit_index: int) -> None:
        """Send an append without entries. A follower that lost a message rejects it, and gets the missing entries."""
        if progress.mode is Mode.SNAPSHOT or progress.next_index <= self._log.anchor_index:
            self._member.send(peer, Heartbeat(self.term))
            return
        prev = progress.next_index - 1
        self._member.send(peer, Append(self.term, prev, self._log.term_of(prev), commit_index, []))
        progress.sent(prev, 0, commit_index)

    def _retry(self, now: float, peer: str, progress: Progress) -> None:
        progress.retry()
        out = self.snapshots.get(peer)
        if out is not None and now - out.progressed_at > self._config.election_s_max:
            self._end_snapshot(peer, progress.next_index - 1)

    # -- snapshots ----------------------------------------------------------------------------------------

    def _begin_snapshot(self, now: float, peer: str, progress: Progress) -> None:
        index, state = self._member.machine.snapshot()
        log = self._log
        self._snapshots_started += 1
        begin = SnapshotBegin(
            term=self.term,
            snapshot_id=self._snapshots_started,
            anchor_index=log.anchor_index,
            anchor_term=log.group.anchor_term,
            first_offset=log.group.first_offset,
            last_index=index,
            last_term=log.term_of(index),
            state=state,
        )
        logger.info(
            "snapshot transfer started group=%d follower=%s first=%d last=%d",
            log.number,
            peer,
            log.anchor_index + 1,
            index,
        )
        progress.begin_snapshot()
        self.snapshots[peer] = OutgoingSnapshot(begin, now)
        self._member.send(peer, begin)

    def _pump_snapshot(self, peer: str) -> bool:
        out = self.snapshots.get(peer)
        if out is None or not out.progress.may_send(out.begin.last_index, self._config.window_bytes):
            return False
        if not self._port.is_writable(peer):
            return False
        done = partial(self._snapshot_read, peer, out, out.progress.begin_read())
        self._port.read(self._log.number, out.progress.next_index, self._config.append_bytes_max, done)
        return out.progress.reading is None

    def _snapshot_read(self, peer: str, out: OutgoingSnapshot, read: object, entries: list[LogEntry] | None) -> None:
        if self.is_over or self.snapshots.get(peer) is not out or not out.progress.end_read(read):
            return
        if entries is None:
            self._end_snapshot(peer, self.progress[peer].next_index - 1)  # trimmed meanwhile: start another snapshot
            return
        if not self._port.is_writable(peer):
            return  # read again when the connection is writable
        wired = [Entry.from_log(entry) for entry in entries if entry.index <= out.begin.last_index]
        self._member.send(peer, SnapshotChunk(self.term, out.number, wired))
        out.progress.sent(wired[-1].index, sum(len(entry.payload) for entry in wired), 0)

    # -- leadership transfer ------------------------------------------------------------------------------

    def transfer_leadership(self, now: float, target: str) -> None:
        """Accept no more entries, and send TimeoutNow to `target` when it has all entries."""
        self.transfer = LeadershipTransfer(target, now + self._config.election_s_min)

    def _continue_transfer(self, now: float) -> None:
        transfer = self.transfer
        if transfer is None:
            return
        if now >= transfer.until:
            self.transfer = None
        elif not transfer.is_sent and self.progress[transfer.target].match_index == self._log.last_index:
            transfer.is_sent = True
            self._member.send(transfer.target, TimeoutNow(self.term))
