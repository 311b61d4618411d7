"""Consumers advance by compare-and-set, in concurrent threads and processes."""

from dataclasses import replace

import pytest

from flotilla_manager.metadata import Store
from flotilla_manager.metadata.consumers import match_versions
from flotilla_manager.model import Advance, Consumer, TopicState
from support.metadata import a_step, a_topic, an_id, at_once, consume, in_processes, ready_topic


def advance(consumer: int, version: int, partition: int = 0, position: int = 1) -> Advance:
    return Advance(consumer_id=an_id(consumer), version=version, cursor=1, partition=partition, position=position)


@pytest.fixture
def epoch(store: Store) -> int:
    epoch = store.take_over("http://writer")
    ready_topic(store, epoch, a_topic(1, partitions=2))
    for number in range(20, 30):
        store.register_consumer(epoch, an_id(number), an_id(1), None, (0, 0))
    return epoch


def found(store: Store, number: int) -> Consumer:
    consumer = store.find_consumer(an_id(number))
    assert consumer is not None
    return consumer


def test_step_matches_the_version_after_the_steps_before_it() -> None:
    steps = [advance(1, 5), advance(1, 5), advance(1, 6), advance(2, 0), advance(3, 0), advance(1, 8)]
    assert match_versions({an_id(1): 5, an_id(2): 1}, steps) == [True, False, True, False, False, False]


@pytest.mark.usefixtures("epoch")
def test_step_changes_version_cursor_and_one_position(store: Store) -> None:
    before = found(store, 20)
    assert store.advance([advance(20, 0, partition=1, position=7)]) == [True]
    after = found(store, 20)
    assert after == replace(before, version=1, cursor=1, positions=(0, 7), seen_ms=after.seen_ms)
    assert after.seen_ms >= before.seen_ms


@pytest.mark.usefixtures("epoch")
def test_step_from_another_version_changes_nothing(store: Store) -> None:
    store.advance([advance(20, 0, position=5)])
    before = found(store, 20)
    assert store.advance([advance(20, 0, position=9), advance(20, 2, position=9)]) == [False, False]
    assert found(store, 20) == before


@pytest.mark.usefixtures("epoch")
def test_results_of_steps_are_in_the_order_of_the_steps(store: Store) -> None:
    steps = [advance(29, 0), advance(21, 3), advance(99, 0), advance(22, 0), advance(29, 1, 1, 4), advance(29, 1)]
    assert store.advance(steps) == [True, False, False, True, True, False]
    assert found(store, 29).positions == (1, 4)
    assert found(store, 29).version == 2
    assert store.advance([]) == []


def test_consumer_of_a_deleted_topic_does_not_advance(store: Store, epoch: int) -> None:
    store.set_topic_state(epoch, an_id(1), TopicState.DELETING)
    assert store.advance([advance(20, 0)]) == [False]


def test_first_step_in_an_added_partition_creates_its_position(store: Store, epoch: int) -> None:
    store.add_partitions(epoch, an_id(1), a_topic(partitions=3).partitions[2:])
    assert store.advance([advance(20, 0, partition=2, position=3)]) == [True]
    assert found(store, 20).positions == (0, 0, 3)


@pytest.mark.usefixtures("epoch")
def test_consumer_advances_without_the_writer_epoch(store: Store) -> None:
    store.take_over("http://another")
    assert store.advance([advance(20, 0)]) == [True]


@pytest.mark.usefixtures("epoch")
def test_threads_that_share_a_consumer_advance_each_version_once(store: Store) -> None:
    """Consumers that share an id get each message once: no version and no offset is returned twice."""
    taken = [pair for pairs in at_once(lambda _: consume(store, an_id(20), "60"), 10) for pair in pairs]
    check_each_once(taken, 60)


@pytest.mark.usefixtures("epoch")
def test_processes_that_share_a_consumer_advance_each_version_once(store: Store, url: str) -> None:
    taken = in_processes("consume", url, [(an_id(20), 100)] * 2)
    check_each_once([(version, offset) for pairs in taken for version, offset in pairs], 100)
    assert found(store, 20).positions == (50, 50)


def check_each_once(taken: list[tuple[int, int]], count: int) -> None:
    """Check round robin over two partitions: version v has offset v // 2."""
    assert sorted(taken) == [(version, version // 2) for version in range(count)]


@pytest.mark.usefixtures("epoch")
def test_consumers_in_opposite_orders_do_not_deadlock(store: Store) -> None:
    """All transactions lock rows in one order."""
    ids = [an_id(number) for number in range(20, 30)]

    def work(at: int) -> int:
        applied = 0
        for _ in range(25):
            consumers = store.find_consumers(ids)
            ordered = sorted(consumers.values(), key=lambda c: c.id, reverse=at % 2 == 0)
            applied += sum(store.advance([a_step(consumer) for consumer in ordered]))
            store.touch_consumers(ids if at % 2 else ids[::-1])
        return applied

    applied = at_once(work, 4)
    assert sum(consumer.version for consumer in store.find_consumers(ids).values()) == sum(applied)
