"""`producer_{id}.txt`: parsing, and errors with line and reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.experiments.errors import LogInvalid
from flotilla.experiments.producer_logs import ProducerLog, format_producer, number_lines, parse_producer

# As it has always been shown: tabs, a heading with brackets, a ruler.
KNOWN = """\
[ts         msg       parallel    topic]
---------------------------------------
21:52:23	INFO		P1-1		T1
21:52:23	INFO		P1-1		T2
21:52:23	INFO		P1-1		T3
21:52:23	INFO		P1-2		T1
21:52:23	INFO		P1-2		T2
21:52:23	INFO		P1-2		T3
"""


def test_producer_file_is_parsed() -> None:
    log = parse_producer(KNOWN, 1, ("T1", "T2", "T3"))
    assert [(one.number, one.ts, one.message, one.step, one.topic) for one in log.lines[:2]] == [
        (3, "21:52:23", "INFO", "P1-1", "T1"),
        (4, "21:52:23", "INFO", "P1-1", "T2"),
    ]
    assert [[line.topic for line in step] for step in log.steps()] == [["T1", "T2", "T3"]] * 2


def test_columns_may_be_separated_by_spaces() -> None:
    text = "\n00:00:00   disk 3 is full  P7-1 \t T.1\r\n\n23:59:59.123\tINFO\tP7-20\tT-2"
    first, second = parse_producer(text, 7).lines
    assert (first.number, first.message, first.step, first.topic) == (2, "disk 3 is full", "P7-1", "T.1")
    assert (second.number, second.ts, second.topic) == (4, "23:59:59.123", "T-2")


def test_producer_file_without_messages_is_empty() -> None:
    assert parse_producer("", 1).lines == ()
    assert parse_producer("ts msg parallel topic\n---\n\n", 1).lines == ()


ROW = "21:52:23\tINFO\tP1-1\tT1\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("21:52:23 INFO P1-1 T1\n", 1, "1 of 4 columns (ts, msg, parallel, topic)"),
        (f"{ROW}21:52:23\tINFO\tT1\n", 2, "3 of 4 columns"),
        (f"{ROW}21:52:23\tINFO\tP1-1\tT1\tmore\n", 2, "5 of 4 columns"),
        ("24:00:00\tINFO\tP1-1\tT1\n", 1, "'24:00:00' is not a time such as 21:52:23"),
        ("today\tINFO\tP1-1\tT1\n", 1, "'today' is not a time"),
        ("21:52:23\tINFO\tP2-1\tT1\n", 1, "P2-1 is not a step of producer 1: it must start with P1-"),
        ("21:52:23\tINFO\t1\tT1\n", 1, "'1' is not a step"),
        (f"21:52:23\t{'x' * (1 << 20)}y\tP1-1\tT1\n", 1, "1048577 bytes, the limit is 1048576"),
        ("21:52:23\tINFO\tP1-1\tT 1\n", 1, "'T 1' is not a valid topic name"),
        ("21:52:23\tINFO\tP1-1\tT3\n", 1, "topic T3 is not one of T1 T2"),
        (f"{ROW}21:52:23\tINFO\tP1-2\tT1\n{ROW}", 3, "step P1-1 has other lines between its own"),
    ],
)
def test_invalid_file_is_rejected_with_line_and_reason(text: str, line: int, reason: str) -> None:
    """Nothing of an invalid file is sent."""
    with pytest.raises(LogInvalid) as caught:
        parse_producer(text, 1, ("T1", "T2"))
    assert str(caught.value).startswith(f"producer_1.txt line {line}: ")
    assert reason in str(caught.value)


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=9)
ROWS = st.lists(st.tuples(WORDS, st.sampled_from(["T1", "T2"])), max_size=20)


@given(ROWS)
def test_producer_file_round_trips(rows: list[tuple[str, str]]) -> None:
    lines = number_lines(("01:02:03", message, f"P4-{at // 3}", topic) for at, (message, topic) in enumerate(rows))
    log = ProducerLog(4, lines)
    assert parse_producer(format_producer(log), 4) == log
