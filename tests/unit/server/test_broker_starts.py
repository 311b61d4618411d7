"""Older copies of a broker's log: guarantee 1 for restored volumes."""

import msgspec
import pytest

from flotilla_server.broker_starts import Start, StartReport


@pytest.mark.parametrize(
    ("start", "recovered_lsn", "known", "is_older"),
    [
        (Start(2, b"b", 70), 70, Start(1, b"a", 70), False),  # a restart
        (Start(2, b"b", 90), 90, Start(1, b"a", 70), False),  # the last frames were not reported
        (Start(2, b"b", 50), 50, Start(1, b"a", 70), True),  # a snapshot of the same start
        (Start(9, b"b", 50), 50, Start(1, b"a", 70), True),  # started many times without a confirmation
        (Start(2, b"b", 90), 50, Start(1, b"a", 70), True),  # found late, when it has written more
        (Start(2, b"b", 50), 50, Start(4, b"a", 70), True),  # a snapshot of an earlier start
        (Start(1, b"a", 90), 50, Start(1, b"a", 70), False),  # the same process
        (Start(1, b"a", 90), 50, Start(2, b"b", 70), True),  # not even if it has written more since
    ],
)
def test_log_with_fewer_frames_than_known_is_an_older_copy(
    start: Start, recovered_lsn: int, known: Start, is_older: bool
) -> None:
    assert start.is_older_copy(recovered_lsn, known) is is_older


@pytest.mark.parametrize(
    ("start", "known", "is_older"),
    [
        (Start(5, b"b"), Start(5, b"b"), False),
        (Start(6, b"c"), Start(5, b"b"), False),
        (Start(4, b"a"), Start(5, b"b"), True),
        (Start(5, b"a"), Start(5, b"b"), True),
    ],
)
def test_without_lsns_the_number_of_starts_decides(start: Start, known: Start, is_older: bool) -> None:
    """Brokers of 0.2 send no LSN."""
    assert start.is_older_copy(None, known) is is_older
    assert start.is_older_copy(3, known) is is_older


def test_start_of_version_0_2_is_read_and_understood_there() -> None:
    """The LSN is an added element: 0.2 ignores it, and sends none."""
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([4, b"x"]), type=Start) == Start(4, b"x")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Start(4, b"x", 9))) == [4, b"x", 9]


@pytest.mark.parametrize("token", ["", "0", "zz", "00" * 17, "00\n"])
def test_report_with_an_invalid_token_is_rejected(token: str) -> None:
    """Guarantee 7."""
    report = {"number": 1, "token": token, "lsn": 0, "recovered_lsn": 0}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(report, StartReport)
