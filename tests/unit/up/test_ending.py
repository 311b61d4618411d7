"""Who is told to end, and when."""

from flotilla.up.ending import END_S_MAX, TURN_S, Orders, decide
from flotilla.up.plan import Role

READERS = [("reader-1", Role.READER), ("reader-2", Role.READER)]
WRITER = [("writer", Role.WRITER)]
BROKERS = [("broker-1", Role.BROKER), ("broker-2", Role.BROKER)]


def test_readers_are_told_first_then_the_writer_then_all_brokers_at_once() -> None:
    assert decide(BROKERS + WRITER + READERS, (), 0.0) == Orders(terminate=("reader-1", "reader-2"))
    assert decide(BROKERS + WRITER, (), 0.1) == Orders(terminate=("writer",))
    assert decide(BROKERS, (), 0.2) == Orders(terminate=("broker-1", "broker-2"))


def test_nobody_is_told_twice() -> None:
    assert decide(READERS + BROKERS, {"reader-1", "reader-2"}, 0.1) == Orders()


def test_one_that_does_not_end_keeps_the_others_only_for_a_while() -> None:
    told = {"reader-1"}
    assert decide(READERS[:1] + WRITER + BROKERS, told, TURN_S) == Orders(terminate=("writer",))
    told.add("writer")
    assert decide(READERS[:1] + BROKERS, told, 2 * TURN_S) == Orders(terminate=("broker-1", "broker-2"))


def test_in_the_end_everybody_who_is_left_is_killed() -> None:
    assert decide(READERS[:1] + BROKERS[:1], {"reader-1"}, END_S_MAX) == Orders(kill=("reader-1", "broker-1"))


def test_nothing_is_left_to_do_when_nobody_is_left() -> None:
    assert decide([], (), 0.0) == Orders()
    assert decide([], (), 99.0) == Orders()
