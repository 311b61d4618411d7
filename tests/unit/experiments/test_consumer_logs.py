"""`consumer_{id}.txt`: any message round-trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.experiments.consumer_logs import Origin, Received, format_header, format_row, parse_consumer
from flotilla.experiments.errors import LogInvalid
from flotilla.experiments.producer_logs import Line

HEAD = format_header(1, ["T1", "T2"])


def test_consumer_file_has_the_documented_format() -> None:
    text = HEAD + format_row("T1", "INFO", Origin("P1-1", 3)) + format_row("T2", "a\tb\\\n", None)
    assert text == (
        "# consumer 1 of T1 T2\n"
        "[topic  msg  parallel  line]\n"
        "---------------------------------------\n"
        "T1\tINFO\tP1-1\t3\n"
        "T2\ta\\tb\\\\\\n\t-\t-\n"
    )
    log = parse_consumer(text, "consumer_1.txt")
    assert (log.consumer, log.topics) == (1, ("T1", "T2"))
    assert [(row.number, row.topic, row.message) for row in log.rows] == [(4, "T1", "INFO"), (5, "T2", "a\tb\\\n")]
    assert [row.origin for row in log.rows] == [Origin("P1-1", 3), None]


ANY = st.characters(exclude_categories=["Cs"])
ORIGINS = st.none() | st.builds(Origin, st.sampled_from(["P1-1", "P22-333"]), st.integers(1, 10**6))


@given(st.lists(st.tuples(st.text(ANY), ORIGINS)))
def test_any_message_round_trips(rows: list[tuple[str, Origin | None]]) -> None:
    text = HEAD + "".join(format_row("T1", message, origin) for message, origin in rows)
    assert [(row.message, row.origin) for row in parse_consumer(text, "it").rows] == rows
    assert len(text.splitlines()) == 3 + len(rows), "a line for each, for every tool that reads lines"


def test_origin_round_trips_through_headers() -> None:
    line = Line(17, "00:00:00", "INFO", "P1-5", "T1")
    assert Origin.from_headers(Origin.for_headers(line)) == Origin("P1-5", 17)
    assert Origin("P1-5", 17).producer == 1
    for headers in ((), (("parallel", b"P1-1"),), (("parallel", b"\xff"), ("line", b"1")), (("line", b"x"),)):
        assert Origin.from_headers(headers) is None
    assert Origin.from_headers((("parallel", b"me"), ("line", b"1"))) is None


@pytest.mark.parametrize("line", [b"-1", b"0", b"1_0", b" 7", b"+7", b"9" * 4000, "٣".encode()])
def test_foreign_headers_do_not_break_the_file(line: bytes) -> None:
    """Headers may contain anything; the file stays readable, so that the checker can report the message."""
    origin = Origin.from_headers((("parallel", b"P1-1"), ("line", line)))
    assert origin is None
    assert parse_consumer(HEAD + format_row("T1", "INFO", origin), "it").rows == (Received(4, "T1", "INFO", None),)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "expected a header such as `# consumer 1 of T1 T2`"),
        ("[ts      msg]\n---\nT1     INFO\n", 1, "expected a header"),
        (f"{HEAD}T1\tINFO\n", 4, "2 of 4 columns"),
        (f"{HEAD}T1\tINFO\tP1-1\tx\n", 4, "'x' is not a line number"),
        (f"{HEAD}T1\tINFO\tyou\t1\n", 4, "'you' is not a step"),
        (f"{HEAD}T1\tINFO\tP1-1\t3\nT1\tIN", 5, "line is cut off"),
    ],
)
def test_invalid_file_is_rejected_with_line_and_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(LogInvalid) as caught:
        parse_consumer(text, "consumer_1.txt")
    assert str(caught.value).startswith(f"consumer_1.txt line {line}: ")
    assert reason in str(caught.value)
