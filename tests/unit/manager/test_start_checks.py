"""Verdicts of the writer on starts of brokers: guarantee 1 for restored volumes and clones."""

from flotilla_manager.writer.start_checks import StartChecks
from flotilla_server.broker_starts import Start, StartReport, StartVerdict

LIMIT_S = 3.0
ID = "b" * 32


class Writer:
    """Start checks with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.checks = StartChecks(lambda: self.now)
        self.checks.load(1, {})

    def evaluate(
        self,
        number: int,
        lsn: int,
        recovered_lsn: int = 0,
        *,
        is_confirmed: bool = False,
        same_address: bool = False,
        is_copy: bool = False,
    ) -> StartVerdict:
        report = StartReport(
            number=number,
            token=f"{number:02x}",
            lsn=lsn,
            recovered_lsn=recovered_lsn,
            is_confirmed=is_confirmed,
            is_copy=is_copy,
        )
        return self.checks.evaluate(ID, report, limit_s=LIMIT_S, same_address=same_address)


def test_restart_at_the_same_address_is_confirmed_at_once() -> None:
    writer = Writer()
    assert writer.evaluate(1, 50) is StartVerdict.CONFIRMED
    assert writer.evaluate(2, 50, 50, same_address=True) is StartVerdict.CONFIRMED


def test_restart_that_other_brokers_have_confirmed_is_confirmed_at_once() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    assert writer.evaluate(2, 50, 50, is_confirmed=True) is StartVerdict.CONFIRMED


def test_restart_elsewhere_is_confirmed_when_the_last_start_is_silent() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    assert writer.evaluate(2, 50, 50) is StartVerdict.UNCONFIRMED
    writer.now += LIMIT_S + 0.1
    assert writer.evaluate(2, 50, 50) is StartVerdict.CONFIRMED


def test_older_copy_is_detected_whatever_else_speaks_for_it() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    writer.evaluate(1, 80)
    writer.now += 1000
    assert writer.evaluate(2, 79, 79, is_confirmed=True, same_address=True) is StartVerdict.OLDER_COPY
    assert writer.evaluate(2, 80, 80, same_address=True) is StartVerdict.CONFIRMED


def test_clone_is_a_duplicate_while_the_genuine_broker_lives() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    verdicts = []
    for _ in range(6):
        writer.now += 1
        assert writer.evaluate(1, 50) is StartVerdict.CONFIRMED, "the genuine broker stays"
        verdicts.append(writer.evaluate(2, 50, 50))
    assert verdicts[0] is StartVerdict.UNCONFIRMED
    assert verdicts[-1] is StartVerdict.DUPLICATE


def test_late_heartbeat_of_an_ended_start_does_not_make_its_restart_a_duplicate() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    assert writer.evaluate(2, 50, 50) is StartVerdict.UNCONFIRMED
    writer.now += 2
    writer.evaluate(1, 50)  # it was on the way when the process ended
    assert writer.evaluate(2, 50, 50) is StartVerdict.UNCONFIRMED
    writer.now += LIMIT_S + 0.1
    assert writer.evaluate(2, 50, 50) is StartVerdict.CONFIRMED


def test_new_writer_knows_what_was_stored_and_waits_for_the_last_start() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    stored = writer.checks.changed()
    assert stored == {ID: Start(1, b"\1", 50)}
    writer.checks.stored(stored)
    assert writer.checks.changed() == {}
    writer.evaluate(1, 60)
    writer.checks.load(2, stored)
    assert writer.evaluate(2, 40, 40) is StartVerdict.OLDER_COPY
    assert writer.evaluate(2, 55, 55) is StartVerdict.UNCONFIRMED, "start 1 may still be running"
    writer.now += LIMIT_S + 0.1
    assert writer.evaluate(2, 55, 55) is StartVerdict.CONFIRMED


def test_change_during_a_write_is_stored_by_the_next() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    storing = writer.checks.changed()
    writer.evaluate(1, 60)
    writer.checks.stored(storing)
    assert writer.checks.changed() == {ID: Start(1, b"\1", 60)}


def test_unchanged_start_is_not_stored_again() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    writer.checks.stored(writer.checks.changed())
    writer.evaluate(1, 50)
    assert writer.checks.changed() == {}


def test_copy_is_confirmed_only_when_the_last_start_is_silent() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    assert writer.evaluate(2, 50, 50, is_copy=True, is_confirmed=True, same_address=True) is StartVerdict.UNCONFIRMED
    writer.now += LIMIT_S + 0.1
    assert writer.evaluate(2, 50, 50, is_copy=True) is StartVerdict.CONFIRMED


def test_clone_at_the_same_address_is_a_duplicate_and_the_genuine_broker_stays() -> None:
    """Also if the clone has written more than the genuine broker, which is idle."""
    writer = Writer()
    writer.evaluate(1, 50)
    assert writer.evaluate(2, 50, 50, same_address=True) is StartVerdict.CONFIRMED, "it may be a restart"
    writer.evaluate(2, 70, 50, same_address=True)
    verdicts = []
    for _ in range(6):
        writer.now += 1
        assert writer.evaluate(1, 50, is_confirmed=True) is StartVerdict.CONFIRMED
        verdicts.append(writer.evaluate(2, 80, 50, is_confirmed=True, same_address=True))
    assert set(verdicts[:3]) == {StartVerdict.UNCONFIRMED}
    assert verdicts[-1] is StartVerdict.DUPLICATE


def test_late_heartbeat_delays_a_confirmed_restart_but_does_not_end_it() -> None:
    writer = Writer()
    writer.evaluate(1, 50)
    writer.evaluate(2, 50, 50, same_address=True)
    writer.evaluate(1, 50)  # it was on the way when the process ended
    assert writer.evaluate(2, 60, 50, same_address=True) is StartVerdict.UNCONFIRMED
    writer.now += LIMIT_S + 0.1
    assert writer.evaluate(2, 60, 50, same_address=True) is StartVerdict.CONFIRMED
