"""One leadership: what a leader sends, from its election until it steps down. A new one starts from nothing."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from flotilla_broker.log import Entry as LogEntry
from flotilla_broker.raft.copying import CopyOut
from flotilla_broker.raft.guards import find_conflict
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import Append, CopyBegin, CopyEntries, Entry, Heartbeat, Quiet, TimeoutNow
from flotilla_broker.raft.progress import Mode, Progress

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Handover:
    """The leader is about to make another member leader: it takes no entries until then."""

    target: str
    until: float
    ordered: bool = False


class Leadership:
    """What this member does as a leader of one term."""

    def __init__(self, member: Member, now: float) -> None:
        self.term = member.core.term
        self.over = False
        self.handover: Handover | None = None
        self.progress = {peer: Progress(member.core.noop_index) for peer in member.peers}
        self.copies: dict[str, CopyOut] = {}
        self.deadline = now  # of the next heartbeat, or of telling a commit
        self.is_quiet = False  # nothing happens, and followers know it
        self._member = member
        self._log = member.log
        self._config = member.config
        self._port = member.port
        self._connected = member.connected
        self._heartbeat_at = now
        self._notice_at = inf
        self._copies_made = 0
        self._copy_at: dict[str, float] = {}  # when to try again with a follower that gave up a copy

    # -- what followers say -------------------------------------------------------------------------------

    def accepted(self, peer: str, index: int) -> int:
        """Take note that a follower has everything up to `index`; return how far that is by now."""
        progress = self.progress[peer]
        progress.accepted(min(index, self._log.last_index))
        return progress.match_index

    def refused(self, peer: str, prev_index: int, hint_index: int, hint_term: int) -> None:
        """Find out what to try next with a follower that does not hold the entry before those it was sent."""
        progress = self.progress[peer]
        hint = hint_index
        if hint_index >= self._log.anchor_index:
            hint, _ = find_conflict(self._log, progress.match_index, hint_index, hint_term)
        progress.refused(prev_index, hint + 1)

    def connect(self, peer: str) -> None:
        """Begin again with a follower: what was under way is lost."""
        self.copies.pop(peer, None)
        self.progress[peer].restart(self._log.last_index)

    def copy_accepted(self, now: float, peer: str, copy: int, index: int) -> None:
        """Take note of how far a copy is on a follower's disk."""
        out = self.copies.get(peer)
        if out is not None and out.number == copy:
            out.accepted(now, index)
            if out.is_done:
                self._end_copy(peer, out.begin.last_index)

    def copy_given_up(self, now: float, peer: str, copy: int) -> None:
        """Start over with a follower that lost the thread of a copy, or has no room for it; but not at once."""
        out = self.copies.get(peer)
        if out is not None and out.number == copy:
            self._end_copy(peer, self.progress[peer].next_index - 1)
            self._copy_at[peer] = now + self._config.election_s_min

    def _end_copy(self, peer: str, index: int) -> None:
        del self.copies[peer]
        self.progress[peer].end_copy(index)

    # -- what followers are sent --------------------------------------------------------------------------

    def run(self, now: float, commit_index: int) -> bool:
        """Send what is due; return True if there is more, for which the next turn is better."""
        beat = now >= self._heartbeat_at
        if beat:
            self._heartbeat_at = now + self._config.heartbeat_s
        if beat and self._has_nothing_to_say(commit_index):
            self._fall_quiet()
            return False
        more = False
        for peer, progress in self.progress.items():
            if peer not in self._connected:
                continue
            if beat:
                self._retry(now, peer, progress)
            sent = self._pump(now, peer, progress, commit_index)
            if beat and not sent:
                self._beat(peer, progress, commit_index)
            more = more or (sent and self._may_send(peer, progress))
        self._tell_commit(now, commit_index)
        self._hand_over(now)
        self.deadline = min(self._heartbeat_at, self._notice_at, self.handover.until if self.handover else inf)
        return more

    def _has_nothing_to_say(self, commit_index: int) -> bool:
        """Tell whether every follower has everything, and knows that it is committed."""
        last = self._log.last_index
        return (
            commit_index == last
            and self.handover is None
            and all(
                peer in self._connected
                and progress.mode is Mode.STREAM
                and progress.match_index == last
                and progress.commit_told == last
                for peer, progress in self.progress.items()
            )
        )

    def _fall_quiet(self) -> None:
        """Say so once, instead of sending heartbeats: hundreds of idle groups then cost nothing."""
        self.is_quiet = True
        self.deadline = inf
        for peer in self.progress:
            self._member.say(peer, Quiet(self.term, self._log.last_index, self._log.last_term))

    def wake(self, now: float) -> None:
        """Send heartbeats again."""
        self.is_quiet = False
        self.deadline = self._heartbeat_at = now

    def _tell_commit(self, now: float, commit_index: int) -> None:
        """Followers learn of a commit with the next entries; if there are none, a little later."""
        untold = [
            peer
            for peer, progress in self.progress.items()
            if progress.mode is Mode.STREAM and progress.commit_told < commit_index and peer in self._connected
        ]
        if not untold:
            self._notice_at = inf
        elif self._notice_at == inf:
            self._notice_at = now + self._config.commit_notice_s
        elif now >= self._notice_at:
            self._notice_at = inf
            for peer in untold:
                self._beat(peer, self.progress[peer], commit_index)

    def _may_send(self, peer: str, progress: Progress) -> bool:
        return progress.may_send(self._log.last_index, self._config.window_bytes) and self._port.is_writable(peer)

    def _pump(self, now: float, peer: str, progress: Progress, commit_index: int) -> bool:
        """Send one message of entries, or the next part of a copy; return whether one was sent."""
        if progress.mode is not Mode.COPY and progress.next_index <= self._log.anchor_index:
            if now < self._copy_at.get(peer, 0.0) or not self._port.is_writable(peer):
                return False
            self._begin_copy(now, peer, progress)
        if progress.mode is Mode.COPY:
            return self._pump_copy(peer)
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
        if self.over or not progress.end_read(read) or progress.next_index != index:
            return
        if entries and index > self._log.anchor_index and peer in self._connected and self._port.is_writable(peer):
            self._send(peer, progress, entries, commit_index)

    def _send(self, peer: str, progress: Progress, entries: Sequence[LogEntry], commit_index: int) -> None:
        prev = progress.next_index - 1
        wired = [Entry.from_log(entry) for entry in entries]
        message = Append(self.term, prev, self._log.term_of(prev), commit_index, wired)
        self._member.say(peer, message)
        progress.sent(entries[-1].index, sum(len(entry.payload) for entry in entries), commit_index)

    def _beat(self, peer: str, progress: Progress, commit_index: int) -> None:
        """Send an append without entries: it also asks a follower that lost a message for what it lacks."""
        if progress.mode is Mode.COPY or progress.next_index <= self._log.anchor_index:
            self._member.say(peer, Heartbeat(self.term))
            return
        prev = progress.next_index - 1
        self._member.say(peer, Append(self.term, prev, self._log.term_of(prev), commit_index, []))
        progress.sent(prev, 0, commit_index)

    def _retry(self, now: float, peer: str, progress: Progress) -> None:
        progress.retry()
        out = self.copies.get(peer)
        if out is not None and now - out.moved_at > self._config.election_s_max:
            self._end_copy(peer, progress.next_index - 1)

    # -- copies -------------------------------------------------------------------------------------------

    def _begin_copy(self, now: float, peer: str, progress: Progress) -> None:
        index, state = self._member.machine.snapshot()
        log = self._log
        self._copies_made += 1
        begin = CopyBegin(
            term=self.term,
            copy=self._copies_made,
            anchor_index=log.anchor_index,
            anchor_term=log.group.anchor_term,
            first_offset=log.group.first_offset,
            last_index=index,
            last_term=log.term_of(index),
            state=state,
        )
        logger.info("%s: %s gets a copy of entries %d to %d", log.number, peer, begin.anchor_index + 1, index)
        progress.begin_copy()
        self.copies[peer] = CopyOut(begin, now)
        self._member.say(peer, begin)

    def _pump_copy(self, peer: str) -> bool:
        out = self.copies.get(peer)
        if out is None or not out.progress.may_send(out.begin.last_index, self._config.window_bytes):
            return False
        if not self._port.is_writable(peer):
            return False
        done = partial(self._copy_read, peer, out, out.progress.begin_read())
        self._port.read(self._log.number, out.progress.next_index, self._config.append_bytes_max, done)
        return out.progress.reading is None

    def _copy_read(self, peer: str, out: CopyOut, read: object, entries: list[LogEntry] | None) -> None:
        if self.over or self.copies.get(peer) is not out or not out.progress.end_read(read):
            return
        if entries is None:
            self._end_copy(peer, self.progress[peer].next_index - 1)  # trimmed meanwhile: another copy
            return
        if not self._port.is_writable(peer):
            return  # others were faster; it is read again when there is room
        wired = [Entry.from_log(entry) for entry in entries if entry.index <= out.begin.last_index]
        self._member.say(peer, CopyEntries(self.term, out.number, wired))
        out.progress.sent(wired[-1].index, sum(len(entry.payload) for entry in wired), 0)

    # -- handing over -------------------------------------------------------------------------------------

    def hand_over(self, now: float, target: str) -> None:
        """Take no more entries, and make `target` leader once it has all there are."""
        self.handover = Handover(target, now + self._config.election_s_min)

    def _hand_over(self, now: float) -> None:
        handover = self.handover
        if handover is None:
            return
        if now >= handover.until:
            self.handover = None
        elif not handover.ordered and self.progress[handover.target].match_index == self._log.last_index:
            handover.ordered = True
            self._member.say(handover.target, TimeoutNow(self.term))
