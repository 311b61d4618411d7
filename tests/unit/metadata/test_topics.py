"""Topology in the database: topics, partitions, brokers, and the rebuild."""

from dataclasses import replace

import pytest

from flotilla_manager.metadata import (
    DatabaseNotEmpty,
    InvalidStateTransition,
    StatementRejected,
    Store,
    TopicExists,
    TopicMissing,
)
from flotilla_manager.metadata.errors import Fenced
from flotilla_manager.model import Partition, TopicState
from support.metadata import a_broker, a_topic, an_id, at_once, in_processes, ready_topic, sql


@pytest.fixture
def epoch(store: Store) -> int:
    return store.take_over("http://writer")


def test_created_topic_is_loaded_unchanged(store: Store, epoch: int) -> None:
    partitions = (
        Partition(index=0, epoch=1, members=(an_id(3), an_id(1), an_id(2))),
        Partition(index=1, epoch=4, members=(an_id(2),)),
    )
    topic = a_topic(partitions=2, retention_ms=5, retention_bytes=1 << 40, owner="Topic/default/orders")
    made = store.create_topic(epoch, replace(topic, partitions=partitions))
    assert made == replace(topic, partitions=partitions, serial=made.serial)
    assert store.snapshot().topics == (made,)


def test_created_topic_is_in_state_creating(store: Store, epoch: int) -> None:
    made = store.create_topic(epoch, a_topic(state=TopicState.READY, serial=77))
    assert made.state == TopicState.CREATING
    assert store.snapshot().ready == {}


def test_topics_are_listed_in_the_order_of_creation(store: Store, epoch: int) -> None:
    for number, name in ((3, "c"), (1, "a"), (2, "b")):
        ready_topic(store, epoch, a_topic(number, name))
    assert list(store.snapshot().ready) == ["c", "a", "b"]


def test_topic_name_is_unique(store: Store, epoch: int) -> None:
    store.create_topic(epoch, a_topic(1))
    before = store.snapshot()
    with pytest.raises(TopicExists, match="'orders'") as caught:
        store.create_topic(epoch, a_topic(2))
    assert caught.value.topic_id == an_id(1)
    assert store.snapshot() == before


def test_unique_index_rejects_a_second_topic_of_a_name(store: Store, epoch: int) -> None:
    store.create_topic(epoch, a_topic(1))
    columns = "name, state, created_ms"
    with pytest.raises(StatementRejected):
        sql(store, f"INSERT INTO topics (id, {columns}) SELECT '{an_id(2)}', {columns} FROM topics")  # noqa: S608


def test_name_of_a_topic_is_free_from_deleting_on(store: Store, epoch: int) -> None:
    """A topic that is created again with the same name has another id; the old one stays as a tombstone."""
    ready_topic(store, epoch, a_topic(1))
    store.set_topic_state(epoch, an_id(1), TopicState.DELETING)
    ready_topic(store, epoch, a_topic(2))
    store.set_topic_state(epoch, an_id(1), TopicState.DELETED)
    store.set_topic_state(epoch, an_id(2), TopicState.DELETED)
    ready_topic(store, epoch, a_topic(3))
    found = [(topic.id, topic.name, topic.state) for topic in store.snapshot().topics]
    assert found == [
        (an_id(1), "orders", TopicState.DELETED),
        (an_id(2), "orders", TopicState.DELETED),
        (an_id(3), "orders", TopicState.READY),
    ]


def test_topic_keeps_its_partitions_until_it_is_deleted(store: Store, epoch: int) -> None:
    """The writer needs them to close the replicas on brokers."""
    made = ready_topic(store, epoch)
    store.set_topic_state(epoch, made.id, TopicState.DELETING)
    assert store.snapshot().topics_by_id[made.id].partitions == made.partitions
    store.set_topic_state(epoch, made.id, TopicState.DELETED)
    assert store.snapshot().topics_by_id[made.id].partitions == ()
    assert sql(store, "SELECT * FROM replicas") == []
    assert sql(store, "SELECT * FROM epochs") == []


@pytest.mark.parametrize("end", [TopicState.READY, TopicState.DELETED])
def test_next_writer_finds_a_topic_in_creating_and_completes_or_deletes_it(
    store: Store, epoch: int, end: TopicState
) -> None:
    made = store.create_topic(epoch, a_topic())
    next_epoch = store.take_over("http://next")
    creating = [topic for topic in store.snapshot().topics if topic.state == TopicState.CREATING]
    assert creating == [made]
    store.set_topic_state(next_epoch, made.id, end)
    assert store.snapshot().topics_by_id[made.id].state == end


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (TopicState.READY, TopicState.CREATING),
        (TopicState.DELETING, TopicState.READY),
        (TopicState.DELETED, TopicState.DELETING),
    ],
)
def test_topic_state_cannot_go_back(store: Store, epoch: int, first: TopicState, then: TopicState) -> None:
    store.create_topic(epoch, a_topic())
    store.set_topic_state(epoch, an_id(1), first)
    store.set_topic_state(epoch, an_id(1), first)  # the same state is accepted
    before = store.snapshot()
    with pytest.raises(InvalidStateTransition, match=f"is {first}; it cannot become {then}"):
        store.set_topic_state(epoch, an_id(1), then)
    assert store.snapshot() == before


def test_deleting_a_topic_deletes_only_its_clients(store: Store, epoch: int) -> None:
    for topic in (1, 2):
        ready_topic(store, epoch, a_topic(topic, f"topic-{topic}"))
        store.register_producer(epoch, an_id(10 + topic), an_id(topic))
        store.register_consumer(epoch, an_id(20 + topic), an_id(topic), None, (7, 8))
    store.set_topic_state(epoch, an_id(1), TopicState.DELETING)
    assert store.find_producer(an_id(11)) is None
    assert store.find_consumer(an_id(21)) is None
    assert store.find_producer(an_id(12)) is not None
    assert sql(store, "SELECT consumer_id, next_offset FROM positions ORDER BY 2") == [(an_id(22), 7), (an_id(22), 8)]


def test_changes_of_missing_or_deleted_topics_are_rejected(store: Store, epoch: int) -> None:
    made = ready_topic(store, epoch)
    store.set_topic_state(epoch, made.id, TopicState.DELETING)
    with pytest.raises(TopicMissing, match="is deleting"):
        store.configure_topic(epoch, made.id, retention_ms=1)
    with pytest.raises(TopicMissing, match="is deleting"):
        store.add_partitions(epoch, made.id, made.partitions)
    with pytest.raises(TopicMissing, match="does not exist"):
        store.set_topic_state(epoch, an_id(99), TopicState.READY)


def test_configure_topic_changes_only_the_given_settings(store: Store, epoch: int) -> None:
    made = ready_topic(store, epoch, a_topic(retention_ms=1, retention_bytes=2, owner="x"))
    store.configure_topic(epoch, made.id, retention_ms=None)
    assert store.snapshot().topics == (replace(made, retention_ms=None),)
    store.configure_topic(epoch, made.id, retention_bytes=1 << 50, owner=None)
    made = replace(made, retention_ms=None, retention_bytes=1 << 50, owner=None)
    assert store.snapshot().topics == (made,)
    store.configure_topic(epoch, made.id, batch_bytes_max=4096, compression="zstd")
    assert store.snapshot().topics == (replace(made, batch_bytes_max=4096, compression="zstd"),)
    store.configure_topic(epoch, made.id, batch_bytes_max=None)
    assert store.snapshot().topics == (replace(made, compression="zstd"),)


def test_registered_consumers_start_at_offset_0_of_added_partitions(store: Store, epoch: int) -> None:
    made = ready_topic(store, epoch, a_topic(partitions=2))
    store.register_consumer(epoch, an_id(20), made.id, None, (5, 6))
    more = a_topic(partitions=4).partitions[2:]
    store.add_partitions(epoch, made.id, more)
    assert store.snapshot().topics[0].partitions == (*made.partitions, *more)
    consumer = store.find_consumer(an_id(20))
    assert consumer is not None
    assert consumer.positions == (5, 6, 0, 0)


def test_rejected_change_is_rolled_back(store: Store, epoch: int) -> None:
    """Guarantee 7: neither the version nor anything else changes."""
    made = ready_topic(store, epoch)
    before = store.snapshot()
    with pytest.raises(StatementRejected):
        store.add_partitions(epoch, made.id, a_topic(partitions=3).partitions)  # 0 and 1 exist
    twice = Partition(index=0, epoch=1, members=(an_id(1), an_id(1)))
    with pytest.raises(StatementRejected):
        store.create_topic(epoch, replace(a_topic(2, "other"), partitions=(twice,)))
    assert store.snapshot() == before


def test_brokers_are_listed_in_the_order_of_registration_and_updated_in_place(store: Store, epoch: int) -> None:
    first, second = a_broker(9, rack="r1"), a_broker(3, host="::1")
    store.put_broker(epoch, first)
    store.put_broker(epoch, second)
    assert store.snapshot().brokers == (first, second)
    removed = replace(first, removed=True, active=False, cordoned=True, wanted=False, port=1, rack=None)
    store.put_broker(epoch, removed)
    assert store.snapshot().brokers == (removed, second)


def test_every_change_of_topology_increments_the_version(store: Store, epoch: int) -> None:
    versions = [store.version()]
    for change in (
        lambda: store.create_topic(epoch, a_topic()),
        lambda: store.set_topic_state(epoch, an_id(1), TopicState.READY),
        lambda: store.configure_topic(epoch, an_id(1), owner="me"),
        lambda: store.add_partitions(epoch, an_id(1), a_topic(partitions=3).partitions[2:]),
        lambda: store.put_broker(epoch, a_broker()),
    ):
        change()
        versions.append(store.version())
    assert versions == list(range(versions[0], versions[0] + 6))
    store.register_producer(epoch, an_id(10), an_id(1))
    assert store.version() == versions[-1]


def test_snapshot_is_consistent_during_changes(store: Store, epoch: int) -> None:
    """Each creation increments the version, so the number of topics must match the version."""
    base = store.version()

    def work(at: int) -> None:
        if at == 0:
            for number in range(40):
                store.create_topic(epoch, a_topic(number, f"topic-{number}", partitions=3))
            return
        while (seen := store.snapshot()).version < base + 40:
            assert len(seen.topics) == seen.version - base
            assert all(len(topic.partitions) == 3 and topic.replication == 3 for topic in seen.topics)

    at_once(work, 3)


def test_concurrent_processes_create_each_name_once(store: Store, url: str, epoch: int) -> None:
    """Each serial is assigned once."""
    serials = in_processes("create", url, [(epoch, first, 50) for first in (1000, 2000, 3000)])
    assigned = [serial for each in serials for serial in each if serial]
    assert len(assigned) == len(set(assigned)) == 50
    assert [topic.serial for topic in store.snapshot().topics] == sorted(assigned)
    assert {topic.name for topic in store.snapshot().topics} == {f"topic-{number}" for number in range(50)}


def test_rebuild_fills_an_empty_database(store: Store) -> None:
    topics = [a_topic(5, "e", state=TopicState.READY), a_topic(2, "b", state=TopicState.READY, retention_ms=3)]
    brokers = [a_broker(1), a_broker(2)]
    before = store.version()
    store.replace_all(topics, brokers, 7, "c" * 32)
    found = store.snapshot()
    assert [replace(topic, serial=0) for topic in found.topics] == topics
    assert found.brokers == tuple(brokers)
    assert (found.cluster_id, found.writer.epoch) == ("c" * 32, 7)
    assert found.version > before
    assert store.take_over("http://next") == 8


def test_rebuild_requires_force_and_keeps_clients_of_remaining_topics(store: Store, epoch: int) -> None:
    kept_topic = ready_topic(store, epoch, a_topic(1, "kept"))
    ready_topic(store, epoch, a_topic(2, "replaced"))
    store.register_consumer(epoch, an_id(20), an_id(1), None, (4, 5))
    store.register_consumer(epoch, an_id(21), an_id(2), None, (4, 5))
    before = store.snapshot()
    new_topic = a_topic(3, "replaced", state=TopicState.READY)
    with pytest.raises(DatabaseNotEmpty, match="2 topics"):
        store.replace_all([kept_topic, new_topic], [], epoch, before.cluster_id)
    assert store.snapshot() == before
    store.replace_all([kept_topic, new_topic], [], epoch, before.cluster_id, force=True)
    assert [(topic.id, topic.partitions) for topic in store.snapshot().topics] == [
        (an_id(1), kept_topic.partitions),
        (an_id(3), new_topic.partitions),
    ]
    kept = store.find_consumer(an_id(20))
    assert kept is not None
    assert kept.positions == (4, 5)
    assert store.find_consumer(an_id(21)) is None


def test_rebuild_does_not_decrease_the_writer_epoch(store: Store) -> None:
    store.take_over("http://a", at_least=9)
    with pytest.raises(Fenced, match="writer epoch 8 was replaced by epoch 9"):
        store.replace_all([], [], 8, "c" * 32)
