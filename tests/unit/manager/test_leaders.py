"""Guesses about leaders: they follow what brokers say, and never stay with one that does not help."""

from dataclasses import replace

from flotilla_manager.routing.leaders import Leaders
from unit.manager.dataplane import make_topic

TOPIC = make_topic()
PARTITION = TOPIC.partitions[0]


def test_the_first_member_is_asked_first() -> None:
    assert Leaders().guess(TOPIC, PARTITION) == "a"


def test_what_was_learned_is_used_while_it_is_a_member() -> None:
    leaders = Leaders()
    leaders.learn(TOPIC, 0, "c")
    assert leaders.guess(TOPIC, PARTITION) == "c"
    assert leaders.guess(TOPIC, replace(PARTITION, members=("a", "b"))) == "a"


def test_topics_of_one_name_do_not_share_guesses() -> None:
    leaders = Leaders()
    leaders.learn(TOPIC, 0, "c")
    assert leaders.guess(make_topic(id_="ef" * 16), PARTITION) == "a"


def test_passing_over_goes_through_all_members() -> None:
    leaders, asked = Leaders(), []
    for _ in range(4):
        asked.append(leaders.guess(TOPIC, PARTITION))
        leaders.pass_over(TOPIC, PARTITION, asked[-1])
    assert asked == ["a", "b", "c", "a"]


def test_passing_over_keeps_something_better_that_was_learned_meanwhile() -> None:
    leaders = Leaders()
    leaders.learn(TOPIC, 0, "c")
    leaders.pass_over(TOPIC, PARTITION, "a")
    assert leaders.guess(TOPIC, PARTITION) == "c"
