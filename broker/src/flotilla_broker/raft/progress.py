"""What a leader knows of one follower, and what it may send next. Pure: it sends nothing itself.

This replaces the core's own send loop, whose bookkeeping loses track in three ways: a success moves the next index
back and resends what is under way (1082: G3); several messages to a follower that has diverged each reset it, and
the last, oldest answer wins (G4); and a follower behind the first entry is sent messages without `prevLogIdx`, in
a loop that does not end (G5).

A follower is in one of three modes. *Probe*: where our logs agree is not known; one message at a time. *Stream*:
it is known; messages go out without waiting, up to a window. *Copy*: what it needs next was trimmed; it is given
a copy of the log.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum


class Mode(Enum):
    """How a follower is sent entries."""

    PROBE = "probe"
    STREAM = "stream"
    COPY = "copy"


@dataclass(slots=True)
class Progress:
    """One follower."""

    next_index: int  # what it is sent next
    match_index: int = 0  # it has everything up to here, on disk
    mode: Mode = Mode.PROBE
    waiting: bool = False  # a probe is under way
    reading: object = None  # what it is sent next is being read from the disk: by which read
    commit_told: int = 0
    inflight_bytes: int = 0
    _inflight: deque[tuple[int, int]] = field(default_factory=deque)  # last index, bytes

    def may_send(self, last_index: int, window_bytes: int) -> bool:
        """Tell whether entries may be sent now. A message may overshoot the window, so that any entry fits."""
        if self.mode is Mode.COPY or self.reading is not None or self.next_index > last_index:
            return False
        return not self.waiting if self.mode is Mode.PROBE else self.inflight_bytes < window_bytes

    def begin_read(self) -> object:
        """Take note that entries are being read; return what tells this read from others."""
        self.reading = object()
        return self.reading

    def end_read(self, read: object) -> bool:
        """Take note that a read has ended; return whether it is the one that counts."""
        counts = self.reading is read
        if counts:
            self.reading = None
        return counts

    def sent(self, last_index: int, size: int, commit_index: int) -> None:
        """Take note of a message with entries up to `last_index`."""
        self.commit_told = max(self.commit_told, min(commit_index, last_index))
        if last_index < self.next_index:
            return
        if self.mode is Mode.PROBE:
            self.waiting = True
        else:
            self.next_index = last_index + 1
            self._inflight.append((last_index, size))
            self.inflight_bytes += size

    def accepted(self, index: int) -> None:
        """Take note that the follower has everything up to `index`. Never moves back."""
        self.match_index = max(self.match_index, index)
        while self._inflight and self._inflight[0][0] <= self.match_index:
            self.inflight_bytes -= self._inflight.popleft()[1]
        if self.mode is Mode.PROBE and index >= self.next_index - 1:
            self.mode, self.waiting = Mode.STREAM, False
        self.next_index = max(self.next_index, self.match_index + 1)

    def refused(self, prev_index: int, next_index: int) -> bool:
        """Take note that the follower does not hold `prev_index`; `next_index` is what to try next.

        Returns False for an answer to a message that matters no more: only one per window is honoured.
        """
        if self.mode is Mode.COPY or prev_index <= self.match_index:
            return False
        if self.mode is Mode.PROBE and prev_index != self.next_index - 1:
            return False
        self._probe(max(self.match_index + 1, min(prev_index, next_index)))
        return True

    def restart(self, last_index: int) -> None:
        """Begin again after a new connection: what was under way is lost."""
        self._probe(self.match_index + 1 if self.match_index else last_index + 1)

    def retry(self) -> None:
        """Let a probe be repeated: it, or its answer, may have been lost."""
        self.waiting = False

    def begin_copy(self) -> None:
        """Stop sending entries: the follower is given a copy of the log."""
        self._probe(self.next_index)
        self.mode = Mode.COPY

    def end_copy(self, index: int) -> None:
        """Go on behind a copy that is installed, or that was given up."""
        self._probe(index + 1)

    def _probe(self, next_index: int) -> None:
        self.mode, self.waiting, self.reading = Mode.PROBE, False, None
        self.next_index = next_index
        self.inflight_bytes = 0
        self._inflight.clear()
