"""`flotilla admin rebuild-metadata`: data kept from an old database, rejected input, and fencing of the old writer."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flotilla_manager import rebuild_command
from flotilla_manager.metadata import Store, open_store
from flotilla_manager.metadata.errors import Fenced
from flotilla_manager.model import Replica, TopicState
from flotilla_manager.topology_rebuild import BrokerReport
from support.metadata import a_broker, a_topic, an_id, ready_topic, sql

CLUSTER = an_id(0xC)
MEMBERS = (an_id(0xB1), an_id(0xB2), an_id(0xB3))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_command, "_WATCH_S", 0.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'metadata.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = open_store(url)
    yield made
    made.close()


def replica(number: int = 1, partition: int = 0, name: str = "orders", **values: Any) -> Replica:  # noqa: ANN401
    made = Replica(topic=name, topic_id=an_id(number), partition=partition, epoch=1, members=MEMBERS, leader=MEMBERS[0])
    return replace(made, **values)


def reports(*replicas: Replica, writer_epoch: int = 5) -> list[BrokerReport]:
    return [
        BrokerReport(
            broker=a_broker(number, port=8000 + number),
            cluster_id=CLUSTER,
            writer_epoch=writer_epoch,
            replicas=replicas,
        )
        for number in (0xB1, 0xB2, 0xB3)
    ]


def run(monkeypatch: pytest.MonkeyPatch, url: str, found: list[BrokerReport], *flags: str) -> int:
    async def collect_reports(*_: object) -> list[BrokerReport]:
        return found

    monkeypatch.setattr(rebuild_command, "collect_reports", collect_reports)
    return rebuild_command.main(["--database", url, "--broker", "http://b:1", *flags], lambda _: None)


def test_new_database_gets_the_brokers_topology_and_cluster_id(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a writer has started with the new database and generated another cluster id."""
    store.migrate()
    store.take_over("http://one:1")
    assert run(monkeypatch, url, reports(replica(), replica(partition=1))) == 0
    snapshot = store.snapshot()
    assert snapshot.cluster_id == CLUSTER
    assert [len(topic.partitions) for topic in snapshot.ready.values()] == [2]
    assert store.take_over("http://one:1") > 5


def test_paused_writer_is_fenced_after_the_rebuild(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 6."""
    store.migrate()
    epoch = store.take_over("http://one:1")
    assert run(monkeypatch, url, reports(replica(), writer_epoch=epoch)) == 0
    with pytest.raises(Fenced):
        store.heartbeat(epoch)


def test_deleted_topic_stays_deleted_although_a_broker_holds_a_replica(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.migrate()
    epoch = store.take_over("http://one:1")
    deleted = ready_topic(store, epoch, a_topic(1))
    store.set_topic_state(epoch, deleted.id, TopicState.DELETING)
    ready_topic(store, epoch, a_topic(2, owner="Topic/orders"))
    found = reports(replica(2), replica(2, 1))
    found[0] = replace(found[0], replicas=(*found[0].replicas, replica(1)))
    assert run(monkeypatch, url, found, "--force") == 0
    snapshot = store.snapshot()
    assert {topic.id: topic.state.value for topic in snapshot.topics} == {an_id(1): "deleted", an_id(2): "ready"}
    assert snapshot.ready["orders"].owner == "Topic/orders"


def test_two_topics_of_one_name_require_delete_topic(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reports(replica(1), replica(2))
    assert run(monkeypatch, url, found) == 1
    assert run(monkeypatch, url, found, "--accept-problems") == 1
    assert f"--delete-topic {an_id(1)}" in capsys.readouterr().err
    assert run(monkeypatch, url, found, "--delete-topic", an_id(1)) == 0
    snapshot = store.snapshot()
    assert snapshot.ready["orders"].id == an_id(2)
    assert snapshot.topics_by_id[an_id(1)].state == TopicState.DELETED, (
        "a tombstone, so that brokers close its replicas"
    )


def test_delete_topic_replaces_a_topic_of_the_old_database_by_one_of_its_name(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.migrate()
    ready_topic(store, store.take_over("http://one:1"), a_topic(1))
    assert run(monkeypatch, url, reports(replica(1), replica(2)), "--force", "--delete-topic", an_id(1)) == 0
    assert store.snapshot().ready["orders"].id == an_id(2)


def test_topic_with_missing_partitions_is_rejected(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partitions are stored by position, so a gap would shift the later ones."""
    store.migrate()
    assert run(monkeypatch, url, reports(replica(), replica(partition=2)), "--accept-problems") == 1
    assert "lacks partitions" in capsys.readouterr().err
    assert store.snapshot().topics == ()


def test_settings_of_brokers_are_kept_from_the_old_database(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.migrate()
    epoch = store.take_over("http://one:1")
    store.put_broker(epoch, a_broker(0xB1, rack="r1", cordoned=True, wanted=False))
    assert run(monkeypatch, url, reports(replica())) == 0
    found = store.snapshot().brokers_by_id[an_id(0xB1)]
    assert (found.rack, found.cordoned, found.wanted) == ("r1", True, False)
    assert found.port == 8000 + 0xB1


def test_database_of_an_older_version_is_migrated_and_keeps_broker_settings(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It must not be mistaken for an empty one: deleted topics would come back."""
    store.migrate()
    store.put_broker(store.take_over("http://one:1"), a_broker(0xB1, cordoned=True))
    sql(store, "ALTER TABLE brokers DROP COLUMN name")
    sql(store, "DROP TABLE broker_starts")
    sql(store, "UPDATE alembic_version SET version_num = '0002'")
    assert run(monkeypatch, url, reports(replica()), "--dry-run") == 1
    assert "schema of an older version" in capsys.readouterr().err
    assert run(monkeypatch, url, reports(replica())) == 0
    assert store.snapshot().brokers_by_id[an_id(0xB1)].cordoned


def test_running_writer_is_detected(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.migrate()
    epoch = store.take_over("http://one:1")
    monkeypatch.setattr("flotilla_manager.rebuild_command.time.sleep", lambda _: store.heartbeat(epoch))
    assert run(monkeypatch, url, reports(replica())) == 1
    assert store.snapshot().topics == ()


def test_writer_epoch_stays_above_a_very_high_reported_epoch(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, url, reports(replica(), writer_epoch=1 << 62)) == 0
    assert store.take_over("http://one:1") == (1 << 62) + 2


def test_dry_run_writes_nothing(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, url, reports(replica()), "--dry-run") == 0
    assert not store.is_migrated()


def test_problems_require_accept_problems(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.migrate()
    missing = reports(replica())[:2]
    assert run(monkeypatch, url, missing) == 1
    assert store.snapshot().topics == ()
    assert run(monkeypatch, url, missing, "--accept-problems") == 0
    assert list(store.snapshot().ready) == ["orders"]
