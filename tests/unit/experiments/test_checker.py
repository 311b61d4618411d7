"""The checker: accepts correct files, and names file and line of each problem."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.experiments.checker import Report, check
from flotilla.experiments.consumer_logs import ConsumerLog, Origin, Received, consumer_file
from flotilla.experiments.producer_logs import Line, ProducerLog


def producer(id_: int, text: str) -> ProducerLog:
    """Parse `a1 b2`: message a for T1, then b for T2. Lines and steps are numbered from 1."""
    words = text.split()
    lines = (Line(at, "00:00:00", word[0], f"P{id_}-{at}", f"T{word[1]}") for at, word in enumerate(words, 1))
    return ProducerLog(id_, tuple(lines))


def consumer(id_: int, topics: str, text: str) -> ConsumerLog:
    """Parse `a1:P1-3`: message a of T1, line 3 of producer 1; `a1` has no origin. Rows start at line 4."""
    rows = []
    for number, word in enumerate(text.split(), 4):
        message, _, step = word.partition(":")
        origin = Origin(step, int(step.rpartition("-")[2])) if step else None
        rows.append(Received(number, f"T{message[1]}", message[0], origin))
    return ConsumerLog(id_, tuple(topics.split()), tuple(rows))


SENT = [producer(1, "a1 b2 c1"), producer(2, "a1 a1")]
ONE = "a1:P1-1 a1:P2-1 b2:P1-2 a1:P2-2 c1:P1-3"


@pytest.mark.parametrize(
    "consumers",
    [
        [consumer(1, "T1 T2", ONE)],
        [consumer(1, "T1 T2", ONE), consumer(2, "T1", "a1:P1-1 a1:P2-1 a1:P2-2 c1:P1-3")],
        [consumer(1, "T1 T2", "b2:P1-2 a1:P2-1 a1:P2-2 a1:P1-1 c1:P1-3")],  # between topics there is no order
        [consumer(1, "T2", "b2:P1-2"), consumer(2, "T3", "")],
    ],
)
def test_checker_accepts_correct_files(consumers: list[ConsumerLog]) -> None:
    report = check(SENT, consumers)
    assert report.problems == ()
    assert report.is_ok


def test_checker_counts_each_consumer_and_topic() -> None:
    report = check(SENT, [consumer(1, "T1 T2", ONE), consumer(2, "T2", "b2:P1-2 b2:P1-2")])
    counted = [(t.consumer, t.topic, t.producers, t.sent, t.received, t.doubled) for t in report.tallies]
    assert counted == [(1, "T1", (1, 2), 4, 4, 0), (1, "T2", (1,), 1, 1, 0), (2, "T2", (1,), 1, 2, 1)]
    assert report.received == 7


@pytest.mark.parametrize(
    ("text", "problem", "kind"),
    [
        ("a1:P1-1 a1:P2-1 b2:P1-2 a1:P2-2", "consumer_1.txt: producer_1.txt line 3 is missing (T1)", "missing"),
        (f"{ONE} a1:P2-1", "consumer_1.txt line 9: producer_2.txt line 1 is a duplicate of line 5 (T1)", "doubled"),
        (
            "c1:P1-3 a1:P2-1 b2:P1-2 a1:P2-2 a1:P1-1",
            "consumer_1.txt line 8: producer_1.txt line 1 is out of order, after line 3 of the same file (T1)",
            "disordered",
        ),
        (
            f"{ONE} x1",
            "consumer_1.txt line 9: message does not come from a producer of the experiment (T1)",
            "unexpected",
        ),
        (
            f"{ONE} x1:P3-1",
            "consumer_1.txt line 9: message refers to producer_3.txt line 1, which has no message for T1 (T1)",
            "unexpected",
        ),
        (
            f"{ONE} b1:P1-2",
            "consumer_1.txt line 9: message refers to producer_1.txt line 2, which has no message for T1 (T1)",
            "unexpected",
        ),
    ],
)
def test_checker_names_file_and_line_of_problems(text: str, problem: str, kind: str) -> None:
    report = check(SENT, [consumer(1, "T1 T2", text)])
    assert report.problems == (problem,)
    assert {name: sum(getattr(one, name) for one in report.tallies) for name in KINDS} == {
        name: int(name == kind) for name in KINDS
    }


KINDS = ("missing", "doubled", "disordered", "unexpected")


def test_changed_message_is_unexpected_and_the_original_missing() -> None:
    report = check(SENT, [consumer(1, "T2", "x2:P1-2")])
    assert report.problems == (
        "consumer_1.txt line 4: message P1-2 'x' differs from producer_1.txt line 2: P1-2 'b' (T2)",
        "consumer_1.txt: producer_1.txt line 2 is missing (T2)",
    )


def test_checker_finds_messages_of_other_topics() -> None:
    report = check(SENT, [consumer(1, "T2", "b2:P1-2 a1:P1-1")])
    assert report.problems == ("consumer_1.txt line 5: consumer is not subscribed to T1",)


def test_consumers_must_receive_the_same_order() -> None:
    """A partition has one order for all consumers."""
    mine, other = "a1:P1-1 a1:P2-1 a1:P2-2 c1:P1-3", "a1:P2-1 a1:P1-1 a1:P2-2 c1:P1-3"
    report = check(SENT, [consumer(1, "T1", mine), consumer(2, "T1", other)])
    (problem,) = report.problems
    assert problem == (
        "T1 was received in different orders: consumer_1.txt has producer_1.txt line 1 where consumer_2.txt has "
        "producer_2.txt line 1"
    )


def test_checker_fails_without_consumers() -> None:
    assert not check(SENT, []).is_ok


def swap(words: list[str], at: int, to: int) -> None:
    words[at], words[to] = words[to], words[at]


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["drop", "double", "swap", "change"]))
def test_checker_finds_every_single_change(at: int, to: int, what: str) -> None:
    words = ["a1:P1-1", "a1:P2-1", "a1:P2-2", "c1:P1-3"]
    right = list(words)
    if what == "drop":
        del words[at]
    elif what == "double":
        words.insert(to, words[at])
    elif what == "change":
        words[at] = "x" + words[at][1:]
    else:
        swap(words, at, to)
    assert is_ok(words, right) is (words == right)


def is_ok(words: Sequence[str], right: Sequence[str]) -> bool:
    logs = [consumer(1, "T1", " ".join(words)), consumer(2, "T1", " ".join(right))]
    report: Report = check(SENT, logs)
    assert all(problem.startswith((consumer_file(1), "T1 was received")) for problem in report.problems)
    return report.is_ok
