"""The writer of the log: numbers frames, queues them, and starts new segments.

Each segment starts with a checkpoint of all groups, so that older segments are needed only for their entries. A frame
never spans segments. Frames are packed when they are queued, while the previous flush is still syncing.

A flush writes whole pages: it repeats the used part of the first page, and pads the last page with zeros. The kernel
would otherwise read a page from disk before it changes a part of it.
"""

from collections.abc import Callable, Iterator

from isal.isal_zlib import crc32

from flotilla_broker.log import frames
from flotilla_broker.log.config import PAGE_BYTES
from flotilla_broker.log.errors import LogFailed
from flotilla_broker.log.files import Buffer, FileSystem
from flotilla_broker.log.flush import Step
from flotilla_broker.log.frames import Kind, frame_bytes
from flotilla_broker.log.segments import Segment

_CHECKPOINT_BYTES_MAX = 1 << 31  # positions have 32 bits

Checkpoint = Iterator[tuple[Kind, int, bytes]]  # kind, group, payload


class Writer:
    """Queues frames for the active segment."""

    def __init__(
        self,
        fs: FileSystem,
        *,
        salt: int,
        segment_bytes: int,
        next_lsn: int,
        next_segment: int,
        take_spare: Callable[[], str | None],
        on_segment: Callable[[Segment], None],
        take_checkpoint: Callable[[], Checkpoint],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._fs = fs
        self._salt = salt
        self._segment_bytes = segment_bytes
        self._take_spare = take_spare
        self._on_segment = on_segment
        self._take_checkpoint = take_checkpoint
        self._on_failure = on_failure
        self._next_segment = next_segment
        self._capacity = 0
        self._steps: list[Step] = []  # the last one is for the active segment
        self._buffers: list[Buffer] = []  # of the last step
        self._flush_lsn = next_lsn
        self._queued_bytes = self._flushing_bytes = 0
        self._sealed: list[Segment] = []
        self.next_lsn = next_lsn
        self.queued: dict[int, Buffer] = {}  # payloads by lsn, until they can be read from disk
        self.flushing: dict[int, Buffer] = {}
        self.active = Segment(0, cold=False)

    @property
    def room_bytes(self) -> int:
        """Space left in the active segment that is preallocated on disk."""
        return self.active.file_bytes - self.active.end

    @property
    def capacity_bytes(self) -> int:
        """Maximum size of the active segment; a large checkpoint still leaves space for frames."""
        return self._capacity

    @property
    def unflushed_bytes(self) -> int:
        """Bytes in memory for the current flush and the next one."""
        return self._queued_bytes + self._flushing_bytes

    @property
    def has_queued(self) -> bool:
        """Whether frames are queued."""
        return self.next_lsn > self._flush_lsn

    def take_segment_id(self) -> int:
        """Return a new segment number; numbers are never reused."""
        self._next_segment += 1
        return self._next_segment - 1

    def payload(self, lsn: int) -> Buffer | None:
        """Return a payload that is still in memory."""
        found = self.queued.get(lsn)
        return self.flushing.get(lsn) if found is None else found

    def put(
        self,
        kind: Kind,
        group: int,
        payload: Buffer,
        index: int = 0,
        term: int = 0,
        next_offset: int = 0,
        time_ms: int = 0,
    ) -> int:
        """Queue a frame, in a new segment if the active one is full; return its position."""
        active = self.active
        if active.end + frame_bytes(len(payload)) > self._capacity and active.end > active.checkpoint_bytes:
            self.roll()
        return self._put(kind, group, payload, index, term, next_offset, time_ms)

    def _put(
        self, kind: Kind, group: int, payload: Buffer, index: int, term: int, next_offset: int, time_ms: int
    ) -> int:
        active, lsn, size = self.active, self.next_lsn, len(payload)
        crc = crc32(payload)
        fields = (lsn, self._flush_lsn, group, kind, index, term, next_offset, time_ms, size, crc)
        self._buffers += (frames.pack(self._salt, active.id, *fields), payload, frames.padding(size))
        if kind == Kind.ENTRY:
            self.queued[lsn] = payload
        position = active.end
        active.end = position + frame_bytes(size)
        self._queued_bytes += frame_bytes(size)
        self.next_lsn = lsn + 1
        return position

    def roll(self) -> None:
        """Start a new segment with a checkpoint.

        After an error, frames would go to the wrong file: the log must not be used any more.
        """
        try:
            self._roll()
        except Exception as error:
            self._on_failure(error)
            raise LogFailed(f"cannot start a new segment: {error}") from error

    def _roll(self) -> None:
        if self.active.id:
            self._sealed.append(self.active)
        self.active = segment = Segment(self.take_segment_id(), cold=False)
        self._open_file(segment)
        self._on_segment(segment)
        for kind, group, payload in self._take_checkpoint():
            self._put(kind, group, payload, 0, 0, 0, 0)
        if segment.end > _CHECKPOINT_BYTES_MAX:
            raise LogFailed(f"checkpoint has {segment.end} bytes, the limit is {_CHECKPOINT_BYTES_MAX}")
        segment.checkpoint_bytes = segment.end
        self._capacity = max(self._segment_bytes, segment.end + self._segment_bytes // 2)

    def _open_file(self, segment: Segment) -> None:
        """Use a spare, or create a file, which is slower to write."""
        spare = self._take_spare()
        if spare is None:
            self._start_step(Step(self._fs.create(segment.name), 0, made=True))
        else:
            segment.file_bytes = self._segment_bytes
            self._start_step(Step(self._fs.open(spare), 0, adopt=(spare, segment.name)))

    def _start_step(self, step: Step) -> None:
        self._steps.append(step)
        self._buffers = step.buffers

    def begin(self) -> tuple[list[Step], list[Segment]]:
        """Return the queued frames and the segments that they end; later frames belong to the next flush."""
        steps, self._steps = self._steps, []
        sealed, self._sealed = self._sealed, []
        in_page = self.active.end % PAGE_BYTES
        tail = _last_bytes(self._buffers, in_page)
        for step in steps:
            step.fill_page(PAGE_BYTES)
        self._start_step(Step(steps[-1].file, self.active.end - in_page, [tail]))
        self._flush_lsn = self.next_lsn
        self.flushing, self.queued = self.queued, {}
        self._flushing_bytes, self._queued_bytes = self._queued_bytes, 0
        return steps, sealed

    def close(self) -> None:
        """Close the active segment's file. Nothing can be written after that."""
        self._steps.clear()

    def end(self) -> None:
        """Record that the flush ended: its frames can be read from disk."""
        self.flushing, self._flushing_bytes = {}, 0


def _last_bytes(buffers: list[Buffer], size: int) -> bytes:
    """Return the last `size` bytes of all buffers together."""
    parts: list[Buffer] = []
    for buffer in reversed(buffers):
        if size <= 0:
            break
        parts.append(memoryview(buffer)[-size:])
        size -= len(buffer)
    return b"".join(reversed(parts))
