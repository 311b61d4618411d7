"""`rebuild-metadata`: what is kept of an old database, what is refused, and what a writer that sleeps can still do."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flotilla_manager import rebuild
from flotilla_manager.metadata import Store, open_store
from flotilla_manager.metadata.errors import Fenced
from flotilla_manager.model import Replica, TopicState
from flotilla_manager.rebuilding import BrokerReport
from support.metadata import a_broker, a_topic, an_id, ready_topic

CLUSTER = an_id(0xC)
MEMBERS = (an_id(0xB1), an_id(0xB2), an_id(0xB3))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "_WATCH_S", 0.0)


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
    async def ask_all(*_: object) -> list[BrokerReport]:
        return found

    monkeypatch.setattr(rebuild, "ask_all", ask_all)
    return rebuild.main(["--database", url, "--broker", "http://b:1", *flags], lambda _: None)


def test_a_lost_database_is_made_anew_with_the_brokers_cluster(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that was lost, and one that an unsuspecting writer has begun anew, become that of the brokers."""
    store.migrate()
    store.take_over("http://one:1")
    assert run(monkeypatch, url, reports(replica(), replica(partition=1))) == 0
    snapshot = store.snapshot()
    assert snapshot.cluster_id == CLUSTER
    assert [len(topic.partitions) for topic in snapshot.ready.values()] == [2]
    assert store.take_over("http://one:1") > 5


def test_a_writer_that_slept_is_fenced_afterwards(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 6: who was the writer before is not any more."""
    store.migrate()
    epoch = store.take_over("http://one:1")
    assert run(monkeypatch, url, reports(replica(), writer_epoch=epoch)) == 0
    with pytest.raises(Fenced):
        store.beat(epoch)


def test_a_deleted_topic_stays_deleted_though_a_broker_still_holds_it(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.migrate()
    epoch = store.take_over("http://one:1")
    gone = ready_topic(store, epoch, a_topic(1))
    store.set_topic_state(epoch, gone.id, TopicState.DELETING)
    ready_topic(store, epoch, a_topic(2, owner="Topic/orders"))
    found = reports(replica(2), replica(2, 1))
    found[0] = replace(found[0], replicas=(*found[0].replicas, replica(1)))
    assert run(monkeypatch, url, found, "--force") == 0
    snapshot = store.snapshot()
    assert {topic.id: topic.state.value for topic in snapshot.topics} == {an_id(1): "deleted", an_id(2): "ready"}
    assert snapshot.ready["orders"].owner == "Topic/orders"


def test_of_two_topics_with_one_name_somebody_has_to_choose(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reports(replica(1), replica(2))
    assert run(monkeypatch, url, found) == 1
    assert run(monkeypatch, url, found, "--accept-problems") == 1
    assert f"--delete-topic {an_id(1)}" in capsys.readouterr().err
    assert run(monkeypatch, url, found, "--delete-topic", an_id(1)) == 0
    snapshot = store.snapshot()
    assert snapshot.ready["orders"].id == an_id(2)
    assert snapshot.topics_by_id[an_id(1)].state == TopicState.DELETED, "brokers will be told to close it"


def test_a_topic_in_an_old_database_can_be_given_up_for_one_of_its_name(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.migrate()
    ready_topic(store, store.take_over("http://one:1"), a_topic(1))
    assert run(monkeypatch, url, reports(replica(1), replica(2)), "--force", "--delete-topic", an_id(1)) == 0
    assert store.snapshot().ready["orders"].id == an_id(2)


def test_a_topic_without_one_of_its_partitions_is_not_written(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partition must never be taken for its neighbour."""
    store.migrate()
    assert run(monkeypatch, url, reports(replica(), replica(partition=2)), "--accept-problems") == 1
    assert "lacks partitions" in capsys.readouterr().err
    assert store.snapshot().topics == ()


def test_what_was_decided_about_brokers_is_kept(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.migrate()
    epoch = store.take_over("http://one:1")
    store.put_broker(epoch, a_broker(0xB1, rack="r1", cordoned=True, wanted=False))
    assert run(monkeypatch, url, reports(replica())) == 0
    found = store.snapshot().brokers_by_id[an_id(0xB1)]
    assert (found.rack, found.cordoned, found.wanted) == ("r1", True, False)
    assert found.port == 8000 + 0xB1


def test_a_writer_that_runs_is_noticed(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.migrate()
    epoch = store.take_over("http://one:1")
    monkeypatch.setattr("flotilla_manager.rebuild.time.sleep", lambda _: store.beat(epoch))
    assert run(monkeypatch, url, reports(replica())) == 1
    assert store.snapshot().topics == ()


def test_an_absurd_epoch_leaves_room_for_the_next_writer(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, url, reports(replica(), writer_epoch=1 << 62)) == 0
    assert store.take_over("http://one:1") == (1 << 62) + 2


def test_a_dry_run_writes_nothing(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, url, reports(replica()), "--dry-run") == 0
    assert not store.is_migrated()


def test_problems_have_to_be_accepted(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.migrate()
    missing = reports(replica())[:2]
    assert run(monkeypatch, url, missing) == 1
    assert store.snapshot().topics == ()
    assert run(monkeypatch, url, missing, "--accept-problems") == 0
    assert list(store.snapshot().ready) == ["orders"]
