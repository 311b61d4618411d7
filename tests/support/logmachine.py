"""A log and its model, driven in parallel on a disk that crashes: by Hypothesis, or by a script."""

import random
from collections.abc import Callable
from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from flotilla_broker.log import Log, LogConfig, open_log
from flotilla_broker.log.files import FileCache
from flotilla_broker.log.flush import Flush
from flotilla_broker.log.jobs import Job
from flotilla_broker.log.recovery import recover
from flotilla_broker.log.segments import Folder
from support.logmodel import Groups, Model, ModelGroup, check_log
from support.simdisk import Crash, SimDisk

CONFIG = LogConfig(segment_bytes=4096, entry_bytes_max=1000, clean_below=0.7, open_files_max=8)
GROUPS_MAX = 4
pick = st.integers(0, 1 << 30)


def state_of(number: int, index: int) -> bytes:
    """Return a possible state of a caller for the entries up to `index`."""
    return f"group {number} up to {index}".encode()


class LogMachine(RuleBasedStateMachine):
    """Drives a log and its model in parallel."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        super().__init__()
        self.disk = disk or SimDisk()
        self.model = Model()
        self.durable_lsn = 0
        self.clock = 0
        self.flush: Flush | None = None
        self.job: Job | None = None
        self.log = self._open()

    def _open(self) -> Log:
        log = open_log(self.disk, CONFIG, random_u32=lambda: 7)
        for number in log.groups:
            self._provide_state(log, number)
        self.flush = self.job = None
        return log

    def _provide_state(self, log: Log, number: int) -> None:
        """Return the state for the durable entries, which are never truncated here."""

        def take() -> tuple[int, bytes]:
            index = log.group(number).durable_index
            return index, state_of(number, index)

        log.provide_state(number, take)

    def _change(self, lsn: int, change: Callable[[Groups], None]) -> None:
        self.model.apply(lsn, change)

    def restart(self, rng: random.Random, survive: float) -> None:
        """Restart the machine, with more power failures while the log is opened, and compare."""
        self.disk.reboot(rng, survive)
        recovered_lsn = recover(FileCache(self.disk, 8), Folder.from_names(self.disk.names()), 7).next_lsn - 1
        assert recovered_lsn >= self.durable_lsn, "something durable is gone"
        self.model.forget_after(recovered_lsn)
        while rng.random() < 0.3:
            self.disk.crash_in = rng.randrange(25)
            with suppress(Crash):
                self._open()
            self.disk.reboot(rng, survive)
        self.log = self._open()
        self.durable_lsn = self.log.durable_lsn
        check_log(self.log, self.model)
        for number, group in self.log.groups.items():
            assert group.state in (b"", state_of(number, group.state_index))

    def _some_group(self, at: int) -> int:
        return sorted(self.log.groups)[at % len(self.log.groups)]

    # -- changes ------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.log.groups) < GROUPS_MAX)
    @rule(anchor=st.integers(0, 5))
    def create_group(self, anchor: int) -> None:
        number = self.log.create_group(b"new", anchor_index=anchor, anchor_term=1, first_offset=anchor * 10)
        self._provide_state(self.log, number)
        made = ModelGroup(b"new", anchor_index=anchor, anchor_term=1, first_offset=anchor * 10)
        self._change(self.log.last_lsn, lambda groups: groups.__setitem__(number, _copy(made)))

    @precondition(lambda self: self.log.groups)
    @rule(at=pick, sizes=st.lists(st.integers(0, 900), min_size=1, max_size=6), higher_term=st.booleans())
    def append(self, at: int, sizes: list[int], higher_term: bool) -> None:
        number = self._some_group(at)
        for size in sizes:
            group = self.log.group(number)
            term = group.last_term + higher_term
            self.clock += 1
            payload = (f"{number}/{group.last_index + 1}/{self.clock} ".encode() * 1 + bytes(size))[:1000]
            entry = (term, group.next_offset + size % 3, self.clock, payload)
            lsn = self.log.append(number, group.last_index + 1, term, payload, entry[1], entry[2])
            self._change(lsn, lambda groups, entry=entry: groups[number].entries.append(entry))  # type: ignore[misc]

    @precondition(lambda self: self.log.groups)
    @rule(at=pick, back=st.integers(1, 8))
    def truncate(self, at: int, back: int) -> None:
        number = self._some_group(at)
        group = self.log.group(number)
        index = max(group.last_index + 1 - back, group.first_index, group.state_index + 1)
        if index <= group.last_index:
            lsn = self.log.truncate(number, index)
            self._change(lsn, lambda groups: groups[number].truncate(index))

    @precondition(lambda self: self.log.groups)
    @rule(at=pick, part=st.floats(0, 1))
    def trim(self, at: int, part: float) -> None:
        number = self._some_group(at)
        group = self.log.group(number)
        index = group.first_index + int(part * (group.durable_index + 1 - group.first_index))
        if index >= group.first_index:
            lsn = self.log.trim(number, index)
            self._change(lsn, lambda groups: groups[number].trim(index))

    @precondition(lambda self: self.log.groups)
    @rule(at=pick, vote=st.binary(max_size=16))
    def set_term(self, at: int, vote: bytes) -> None:
        number = self._some_group(at)
        term = self.log.group(number).term + 1

        def change(groups: Groups) -> None:
            groups[number].term, groups[number].vote = term, vote

        self._change(self.log.set_term(number, term, vote), change)

    @precondition(lambda self: self.log.groups)
    @rule(at=pick)
    def set_meta(self, at: int) -> None:
        number = self._some_group(at)
        meta = f"meta {self.clock}".encode()
        self._change(self.log.set_meta(number, meta), lambda groups: setattr(groups[number], "meta", meta))

    @precondition(lambda self: len(self.log.groups) > 1)
    @rule(at=pick)
    def drop_group(self, at: int) -> None:
        number = self._some_group(at)
        self._change(self.log.drop_group(number), lambda groups: groups.__delitem__(number))

    @precondition(lambda self: len(self.log.groups) > 1)
    @rule(at=pick)
    def replace_group(self, at: int) -> None:
        old, new = self._some_group(at), self._some_group(at + 1)

        def change(groups: Groups) -> None:
            del groups[old]
            groups[new].meta = b"took over"

        self._change(self.log.replace_group(old, new, b"took over"), change)

    # -- steps of the machinery ---------------------------------------------------------------------------

    @rule()
    def begin_flush(self) -> None:
        self.flush = self.log.begin_flush() or self.flush

    @precondition(lambda self: self.flush is not None)
    @rule()
    def end_flush(self) -> None:
        assert self.flush is not None
        self.flush.run()
        durable = self.log.end_flush(self.flush)
        self.flush = None
        self.durable_lsn = durable.lsn
        for number, index in durable.indexes.items():
            assert index == self.log.group(number).durable_index <= self.log.group(number).last_index

    @precondition(lambda self: self.job is None)
    @rule()
    def begin_job(self) -> None:
        self.job = self.log.next_job()

    @precondition(lambda self: self.job is not None)
    @rule()
    def end_job(self) -> None:
        assert self.job is not None
        self.job.run()
        self.log.end_job(self.job)
        self.job = None

    @precondition(lambda self: self.flush is None and self.job is None)
    @rule()
    def settle(self) -> None:
        """Flush and run all jobs, like an idle broker."""
        for _ in range(50):
            self.begin_flush()
            if self.flush is not None:
                self.end_flush()
            self.begin_job()
            if self.job is None:
                break
            self.end_job()

    @rule(seed=pick)
    def work(self, seed: int) -> None:
        """Fill several segments, with flushes and cleaning, which single rules would reach only slowly."""
        rng = random.Random(seed)
        for _ in range(25 if self.log.groups else 0):
            self.append(rng.randrange(9), [rng.randrange(900) for _ in range(3)], rng.random() < 0.1)
            if rng.random() < 0.2:
                self.truncate(rng.randrange(9), rng.randrange(1, 8))
            if rng.random() < 0.2:
                self.trim(rng.randrange(9), rng.random())
            if rng.random() < 0.5:
                self.begin_flush()
            if self.flush is not None and rng.random() < 0.7:
                self.end_flush()
            if self.job is None:
                self.begin_job()
            if self.job is not None and rng.random() < 0.7:
                self.end_job()

    # -- faults -------------------------------------------------------------------------------------------

    @rule(
        steps=st.sampled_from((0, 0, 0, 1, 1, 2, 3, 4, 6, 8, 12)),
        seed=pick,
        survive=st.sampled_from((0.0, 0.6, 1.0)),
    )
    def crash(self, steps: int, seed: int, survive: float) -> None:
        """Lose power after some more steps of a flush or a job, and possibly again while opening."""
        rng = random.Random(seed)
        self.disk.crash_in = steps
        try:
            if rng.random() < 0.5 and self.job is not None:
                self.end_job()
            if self.flush is None:
                self.begin_flush()
            if self.flush is not None:
                self.end_flush()
        except Crash:
            pass
        self.restart(rng, survive)

    @precondition(lambda self: self.flush is None and self.job is None)
    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.log = self._open()
        assert self.log.torn_frames == 0
        self.durable_lsn = self.log.durable_lsn
        check_log(self.log, self.model)

    @rule()
    def holds_what_the_model_holds(self) -> None:
        check_log(self.log, self.model)


def _copy(group: ModelGroup) -> ModelGroup:
    return ModelGroup(
        group.meta,
        anchor_index=group.anchor_index,
        anchor_term=group.anchor_term,
        first_offset=group.first_offset,
    )
