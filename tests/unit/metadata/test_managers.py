"""Writer epoch: takeover, fencing and heartbeats."""

from collections.abc import Callable

import pytest

from flotilla_manager.metadata import Fenced, Store
from flotilla_manager.model import TopicState, Writer
from support.metadata import a_broker, a_topic, an_id, at_once, ready_topic, sql

CHANGES: dict[str, Callable[[Store, int], object]] = {
    "create_topic": lambda store, epoch: store.create_topic(epoch, a_topic(2, "other")),
    "set_topic_state": lambda store, epoch: store.set_topic_state(epoch, an_id(1), TopicState.DELETING),
    "configure_topic": lambda store, epoch: store.configure_topic(epoch, an_id(1), retention_ms=5),
    "add_partitions": lambda store, epoch: store.add_partitions(epoch, an_id(1), a_topic(partitions=3).partitions[2:]),
    "put_broker": lambda store, epoch: store.put_broker(epoch, a_broker()),
    "register_producer": lambda store, epoch: store.register_producer(epoch, an_id(10), an_id(1)),
    "register_consumer": lambda store, epoch: store.register_consumer(epoch, an_id(20), an_id(1), None, (0, 0)),
    "heartbeat": lambda store, epoch: store.heartbeat(epoch),
}


def test_new_database_has_no_writer(store: Store) -> None:
    assert store.writer() == Writer(0, "", 0)


def test_each_takeover_has_a_higher_epoch(store: Store) -> None:
    assert [store.take_over("http://a"), store.take_over("http://b"), store.take_over("http://b")] == [1, 2, 3]
    assert (store.writer().epoch, store.writer().url) == (3, "http://b")
    assert store.take_over("http://c", at_least=10) == 10
    assert store.take_over("http://c", at_least=5) == 11


def test_takeover_increments_the_version(store: Store) -> None:
    before = store.version()
    store.take_over("http://a")
    assert store.version() > before
    assert store.snapshot().writer.url == "http://a"


def test_concurrent_takeovers_get_different_epochs(store: Store) -> None:
    assert sorted(at_once(lambda at: store.take_over(f"http://{at}"), 8)) == list(range(1, 9))


def test_heartbeat_increments_the_counter_but_not_the_version(store: Store) -> None:
    epoch = store.take_over("http://a")
    before, version = store.writer().heartbeat, store.version()
    store.heartbeat(epoch)
    assert store.writer().heartbeat == before + 1
    assert store.version() == version


@pytest.mark.parametrize("name", CHANGES)
def test_fenced_writer_changes_nothing(store: Store, name: str) -> None:
    """Guarantee 6: every transaction of the writer checks the epoch."""
    old = store.take_over("http://old")
    ready_topic(store, old)
    new = store.take_over("http://new")
    before = store.snapshot(), store.list_producers("", 9, 9), store.list_consumers("", 9, 9)
    for epoch in (old, new + 1):
        with pytest.raises(Fenced, match=f"writer epoch {epoch} was replaced by epoch 2 .http://new") as caught:
            CHANGES[name](store, epoch)
        assert caught.value.current == new
    assert (store.snapshot(), store.list_producers("", 9, 9), store.list_consumers("", 9, 9)) == before
    CHANGES[name](store, new)


def test_managers_without_recent_heartbeat_are_listed_as_inactive(store: Store) -> None:
    store.manager_heartbeat("one", "writer", "http://one")
    store.manager_heartbeat("two", "reader", "http://two")
    sql(store, "UPDATE managers SET seen_ms = seen_ms - 60000 WHERE name = 'two'")
    assert [(m.name, m.role, m.url, m.active) for m in store.list_managers(10)] == [
        ("one", "writer", "http://one", True),
        ("two", "reader", "http://two", False),
    ]
    store.manager_heartbeat("two", "reader", "http://elsewhere")
    assert [(m.name, m.url, m.active) for m in store.list_managers(10)][1] == ("two", "http://elsewhere", True)


def test_managers_without_heartbeat_for_an_hour_are_deleted(store: Store) -> None:
    store.manager_heartbeat("old", "reader", "http://old")
    sql(store, "UPDATE managers SET seen_ms = seen_ms - 3600001")
    assert store.list_managers(10) == []
    store.manager_heartbeat("new", "reader", "http://new")
    assert sql(store, "SELECT name FROM managers") == [("new",)]
