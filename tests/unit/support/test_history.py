"""The checker of histories: it accepts what the guarantees allow, and names each way to break them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.history import Name, Outcome, Read, Replica, Send, violations

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def name(text: str) -> Name:
    """Read `a1`: the first record of producer a."""
    return Name(text[0], int(text[1:]))


def send(text: str, outcome: Outcome, offset: int | None = None, partition: int = 0) -> Send:
    return Send(name(text), partition, outcome, offset)


def replica(broker: str, text: str, first_offset: int = 0, partition: int = 0) -> Replica:
    return Replica(broker, partition, [name(word) for word in text.split()], first_offset)


GOOD = [send("a1", OK, 0), send("b1", OK, 1), send("a2", UNKNOWN), send("a3", OK, 3), send("b2", FAILED)]


@pytest.mark.parametrize(
    "replicas",
    [
        [replica("x", "a1 b1 a2 a3")],
        [replica("x", "a1 b1 a2 a3"), replica("y", "a1 b1"), replica("z", "")],  # followers may lag
        [replica("x", "a2 a3", 2), replica("y", "a1 b1 a2 a3")],  # retention may differ
        [replica("x", "a3", 3)],
    ],
)
def test_history_that_keeps_the_guarantees_has_no_violations(replicas: list[Replica]) -> None:
    reads = [Read("c", 0, 0, name("a1")), Read("c", 0, 1, name("b1")), Read("c", 0, 3, name("a3"))]
    assert violations(GOOD, replicas, reads) == []


def test_record_with_unknown_outcome_may_be_missing() -> None:
    assert violations([send("a1", OK, 0), send("a2", UNKNOWN)], [replica("x", "a1")]) == []


@pytest.mark.parametrize(
    ("sends", "replicas", "what"),
    [
        ([send("a1", OK, 0)], [], "no replica is left"),
        ([send("a1", OK, 0)], [replica("x", "")], "acknowledged at offset 0, and is lost"),
        ([send("a1", OK, 0), send("a2", OK, 1)], [replica("x", "a1")], "is lost"),
        ([send("a1", OK, 1), send("b1", OK, 0)], [replica("x", "a1 b1")], "acknowledged at offset 1, and is at 0"),
        ([send("a1", OK)], [replica("x", "a1")], "acknowledged without an offset"),
        ([send("a1", OK, 0)], [replica("x", "a1 a1")], "is there 2 times"),
        ([send("a1", UNKNOWN)], [replica("x", "a1 a1")], "is there 2 times"),
        ([send("a1", FAILED)], [replica("x", "a1")], "had failed, and is at offset 0"),
        ([], [replica("x", "a1")], "was never sent"),
        ([send("a1", UNKNOWN), send("a2", UNKNOWN)], [replica("x", "a2 a1")], "was sent after"),
        ([send("a1", OK, 0)], [replica("x", "a1"), replica("y", "a2")], "y holds"),
        ([send("a1", OK, 0, partition=3)], [replica("x", "a1")], "partition 3: no replica is left"),
    ],
)
def test_each_violation_of_a_guarantee_is_reported(sends: list[Send], replicas: list[Replica], what: str) -> None:
    assert any(what in text for text in violations(sends, replicas))


@pytest.mark.parametrize(
    ("reads", "what"),
    [
        ([(0, "a1"), (0, "a1")], "read offset 0 after 0"),
        ([(1, "b1"), (0, "a1")], "read offset 0 after 1"),
        ([(0, "b1")], "where"),
        ([(7, "a1")], "no replica holds it"),
    ],
)
def test_each_invalid_read_is_reported(reads: list[tuple[int, str]], what: str) -> None:
    sends = [send("a1", OK, 0), send("b1", OK, 1)]
    given_reads = [Read("c", 0, offset, name(text)) for offset, text in reads]
    assert any(what in text for text in violations(sends, [replica("x", "a1 b1")], given_reads))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30), st.data())
def test_loss_of_any_acknowledged_record_is_reported(producers: list[str], data: st.DataObject) -> None:
    records = [Name(producer, number) for number, producer in enumerate(producers)]
    sends = [Send(record, 0, OK, offset) for offset, record in enumerate(records)]
    assert violations(sends, [Replica("x", 0, records)]) == []
    lost = data.draw(st.integers(0, len(records) - 1))
    assert violations(sends, [Replica("x", 0, records[:lost] + records[lost + 1 :])])
