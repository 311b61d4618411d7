"""The end of the log: numbers frames, queues them, and starts new segments.

Each segment opens with a checkpoint of every group, so that older segments are needed only for the entries in
them. A frame never spans segments. Frames are packed as they are queued, while the flush before is still
syncing.

A flush writes whole pages: it begins with what the page that it starts in holds already, and ends with zeros. The
kernel would otherwise read a page from disk before it changes a part of it.
"""

from collections.abc import Callable, Iterator

from isal.isal_zlib import crc32

from flotilla_broker.log import frames
from flotilla_broker.log.config import PAGE_BYTES
from flotilla_broker.log.errors import LogFailed
from flotilla_broker.log.files import Buffer, File, FileSystem
from flotilla_broker.log.flush import Step
from flotilla_broker.log.frames import Kind, frame_bytes
from flotilla_broker.log.segments import Segment

_CHECKPOINT_BYTES_MAX = 1 << 31  # positions are kept in 32 bits

Checkpoint = Iterator[tuple[Kind, int, bytes]]  # kind, group, payload


class Writer:
    """Queues frames for the newest segment."""

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
        self._file: File
        self._steps: list[Step] = []
        self._buffers: list[Buffer] = []  # of the last step
        self._flush_lsn = next_lsn
        self._queued_bytes = self._flushing_bytes = 0
        self._sealed: list[Segment] = []
        self.next_lsn = next_lsn
        self.queued: dict[int, Buffer] = {}  # payloads by lsn, until they can be read from the disk
        self.flushing: dict[int, Buffer] = {}
        self.active = Segment(0, cold=False)

    @property
    def room_bytes(self) -> int:
        """What is left in the active segment, of space that is on disk already."""
        return self.active.file_bytes - self.active.end

    @property
    def capacity_bytes(self) -> int:
        """How large the active segment may get: a large checkpoint still leaves room for frames."""
        return self._capacity

    @property
    def unflushed_bytes(self) -> int:
        """What waits in memory for this flush and the next."""
        return self._queued_bytes + self._flushing_bytes

    @property
    def has_queued(self) -> bool:
        """Tell whether there is anything to flush."""
        return self.next_lsn > self._flush_lsn

    def take_segment_id(self) -> int:
        """Return a number that no segment had or will have."""
        self._next_segment += 1
        return self._next_segment - 1

    def payload(self, lsn: int) -> Buffer | None:
        """Return a payload that is not on disk yet."""
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

        If that fails half way, frames would go to the wrong file: the log must not be used any more.
        """
        try:
            self._roll()
        except Exception as error:
            self._on_failure(error)
            raise LogFailed(f"no new segment could be started: {error}") from error

    def _roll(self) -> None:
        if self.active.id:
            self._sealed.append(self.active)
        self.active = segment = Segment(self.take_segment_id(), cold=False)
        self._open_file(segment)
        self._on_segment(segment)
        for kind, group, payload in self._take_checkpoint():
            self._put(kind, group, payload, 0, 0, 0, 0)
        if segment.end > _CHECKPOINT_BYTES_MAX:
            raise LogFailed(
                f"a checkpoint of all groups takes {segment.end} bytes; {_CHECKPOINT_BYTES_MAX} is the limit"
            )
        segment.checkpoint_bytes = segment.end
        self._capacity = max(self._segment_bytes, segment.end + self._segment_bytes // 2)

    def _open_file(self, segment: Segment) -> None:
        """Take a spare, or if there is none a new file, which is slower to write."""
        spare = self._take_spare()
        if spare is None:
            self._file = self._fs.create(segment.name)
            self._start_step(Step(self._file, 0, made=True))
        else:
            self._file = self._fs.open(spare)
            segment.file_bytes = self._segment_bytes
            self._start_step(Step(self._file, 0, adopt=(spare, segment.name)))

    def _start_step(self, step: Step) -> None:
        self._steps.append(step)
        self._buffers = step.buffers

    def begin(self) -> tuple[list[Step], list[Segment]]:
        """Hand out what is queued, and the segments that it ends; all that follows belongs to the next flush."""
        steps, self._steps = self._steps, []
        sealed, self._sealed = self._sealed, []
        in_page = self.active.end % PAGE_BYTES
        tail = _last_bytes(self._buffers, in_page)
        for step in steps:
            step.fill_page(PAGE_BYTES)
        self._start_step(Step(self._file, self.active.end - in_page, [tail]))
        self._flush_lsn = self.next_lsn
        self.flushing, self.queued = self.queued, {}
        self._flushing_bytes, self._queued_bytes = self._queued_bytes, 0
        return steps, sealed

    def end(self) -> None:
        """Take note that what was handed out is on disk, and can be read from there."""
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
