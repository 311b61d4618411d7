"""Snapshot transfer, the leader's side. A snapshot is for a follower that needs entries which the leader has trimmed.

It consists of an anchor, the committed entries after it, and the state machine's summary of them. All of it is
committed, so it stays valid under any later leader. `Leadership` sends it: one SnapshotBegin, then SnapshotChunks.
"""

from flotilla_broker.raft.messages import SnapshotBegin
from flotilla_broker.raft.progress import Mode, Progress


class OutgoingSnapshot:
    """One snapshot transfer: the chunks that were sent, and the part that is on the follower's disk."""

    def __init__(self, begin: SnapshotBegin, now: float) -> None:
        self.begin = begin
        self.progressed_at = now
        self.progress = Progress(
            begin.anchor_index + 1, begin.anchor_index, Mode.STREAM, commit_sent=begin.anchor_index
        )

    @property
    def number(self) -> int:
        """Id of the snapshot, unique in a leadership."""
        return self.begin.snapshot_id

    def accepted(self, now: float, index: int) -> None:
        """Record that the follower has all entries up to `index` on disk."""
        self.progressed_at = now
        self.progress.accepted(index)

    @property
    def is_done(self) -> bool:
        """Whether the follower has the whole snapshot."""
        return self.progress.match_index >= self.begin.last_index
