"""Order and limits of the shutdown."""

from flotilla.up.plan import Role
from flotilla.up.shutdown import SHUTDOWN_S_MAX, STAGE_S, SignalPlan, next_signals

READERS = [("reader-1", Role.READER), ("reader-2", Role.READER)]
WRITER = [("writer", Role.WRITER)]
BROKERS = [("broker-1", Role.BROKER), ("broker-2", Role.BROKER)]


def test_shutdown_stops_readers_then_writer_then_brokers() -> None:
    assert next_signals(BROKERS + WRITER + READERS, (), 0.0) == SignalPlan(terminate=("reader-1", "reader-2"))
    assert next_signals(BROKERS + WRITER, (), 0.1) == SignalPlan(terminate=("writer",))
    assert next_signals(BROKERS, (), 0.2) == SignalPlan(terminate=("broker-1", "broker-2"))


def test_shutdown_terminates_each_process_once() -> None:
    assert next_signals(READERS + BROKERS, {"reader-1", "reader-2"}, 0.1) == SignalPlan()


def test_shutdown_stage_has_a_time_limit() -> None:
    terminated = {"reader-1"}
    assert next_signals(READERS[:1] + WRITER + BROKERS, terminated, STAGE_S) == SignalPlan(terminate=("writer",))
    terminated.add("writer")
    assert next_signals(READERS[:1] + BROKERS, terminated, 2 * STAGE_S) == SignalPlan(
        terminate=("broker-1", "broker-2")
    )


def test_shutdown_kills_remaining_processes() -> None:
    assert next_signals(READERS[:1] + BROKERS[:1], {"reader-1"}, SHUTDOWN_S_MAX) == SignalPlan(
        kill=("reader-1", "broker-1")
    )


def test_shutdown_without_processes_sends_nothing() -> None:
    assert next_signals([], (), 0.0) == SignalPlan()
    assert next_signals([], (), 99.0) == SignalPlan()
