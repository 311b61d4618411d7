"""The leader's record of a follower's progress, in all state transitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flotilla_broker.raft.progress import Mode, Progress

WINDOW = 100


def streaming(next_index: int = 10, match_index: int = 9) -> Progress:
    return Progress(next_index, match_index, Mode.STREAM)


# -- probing ----------------------------------------------------------------------------------------------


def test_probe_is_sent_once_until_its_reply_or_a_retry() -> None:
    progress = Progress(10)
    assert progress.may_send(12, WINDOW)
    progress.sent(12, 50, 0)
    assert progress.waiting
    assert progress.next_index == 10
    assert progress.inflight_bytes == 0
    assert not progress.may_send(12, WINDOW)
    progress.retry()
    assert progress.may_send(12, WINDOW)


def test_nothing_is_sent_after_the_last_entry() -> None:
    assert not Progress(13).may_send(12, WINDOW)
    assert Progress(12).may_send(12, WINDOW)
    assert not streaming(13).may_send(12, WINDOW)


def test_accepted_probe_starts_streaming() -> None:
    progress = Progress(10)
    progress.sent(12, 50, 0)
    progress.accepted(12)
    assert (progress.mode, progress.match_index, progress.next_index) == (Mode.STREAM, 12, 13)
    assert not progress.waiting


def test_reply_from_before_the_probe_does_not_start_streaming() -> None:
    """It says nothing about the entry before those that would be sent."""
    progress = Progress(10)
    progress.sent(12, 50, 0)
    progress.accepted(8)
    assert (progress.mode, progress.match_index, progress.next_index) == (Mode.PROBE, 8, 10)
    assert progress.waiting


def test_accepted_heartbeat_shows_that_the_logs_match() -> None:
    progress = Progress(10)
    progress.accepted(9)
    assert (progress.mode, progress.match_index, progress.next_index) == (Mode.STREAM, 9, 10)


# -- rejections -------------------------------------------------------------------------------------------


def test_rejected_probe_moves_to_the_hint() -> None:
    progress = Progress(10)
    progress.sent(12, 50, 0)
    assert progress.rejected(9, 5)
    assert (progress.mode, progress.next_index, progress.waiting) == (Mode.PROBE, 5, False)


def test_rejection_moves_back_at_least_one_and_never_below_the_match_index() -> None:
    progress = Progress(10, match_index=3)
    assert progress.rejected(9, 50)
    assert progress.next_index == 9
    assert progress.rejected(8, 1)
    assert progress.next_index == 4


def test_one_rejection_per_window_counts() -> None:
    """Several messages are in flight to a diverged follower, and each is rejected: only one rejection may count."""
    progress = streaming(10, 5)
    for last in (12, 15, 18):
        progress.sent(last, 20, 0)
    assert progress.rejected(9, 7)
    assert (progress.mode, progress.next_index, progress.inflight_bytes) == (Mode.PROBE, 7, 0)
    assert not progress.rejected(12, 3)
    assert not progress.rejected(15, 2)
    assert progress.next_index == 7


def test_rejection_below_the_match_index_is_stale() -> None:
    progress = streaming(20, 15)
    assert not progress.rejected(15, 3)
    assert not progress.rejected(4, 1)
    assert (progress.mode, progress.next_index) == (Mode.STREAM, 20)
    assert progress.rejected(16, 3)


def test_progress_ignores_rejections_during_a_snapshot() -> None:
    progress = streaming()
    progress.begin_snapshot()
    assert not progress.rejected(20, 1)
    assert progress.mode is Mode.SNAPSHOT


# -- streaming --------------------------------------------------------------------------------------------


def test_messages_stream_up_to_the_window_and_one_may_exceed_it() -> None:
    progress = streaming()
    progress.sent(10, 99, 0)
    assert progress.may_send(100, WINDOW)
    progress.sent(11, 5000, 0)
    assert not progress.may_send(100, WINDOW)
    assert (progress.next_index, progress.inflight_bytes) == (12, 5099)


def test_window_opens_with_accepted_messages() -> None:
    progress = streaming()
    progress.sent(12, 60, 0)
    progress.sent(14, 60, 0)
    progress.accepted(13)
    assert progress.inflight_bytes == 60
    progress.accepted(14)
    assert progress.inflight_bytes == 0


def test_accepted_reply_never_moves_the_next_index_back() -> None:
    """In pysyncobj, it moves the next index back to the accepted entry, and the window is sent again."""
    progress = streaming()
    for last in (12, 14, 16):
        progress.sent(last, 10, 0)
    progress.accepted(14)
    progress.accepted(12)
    assert (progress.match_index, progress.next_index) == (14, 17)
    progress.accepted(30)
    assert progress.next_index == 31


def test_repeated_or_empty_message_is_not_counted_twice() -> None:
    progress = streaming()
    progress.sent(9, 0, 0)
    assert (progress.next_index, progress.inflight_bytes) == (10, 0)
    assert progress.may_send(10, WINDOW)


def test_new_connection_continues_after_the_match_index() -> None:
    progress = streaming(20, 9)
    progress.sent(25, 70, 0)
    progress.begin_read()
    progress.restart(40)
    assert (progress.mode, progress.next_index, progress.inflight_bytes) == (Mode.PROBE, 10, 0)
    assert progress.may_send(40, WINDOW)
    fresh = Progress(20)
    fresh.restart(40)
    assert fresh.next_index == 41, "nothing is known: the end is asked about first"


# -- commits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last_index", "commit_index", "commit_sent"), [(12, 30, 12), (12, 4, 4), (9, 30, 9)])
def test_commit_sent_is_at_most_the_last_sent_entry(last_index: int, commit_index: int, commit_sent: int) -> None:
    progress = streaming()
    progress.sent(last_index, 10, commit_index)
    assert progress.commit_sent == commit_sent
    progress.sent(9, 0, 2)
    assert progress.commit_sent == commit_sent


# -- reads ------------------------------------------------------------------------------------------------


def test_nothing_is_sent_while_entries_are_read() -> None:
    progress = streaming()
    read = progress.begin_read()
    assert not progress.may_send(12, WINDOW)
    assert progress.end_read(read)
    assert progress.may_send(12, WINDOW)
    assert not progress.end_read(read), "it ended already"


def test_outdated_read_does_not_count() -> None:
    progress = streaming()
    old = progress.begin_read()
    progress.restart(20)
    new = progress.begin_read()
    assert not progress.end_read(old)
    assert not progress.may_send(20, WINDOW)
    assert progress.end_read(new)


# -- snapshots --------------------------------------------------------------------------------------------


def test_progress_sends_nothing_during_a_snapshot_and_continues_after_it() -> None:
    progress = streaming()
    progress.sent(12, 60, 0)
    progress.begin_read()
    progress.begin_snapshot()
    assert progress.mode is Mode.SNAPSHOT
    assert (progress.next_index, progress.inflight_bytes, progress.reading) == (13, 0, None)
    assert not progress.may_send(50, WINDOW)
    progress.accepted(13)
    assert progress.mode is Mode.SNAPSHOT, "an answer from before does not end it"
    progress.end_snapshot(30)
    assert (progress.mode, progress.next_index) == (Mode.PROBE, 31)
    assert progress.may_send(50, WINDOW)


# -- any sequence of events -------------------------------------------------------------------------------


class ProgressMachine(RuleBasedStateMachine):
    """In any sequence of events the match index never decreases, and bytes in flight are bounded."""

    def __init__(self) -> None:
        super().__init__()
        self.last_index = 20
        self.progress = Progress(20)
        self.match_index = 0
        self.largest = 0

    @rule(size=st.integers(1, 60), count=st.integers(1, 4))
    def send(self, size: int, count: int) -> None:
        if self.progress.may_send(self.last_index, WINDOW):
            self.largest = max(self.largest, size)
            self.progress.sent(min(self.progress.next_index + count - 1, self.last_index), size, 0)

    @rule(index=st.integers(0, 60))
    def accept(self, index: int) -> None:
        self.match_index = max(self.match_index, min(index, self.last_index))
        self.progress.accepted(min(index, self.last_index))

    @rule(prev_index=st.integers(0, 60), next_index=st.integers(0, 60))
    def refuse(self, prev_index: int, next_index: int) -> None:
        before = self.progress.next_index
        if self.progress.rejected(prev_index, next_index):
            assert self.progress.next_index <= max(prev_index, self.match_index + 1)
        else:
            assert self.progress.next_index == before

    @rule(count=st.integers(1, 5))
    def grow(self, count: int) -> None:
        self.last_index += count

    @rule()
    def reconnect(self) -> None:
        self.progress.restart(self.last_index)

    @rule()
    def retry(self) -> None:
        self.progress.retry()

    @rule()
    def begin_snapshot(self) -> None:
        self.progress.begin_snapshot()

    @rule()
    def end_snapshot(self) -> None:
        self.progress.end_snapshot(self.last_index)

    @invariant()
    def match_index_never_decreases(self) -> None:
        assert self.progress.match_index == self.match_index
        assert self.progress.next_index > self.match_index

    @invariant()
    def bytes_in_flight_are_bounded_and_counted(self) -> None:
        assert self.progress.inflight_bytes < WINDOW + self.largest
        assert self.progress.inflight_bytes == sum(size for _, size in self.progress._inflight)
        assert all(last > self.match_index for last, _ in self.progress._inflight)


TestProgress = ProgressMachine.TestCase


@given(st.integers(0, 50), st.integers(0, 50))
def test_rejected_probe_always_moves_down(match_index: int, hint: int) -> None:
    """Otherwise a leader would probe a diverged follower at the same index forever."""
    progress = Progress(match_index + 60, match_index)
    while progress.next_index > match_index + 1:
        before = progress.next_index
        assert progress.rejected(before - 1, hint)
        assert progress.next_index < before
    assert not progress.rejected(match_index, hint)
