"""Guessed leaders: they follow hints of brokers, and move on after failures."""

from dataclasses import replace

from flotilla_manager.routing.leaders import Leaders
from unit.manager.dataplane import make_topic

TOPIC = make_topic()
PARTITION = TOPIC.partitions[0]


def test_first_guess_is_the_first_member() -> None:
    assert Leaders().guess(TOPIC, PARTITION) == "a"


def test_known_leader_is_used_while_it_is_a_member() -> None:
    leaders = Leaders()
    leaders.learn(TOPIC, 0, "c")
    assert leaders.guess(TOPIC, PARTITION) == "c"
    assert leaders.guess(TOPIC, replace(PARTITION, members=("a", "b"))) == "a"


def test_topics_of_one_name_have_separate_guesses() -> None:
    leaders = Leaders()
    leaders.learn(TOPIC, 0, "c")
    assert leaders.guess(make_topic(id_="ef" * 16), PARTITION) == "a"


def test_skip_cycles_through_all_members() -> None:
    leaders, asked = Leaders(), []
    for _ in range(4):
        asked.append(leaders.guess(TOPIC, PARTITION))
        leaders.skip(TOPIC, PARTITION, asked[-1])
    assert asked == ["a", "b", "c", "a"]


def test_skip_keeps_a_leader_that_was_learned_meanwhile() -> None:
    leaders = Leaders()
    leaders.learn(TOPIC, 0, "c")
    leaders.skip(TOPIC, PARTITION, "a")
    assert leaders.guess(TOPIC, PARTITION) == "c"
