"""Registrations of producers and consumers, and their last-seen times."""

import time

import pytest
from sqlalchemy import select

from flotilla_manager.metadata import IdTaken, Store, TopicMissing
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.model import Consumer, TopicState
from support.metadata import a_topic, an_id, ready_topic, sql


@pytest.fixture
def epoch(store: Store) -> int:
    epoch = store.take_over("http://writer")
    ready_topic(store, epoch, a_topic(1, partitions=2))
    return epoch


def test_registration_is_found_by_its_id(store: Store, epoch: int) -> None:
    producer = store.register_producer(epoch, an_id(10), an_id(1))
    consumer = store.register_consumer(epoch, an_id(20), an_id(1), 1, (3, 4))
    assert store.find_producer(an_id(10)) == producer
    assert (producer.id, producer.topic_id) == (an_id(10), an_id(1))
    assert store.find_consumer(an_id(20)) == consumer
    assert consumer == Consumer(
        id=an_id(20),
        topic_id=an_id(1),
        partition=1,
        version=0,
        cursor=0,
        positions=(3, 4),
        seen_ms=consumer.seen_ms,
    )
    assert store.find_producer(an_id(20)) is None
    assert store.find_consumer(an_id(10)) is None


def test_registration_is_idempotent(store: Store, epoch: int) -> None:
    """After an unknown outcome, a client can retry with the same id."""
    producer = store.register_producer(epoch, an_id(10), an_id(1))
    consumer = store.register_consumer(epoch, an_id(20), an_id(1), None, (3, 4))
    assert store.register_producer(epoch, an_id(10), an_id(1)) == producer
    assert store.register_consumer(epoch, an_id(20), an_id(1), None, (9, 9)) == consumer


def test_client_id_cannot_be_registered_with_another_topic(store: Store, epoch: int) -> None:
    ready_topic(store, epoch, a_topic(2, "other"))
    store.register_producer(epoch, an_id(10), an_id(1))
    store.register_consumer(epoch, an_id(20), an_id(1), None, (0, 0))
    with pytest.raises(IdTaken, match=an_id(10)):
        store.register_producer(epoch, an_id(10), an_id(2))
    with pytest.raises(IdTaken, match=an_id(20)):
        store.register_consumer(epoch, an_id(20), an_id(2), None, (0, 0))


@pytest.mark.parametrize("state", [TopicState.CREATING, TopicState.DELETING, TopicState.DELETED, None])
def test_registration_requires_a_ready_topic(store: Store, epoch: int, state: TopicState | None) -> None:
    if state is not None:
        store.create_topic(epoch, a_topic(2, "other"))
        store.set_topic_state(epoch, an_id(2), state)
    with pytest.raises(TopicMissing, match=str(state or "does not exist")):
        store.register_producer(epoch, an_id(10), an_id(2))
    with pytest.raises(TopicMissing, match=str(state or "does not exist")):
        store.register_consumer(epoch, an_id(20), an_id(2), None, (0, 0))
    assert store.find_producer(an_id(10)) is None
    assert store.find_consumer(an_id(20)) is None


def test_new_producers_are_listed_without_gaps(store: Store, epoch: int) -> None:
    """Serials are not reused, even if the newest registration is deleted before the next one."""
    for number in range(10, 15):
        store.register_producer(epoch, an_id(number), an_id(1))
    first = store.list_new_producers(0, 3)
    assert [producer.id for _, producer in first] == [an_id(10), an_id(11), an_id(12)]
    rest = store.list_new_producers(first[-1][0], 100)
    assert [producer.id for _, producer in rest] == [an_id(13), an_id(14)]
    sql(store, f"DELETE FROM producers WHERE id = '{an_id(14)}'")  # noqa: S608 - no user input
    store.register_producer(epoch, an_id(15), an_id(1))
    assert [producer.id for _, producer in store.list_new_producers(rest[-1][0], 100)] == [an_id(15)]


def test_clients_are_inactive_after_the_timeout_until_they_are_touched(store: Store, epoch: int) -> None:
    for number in (1, 2, 3):
        store.register_producer(epoch, an_id(10 + number), an_id(1))
        store.register_consumer(epoch, an_id(20 + number), an_id(1), None, (0, 0))
    for table in ("producers", "consumers"):
        sql(store, f"UPDATE {table} SET seen_ms = seen_ms - 60000")  # noqa: S608 - no user input
    store.touch_producers([an_id(13), an_id(11), an_id(99), an_id(11)])
    store.touch_consumers([an_id(22)])
    store.touch_consumers([])
    assert [p.active for p in store.list_producers("", 9, 10)] == [True, False, True]
    assert [c.active for c in store.list_consumers("", 9, 10)] == [False, True, False]
    assert [p.active for p in store.list_producers("", 9, 100)] == [True, True, True]


def test_touch_accepts_more_ids_than_fit_into_one_statement(store: Store, epoch: int) -> None:
    store.register_producer(epoch, an_id(2499), an_id(1))
    sql(store, "UPDATE producers SET seen_ms = 0")
    store.touch_producers([an_id(number) for number in range(2500)])
    found = store.find_producer(an_id(2499))
    assert found is not None
    assert found.seen_ms > 0


def test_clients_are_listed_in_pages(store: Store, epoch: int) -> None:
    for number in (25, 21, 24, 22, 23):
        store.register_producer(epoch, an_id(number), an_id(1))
        store.register_consumer(epoch, an_id(number), an_id(1), None, (number, 0))
    assert [p.id for p in store.list_producers(an_id(21), 2, 9)] == [an_id(22), an_id(23)]
    consumers = store.list_consumers(an_id(23), 9, 9)
    assert [(c.id, c.positions) for c in consumers] == [(an_id(24), (24, 0)), (an_id(25), (25, 0))]
    assert store.list_consumers(an_id(25), 9, 9) == []
    assert list(store.find_consumers([an_id(25), an_id(21), an_id(99)])) == [an_id(21), an_id(25)]


def test_last_seen_times_use_the_databases_clock(store: Store, epoch: int) -> None:
    def clock() -> int:
        with store.read_statement() as connection:
            return int(connection.execute(select(now_ms())).scalar_one())

    before = clock()
    producer = store.register_producer(epoch, an_id(10), an_id(1))
    assert before <= producer.seen_ms <= clock()
    # The test and both databases use the clock of one machine.
    assert abs(clock() - time.time() * 1000) < 5_000
