"""Recovery: reads groups from the files of a log.

1. Scan the newest segments, back to one that starts with a complete checkpoint: usually at most two.
2. `frames.classify` decides which frames after that checkpoint are valid, and what is damaged.
3. The checkpoint lists the older segments; their index files list their entries. Runs are ordered by lsn, never by
   position.
4. Replay the frames after the checkpoint, with the rules under which they were written.
5. Quarantine each group that lacks an entry between its first and last index.

Recovery writes nothing. The log then removes torn frames, starts a new segment with a new checkpoint, and removes
obsolete files only when that checkpoint is on disk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flotilla_broker.log import frames, index
from flotilla_broker.log.errors import LogError, StoreUnreadable
from flotilla_broker.log.files import FileCache
from flotilla_broker.log.frames import ALL_GROUPS, Frame, Kind, Scan, Verdict
from flotilla_broker.log.group import Group
from flotilla_broker.log.index import MemoryRows, Run
from flotilla_broker.log.records import (
    CheckpointHead,
    GroupRecord,
    SegmentRecord,
    decode_cleaned,
    decode_group,
    decode_head,
)
from flotilla_broker.log.segments import Folder, Segment, index_name

_REBUILD = "the log is damaged, rebuild its replicas from other brokers"
_IGNORED = (Kind.CHECKPOINT_BEGIN, Kind.CHECKPOINT_GROUP, Kind.CHECKPOINT_END, Kind.CLEANED, Kind.MARK)


@dataclass(slots=True)
class Recovered:
    """The result of recovery."""

    groups: dict[int, Group] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    unindexed: dict[int, list[tuple[Group, Run]]] = field(default_factory=dict)  # runs in memory, by segment
    next_group: int = 1
    next_lsn: int = 1
    next_segment: int = 1
    spares: tuple[int, ...] = ()
    fresh: bool = False  # the folder was empty
    torn_frames: int = 0
    suspects: dict[int, str] = field(default_factory=dict)  # reason by group that lost data; or ALL_GROUPS
    damage: list[str] = field(default_factory=list)  # the same as messages
    tail: list[str] = field(default_factory=list)  # the newest segments, which may not be synced yet
    torn: list[str] = field(default_factory=list)  # files without valid frames: removed first
    cut: Segment | None = None  # truncated to its end first: the rest was never acknowledged
    obsolete: list[str] = field(default_factory=list)  # files to remove once a new checkpoint is on disk

    def suspect(self, group: int, why: str) -> None:
        """Record that synced data of a group, or of an unknown group (ALL_GROUPS), is lost."""
        concerned = [g for g in self.groups.values() if group in (ALL_GROUPS, g.number)]
        known = bool(concerned) and all(g.quarantined for g in concerned)  # reported when it was found
        if group not in self.suspects and not known:
            self.suspects[group] = why
            self.damage.append(f"{'all groups' if group == ALL_GROUPS else f'group {group}'}: {why}")


@dataclass(frozen=True, slots=True)
class Tail:
    """The newest segments, from the last complete checkpoint on."""

    scans: list[Scan]
    buffers: dict[int, bytes]

    def payload(self, frame: Frame) -> memoryview:
        """Return the payload of a frame."""
        return frames.payload_of(frame, self.buffers[frame.segment])


def recover(files: FileCache, folder: Folder, salt: int) -> Recovered:
    """Recover a log."""
    tail = _read_tail(files, folder, salt)
    head, records, end = _read_checkpoint(tail)
    verdict = frames.classify(tail.scans, end.lsn + 1)
    table = _segment_table(head, verdict, tail)
    found = Recovered(next_group=head.next_group)
    found.groups = {record.number: Group(record) for record in records}
    found.tail = [Segment(scan.segment, cold=False).name for scan in tail.scans]
    for number, why in verdict.damage.items():
        found.suspect(number, why)
    for scan in tail.scans:
        if scan.segment in folder.indexes:  # an index is written only after the next segment's checkpoint is on disk
            found.suspect(ALL_GROUPS, f"the segment after segment {scan.segment} is missing")
    present = {*folder.logs, *folder.colds}
    runs = [run for record in table.values() for run in _runs_of(files, record, salt, found, present)]
    _lay_runs(found, records, runs)
    _cut(found, tail, verdict, end)
    _replay(found, tail, verdict)
    _check_groups(found)
    _count_live_bytes(found)
    _find_obsolete(found, folder)
    found.next_segment = max((*folder.logs, *folder.colds, *folder.indexes)) + 1
    return found


def _cut(found: Recovered, tail: Tail, verdict: Verdict, checkpoint_end: Frame) -> None:
    """Decide what to remove from the newest segments before anything is written.

    Torn frames must be removed from disk: the next recovery would otherwise see synced frames with missing
    predecessors. If anything is damaged, nothing is removed: the proof of the damage must survive a crash before
    the new checkpoint.
    """
    found_frames = [frame for scan in tail.scans for frame in (*scan.good, *scan.damaged)]
    if verdict.damage:
        found.next_lsn = max(frame.lsn for frame in found_frames) + 1
        return
    base, *incomplete = tail.scans
    if len({frame.flush for scan in incomplete for frame in scan.good}) > 1:
        found.suspect(ALL_GROUPS, f"the checkpoint of segment {incomplete[0].segment} is incomplete")
        found.next_lsn = max(frame.lsn for frame in found_frames) + 1
        return
    own = [frame for frame in verdict.kept if frame.segment == base.segment]
    last = own[-1] if own else checkpoint_end
    found.next_lsn = last.lsn + 1
    found.torn_frames = sum(frame.lsn > last.lsn for frame in found_frames)
    found.torn = [Segment(scan.segment, cold=False).name for scan in incomplete]
    found.cut = Segment(base.segment, cold=False, end=last.end)


def _read_tail(files: FileCache, folder: Folder, salt: int) -> Tail:
    tail = Tail([], {})
    for segment in reversed(folder.logs):
        file = files.get(Segment(segment, cold=False).name)
        try:
            buffer = file.read(0, file.size())
        except OSError as error:
            raise StoreUnreadable(f"segment {segment} is unreadable ({error}): {_REBUILD}") from error
        scan = frames.scan(buffer, segment, salt)
        tail.scans.insert(0, scan)
        tail.buffers[segment] = buffer
        if scan.has_checkpoint:
            return tail
    raise StoreUnreadable(f"no segment starts with a complete checkpoint: {_REBUILD}")


def _read_checkpoint(tail: Tail) -> tuple[CheckpointHead, list[GroupRecord], Frame]:
    good = tail.scans[0].good
    at = next(at for at, frame in enumerate(good) if frame.kind == Kind.CHECKPOINT_END)
    records = [decode_group(tail.payload(frame)) for frame in good[1:at]]
    return decode_head(tail.payload(good[0])), records, good[at]


def _segment_table(head: CheckpointHead, verdict: Verdict, tail: Tail) -> dict[int, SegmentRecord]:
    """List the sealed segments, with the cleaner's changes since the checkpoint."""
    table = {record.id: record for record in head.segments}
    for frame in verdict.kept:
        if frame.kind == Kind.CLEANED:
            cleaned = decode_cleaned(tail.payload(frame))
            for segment in cleaned.removed:
                table.pop(segment, None)
            table.update({record.id: record for record in cleaned.added})
    return table


def _runs_of(
    files: FileCache, record: SegmentRecord, salt: int, found: Recovered, present: set[int]
) -> Iterator[tuple[Group, Run]]:
    """Yield the runs of existing groups in a sealed segment."""
    segment = Segment(record.id, record.cold, record.end, file_bytes=record.end, settled=True)
    if record.id not in present:
        found.suspect(ALL_GROUPS, f"segment {record.id} is missing")
        return
    found.segments[record.id] = segment
    whole = files.get(segment.name).size() >= segment.end
    loaded = index.load(files, segment.index_name, record.id) if whole else None
    if loaded is None:
        yield from _scanned_runs(files, segment, salt, found)
        return
    directory, rows = loaded
    segment.index_bytes = files.get(segment.index_name).size()
    for listed in directory.runs:
        group = found.groups.get(listed.group)
        if group is not None:
            run = Run(record.id, listed.first_index, listed.term, listed.lsn, rows)
            run.row, run.count, run.live_bytes = listed.row, listed.count, listed.live_bytes
            yield group, run


def _scanned_runs(files: FileCache, segment: Segment, salt: int, found: Recovered) -> Iterator[tuple[Group, Run]]:
    """Build the runs of a sealed segment without an index from its frames.

    No frame may be missing: otherwise an entry that it replaced would reappear.
    """
    found.unindexed[segment.id] = []
    shadows: dict[int, list[Run]] = {}
    try:
        buffer = files.get(segment.name).read(0, segment.end)
    except OSError as error:
        found.suspect(ALL_GROUPS, f"segment {segment.id} is unreadable ({error})")
        return
    scan = frames.scan(buffer, segment.id, salt)
    gap = scan.first_gap(segment.end)
    if gap is not None:
        found.suspect(ALL_GROUPS, f"segment {segment.id} has no frame at position {gap}")
    for frame in scan.damaged:
        if frame.kind == Kind.ENTRY:
            found.suspect(frame.group, f"entry {frame.index} in segment {segment.id} is damaged")
    for frame in scan.good:
        if frame.kind == Kind.ENTRY and frame.group in found.groups:
            _add_to_runs(shadows.setdefault(frame.group, []), frame, cold=segment.cold)
    for number, runs in shadows.items():
        for run in runs:
            found.unindexed[segment.id].append((found.groups[number], run))
            yield found.groups[number], run


def _add_to_runs(runs: list[Run], frame: Frame, *, cold: bool) -> None:
    """Add an entry to a group's runs in one segment; truncated entries are still among them."""
    lsn = frame.flush if cold else frame.lsn  # in a cold segment `flush` identifies the original run
    run = runs[-1] if runs else None
    if run is None or run.term != frame.term or run.next_index != frame.index or (cold and run.lsn != lsn):
        run = Run(frame.segment, frame.index, frame.term, lsn, MemoryRows())
        runs.append(run)
    run.add(frame.position, frame.size, frame.lsn, frame.next_offset, frame.time_ms)


def _lay_runs(found: Recovered, records: Sequence[GroupRecord], runs: Sequence[tuple[Group, Run]]) -> None:
    """Overlay the runs by lsn, and cut each group at its last index in the checkpoint."""
    for group, run in sorted(runs, key=lambda item: item[1].lsn):
        group.overlay(run)
    for record in records:
        index.cut_tail(found.groups[record.number].runs, record.last_index + 1)


def _replay(found: Recovered, tail: Tail, verdict: Verdict) -> None:
    """Apply the frames after the checkpoint, in order."""
    replay = Replay(found, tail)
    for frame in verdict.kept:
        if Segment(frame.segment, cold=False).name in found.torn:
            break
        if frame.kind not in _IGNORED:
            replay.apply(frame)
        if frame.segment not in found.segments:
            found.segments[frame.segment] = Segment(frame.segment, cold=False, settled=True)
            found.unindexed.setdefault(frame.segment, [])
        segment = found.segments[frame.segment]
        segment.end = segment.file_bytes = frame.end
    for frame in verdict.kept:  # even if its OPEN frame is damaged: no number is used twice
        found.next_group = max(found.next_group, frame.group + 1)


def _check_groups(found: Recovered) -> None:
    """Quarantine groups with missing entries."""
    for group in found.groups.values():
        group.quarantined = (
            group.quarantined or found.suspects.get(group.number, "") or found.suspects.get(ALL_GROUPS, "")
        )
        group.durable_index = group.last_index
        group.release()
        missing = group.missing_entry()
        if missing is not None and not group.quarantined:
            group.quarantined = f"entry {missing} is missing"
            found.suspect(group.number, group.quarantined)


class Replay:
    """Applies frames to groups, with the rules under which they were written."""

    def __init__(self, found: Recovered, tail: Tail) -> None:
        self._found = found
        self._tail = tail

    def apply(self, frame: Frame) -> None:
        """Apply one frame."""
        if frame.kind == Kind.OPEN:
            record = decode_group(self._tail.payload(frame))
            self._found.groups[record.number] = Group(record)
            self._found.next_group = max(self._found.next_group, record.number + 1)
            return
        group = self._found.groups.get(frame.group)
        if group is None:
            self._found.suspect(frame.group, f"frame lsn={frame.lsn} belongs to no group")
        elif frame.kind in (Kind.ENTRY, Kind.TRUNCATE, Kind.TRIM):
            self._apply_entries(group, frame)
        else:
            self._apply_state(group, frame)

    def _apply_entries(self, group: Group, frame: Frame) -> None:
        if group.quarantined:
            return
        try:
            if frame.kind == Kind.ENTRY:
                group.check_append(frame.index, frame.term, frame.next_offset)
                place = (frame.position, frame.size, frame.lsn, frame.next_offset, frame.time_ms)
                run = group.append(frame.segment, frame.index, frame.term, *place)
                if run is not None:
                    self._found.unindexed.setdefault(frame.segment, []).append((group, run))
            elif frame.kind == Kind.TRUNCATE:
                group.truncate(frame.index, frame.term, frame.next_offset)
            else:
                group.trim(frame.index, frame.term, frame.next_offset)
        except LogError as error:  # an earlier frame is missing
            self._found.suspect(group.number, str(error))
            group.quarantined = self._found.suspects[group.number]  # skip later frames

    def _apply_state(self, group: Group, frame: Frame) -> None:
        payload = bytes(self._tail.payload(frame))
        if frame.kind == Kind.TERM:
            group.term, group.vote = frame.term, payload
        elif frame.kind == Kind.STATE:
            group.state_index = group.saved_state_index = frame.index
            group.state = payload
        elif frame.kind == Kind.META:
            group.meta = payload
        elif frame.kind == Kind.QUARANTINE:
            group.quarantined = payload.decode()
        elif frame.kind == Kind.REPLACE:
            self._found.groups.pop(frame.index, None)
            group.meta = payload
        elif frame.kind == Kind.DROP:
            del self._found.groups[group.number]
        else:
            self._found.suspect(group.number, f"frame lsn={frame.lsn} has unknown kind {frame.kind}")


def _count_live_bytes(found: Recovered) -> None:
    for group in found.groups.values():
        for run in group.runs:
            found.segments[run.segment].live_bytes += run.live_bytes


def _find_obsolete(found: Recovered, folder: Folder) -> None:
    """List the files of cleaned or incomplete segments."""
    every = [Segment(number, cold=False) for number in folder.logs] + [
        Segment(number, cold=True) for number in folder.colds
    ]
    gone = [segment for segment in every if segment.id not in found.segments]
    found.obsolete += [segment.name for segment in gone]
    found.obsolete += [index_name(number) for number in folder.indexes if number not in found.segments]
    found.obsolete += folder.leftovers
