"""A leader's view of one follower, and what it may send next. Pure: sends nothing itself.

This replaces the send loop of pysyncobj, which has three defects (lines of `syncobj.py` 0.3.17). A successful reply
moves the next index back, so entries in flight are sent again (1082). Each rejection of several messages to a diverged
follower resets the next index, and the last, oldest one wins (1077). A follower that needs a trimmed entry is sent
messages without `prevLogIdx` in an endless loop (1267).

A follower is in one of three modes, as in etcd. *Probe*: the match index is unknown; one message at a time. *Stream*:
the match index is known; messages are pipelined, up to a window. *Snapshot*: the next entry was trimmed; a snapshot
transfer is in progress.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum


class Mode(Enum):
    """How the leader sends entries to a follower."""

    PROBE = "probe"
    STREAM = "stream"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class Progress:
    """Progress of one follower."""

    next_index: int  # the next entry to send
    match_index: int = 0  # durable on the follower up to here
    mode: Mode = Mode.PROBE
    waiting: bool = False  # for the reply to a probe
    reading: object = None  # the read in progress of the next entries from disk
    commit_sent: int = 0
    inflight_bytes: int = 0
    _inflight: deque[tuple[int, int]] = field(default_factory=deque)  # last index, bytes

    def may_send(self, last_index: int, window_bytes: int) -> bool:
        """Whether entries may be sent now. One message may exceed the window, so that any entry fits."""
        if self.mode is Mode.SNAPSHOT or self.reading is not None or self.next_index > last_index:
            return False
        return not self.waiting if self.mode is Mode.PROBE else self.inflight_bytes < window_bytes

    def begin_read(self) -> object:
        """Record that a read started; return its identity."""
        self.reading = object()
        return self.reading

    def end_read(self, read: object) -> bool:
        """Record that a read ended; return whether it is the current one."""
        counts = self.reading is read
        if counts:
            self.reading = None
        return counts

    def sent(self, last_index: int, size: int, commit_index: int) -> None:
        """Record that entries up to `last_index` were sent."""
        self.commit_sent = max(self.commit_sent, min(commit_index, last_index))
        if last_index < self.next_index:
            return
        if self.mode is Mode.PROBE:
            self.waiting = True
        else:
            self.next_index = last_index + 1
            self._inflight.append((last_index, size))
            self.inflight_bytes += size

    def accepted(self, index: int) -> None:
        """Record that the follower has all entries up to `index`. Never moves back."""
        self.match_index = max(self.match_index, index)
        while self._inflight and self._inflight[0][0] <= self.match_index:
            self.inflight_bytes -= self._inflight.popleft()[1]
        if self.mode is Mode.PROBE and index >= self.next_index - 1:
            self.mode, self.waiting = Mode.STREAM, False
        self.next_index = max(self.next_index, self.match_index + 1)

    def rejected(self, prev_index: int, next_index: int) -> bool:
        """Record that `prev_index` does not match on the follower, and probe at `next_index`.

        Return False for a stale rejection: only one per window counts.
        """
        if self.mode is Mode.SNAPSHOT or prev_index <= self.match_index:
            return False
        if self.mode is Mode.PROBE and prev_index != self.next_index - 1:
            return False
        self._probe(max(self.match_index + 1, min(prev_index, next_index)))
        return True

    def restart(self, last_index: int) -> None:
        """Probe again after a new connection: messages in flight are lost."""
        self._probe(self.match_index + 1 if self.match_index else last_index + 1)

    def retry(self) -> None:
        """Allow another probe: the last one, or its reply, may be lost."""
        self.waiting = False

    def begin_snapshot(self) -> None:
        """Stop sending entries during a snapshot transfer."""
        self._probe(self.next_index)
        self.mode = Mode.SNAPSHOT

    def end_snapshot(self, index: int) -> None:
        """Continue after `index`: the end of an installed snapshot, or the old position if it was aborted."""
        self._probe(index + 1)

    def _probe(self, next_index: int) -> None:
        self.mode, self.waiting, self.reading = Mode.PROBE, False, None
        self.next_index = next_index
        self.inflight_bytes = 0
        self._inflight.clear()
