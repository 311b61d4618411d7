"""`consumer_{id}.txt`: what is written is read as it was, whatever messages contain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.experiments.consumer_logs import Origin, Received, parse_consumer, write_head, write_row
from flotilla.experiments.errors import LogInvalid
from flotilla.experiments.producer_logs import Line

HEAD = write_head(1, ["T1", "T2"])


def test_a_file_looks_as_it_should() -> None:
    text = HEAD + write_row("T1", "INFO", Origin("P1-1", 3)) + write_row("T2", "a\tb\\\n", None)
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
def test_any_message_comes_back_as_it_was(rows: list[tuple[str, Origin | None]]) -> None:
    text = HEAD + "".join(write_row("T1", message, origin) for message, origin in rows)
    assert [(row.message, row.origin) for row in parse_consumer(text, "it").rows] == rows
    assert len(text.splitlines()) == 3 + len(rows), "a line for each, for every tool that reads lines"


def test_where_a_message_comes_from_travels_with_it() -> None:
    line = Line(17, "00:00:00", "INFO", "P1-5", "T1")
    assert Origin.from_headers(Origin.for_headers(line)) == Origin("P1-5", 17)
    assert Origin("P1-5", 17).producer == 1
    for headers in ((), (("parallel", b"P1-1"),), (("parallel", b"\xff"), ("line", b"1")), (("line", b"x"),)):
        assert Origin.from_headers(headers) is None
    assert Origin.from_headers((("parallel", b"me"), ("line", b"1"))) is None


@pytest.mark.parametrize("line", [b"-1", b"0", b"1_0", b" 7", b"+7", b"9" * 4000, "٣".encode()])
def test_what_a_stranger_says_does_not_spoil_the_file(line: bytes) -> None:
    """Headers may say anything; what is written down can be read, so that the checker names the stranger."""
    origin = Origin.from_headers((("parallel", b"P1-1"), ("line", line)))
    assert origin is None
    assert parse_consumer(HEAD + write_row("T1", "INFO", origin), "it").rows == (Received(4, "T1", "INFO", None),)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "does not begin as in `# consumer 1 of T1 T2`"),
        ("[ts      msg]\n---\nT1     INFO\n", 1, "does not begin"),
        (f"{HEAD}T1\tINFO\n", 4, "2 of 4 columns"),
        (f"{HEAD}T1\tINFO\tP1-1\tx\n", 4, "'x' is no number of a line"),
        (f"{HEAD}T1\tINFO\tyou\t1\n", 4, "'you' is no mark"),
        (f"{HEAD}T1\tINFO\tP1-1\t3\nT1\tIN", 5, "it is cut off"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_line_and_reason(text: str, line: int, reason: str) -> None:
    with pytest.raises(LogInvalid) as caught:
        parse_consumer(text, "consumer_1.txt")
    assert str(caught.value).startswith(f"consumer_1.txt line {line}: ")
    assert reason in str(caught.value)
