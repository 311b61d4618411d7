"""Generated producer files: reproducible and valid."""

from flotilla.experiments.plans import PLANS
from flotilla.experiments.producer_logs import format_producer, parse_producer
from flotilla.experiments.samples import make_sample

GOLDEN = """\
[ts         msg       parallel    topic]
---------------------------------------
21:52:23	DEBUG café opened late		P1-1		T1
21:52:23	DEBUG user logged in		P1-1		T2
21:52:24	WARN café opened late		P1-2		T1
21:52:24	DEBUG		P1-2		T2
21:52:26	WARN user logged in		P1-3		T1
21:52:26	DEBUG user logged in		P1-3		T2
21:52:26	INFO café opened late		P1-4		T1
21:52:26	INFO disk is at 71 %		P1-4		T2
"""


def test_same_seed_generates_the_same_files() -> None:
    first = make_sample(PLANS["2P2C"], seed=1, steps=4)[0]
    assert format_producer(first) == GOLDEN
    assert make_sample(PLANS["2P2C"], seed=2, steps=4)[0] != first


def test_samples_match_their_plan_and_parse() -> None:
    for plan in PLANS.values():
        logs = make_sample(plan, steps=200)
        assert [log.producer for log in logs] == list(plan.producers)
        for log in logs:
            topics = plan.producers[log.producer]
            assert parse_producer(format_producer(log), log.producer, topics) == log
            steps = [[line.topic for line in step] for step in log.steps()]
            assert len(steps) == 200
            assert {topic for step in steps for topic in step} == set(topics)
            assert any(len(set(step)) < len(step) for step in steps), "some steps send to a topic twice"
            assert len({line.message for line in log.lines}) < len(log.lines) / 2, "texts are repeated"
