"""The plans of the experiments."""

from flotilla.experiments.plans import PLANS


def test_2p2c_has_two_topics() -> None:
    plan = PLANS["2P2C"]
    assert str(plan) == "T1: producers P1 P2, consumers C1 C2\nT2: producers P1 P2, consumers C1 C2"
    assert plan.producers == {1: ("T1", "T2"), 2: ("T1", "T2")}
    assert plan.consumers == {1: ("T1", "T2"), 2: ("T1", "T2")}


def test_5p3c_has_three_topics() -> None:
    plan = PLANS["5P3C"]
    assert str(plan) == (
        "T1: producers P1 P2 P3, consumers C1 C2 C3\n"
        "T2: producers P1 P4 P5, consumer C1\n"
        "T3: producers P1 P2, consumers C1 C2 C3"
    )
    assert plan.producers == {1: ("T1", "T2", "T3"), 2: ("T1", "T3"), 3: ("T1",), 4: ("T2",), 5: ("T2",)}
    assert plan.consumers == {1: ("T1", "T2", "T3"), 2: ("T1", "T3"), 3: ("T1", "T3")}
    assert [plan.readers(topic) for topic in (*plan.topics, "T4")] == [3, 1, 3, 0]
