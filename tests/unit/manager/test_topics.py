"""Topics: creation, changes and deletion by the writer, with failures of brokers and databases."""

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata.errors import DatabaseUnavailable, Fenced, OutcomeUnknown
from flotilla_manager.model import TopicState
from flotilla_manager.planning import Command, DeleteReplica, PutReplica
from flotilla_manager.writer import topics
from flotilla_manager.writer.topics import TopicSpec
from support.writer_harness import Bench, WriterHarness, on_bench

READY, CREATING = TopicState.READY, TopicState.CREATING


async def refusal_of(call: Any) -> Refusal:  # noqa: ANN401 - any coroutine
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value


def held(writer: WriterHarness) -> int:
    return sum(len(broker.held) for broker in writer.brokers.values())


def test_ready_topic_is_open_on_all_members(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        topic = await writer.create(partitions=4)
        assert topic.state == READY
        assert held(writer) == 12
        assert (await refusal_of(writer.create())).code == "exists"

    on_bench(tmp_path, work)


def test_topic_is_deleted_if_a_broker_does_not_open_it(tmp_path: Path) -> None:
    """A failed creation leaves no replicas, and the name is free."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        third = list(writer.brokers.values())[2]
        third.refuses = PutReplica
        assert (await refusal_of(writer.create())).code == "unavailable"
        third.refuses = None
        await writer.create()
        await writer.reconcile()
        assert writer.states() == {"t": READY}
        assert held(writer) == 6
        assert not writer.outdated

    on_bench(tmp_path, work)


def test_reconciler_does_not_interfere_with_a_topic_being_created(tmp_path: Path) -> None:
    """A ready topic may hold acknowledged messages, so it must not be deleted after a late failure of a command."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        third = list(writer.brokers.values())[2]
        entered, go_on = asyncio.Event(), asyncio.Event()

        async def open_and_say_nothing(command: Command) -> None:
            if isinstance(command, PutReplica):
                third.held[command.topic_id, command.partition, command.epoch] = command
                entered.set()
                await go_on.wait()
                third.is_silent = True

        third.before = open_and_say_nothing
        creating = asyncio.create_task(writer.create(partitions=1))
        await entered.wait()
        await writer.receive_heartbeats()
        await writer.reconciler.reconcile(writer.epoch)
        assert writer.states() == {"t": CREATING}, "all replicas are open, but clients cannot use the topic yet"
        go_on.set()
        assert (await refusal_of(creating)).code == "unavailable"
        third.is_silent, third.before = False, None
        await writer.reconcile()
        assert (writer.states(), held(writer)) == ({}, 0)

    on_bench(tmp_path, work)


@pytest.mark.parametrize("error", [DatabaseUnavailable("away"), OutcomeUnknown("away"), Fenced(1, 2, "http://two:1")])
def test_next_writer_completes_a_topic_in_creating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A topic in creating is completed or deleted, and does not stay in creating."""

    async def work(bench: Bench) -> None:
        one = await bench.writer()

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(one.store, "set_topic_state", fail)
        with pytest.raises(type(error)):
            await one.create()
        two = bench.manager("http://one:1")
        await two.election.step()
        assert (await refusal_of(two.create())).code == "unavailable", "not 'exists': clients cannot see it yet"
        await two.reconcile()
        assert two.states() == {"t": READY}

    on_bench(tmp_path, work)


def test_topic_that_cannot_be_completed_is_deleted_after_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(bench: Bench) -> None:
        one = await bench.writer()
        third = list(one.brokers.values())[2]
        third.is_silent = True

        def fail(*_: object) -> None:
            raise DatabaseUnavailable("away")

        monkeypatch.setattr(one.store, "set_topic_state", fail)
        with pytest.raises(DatabaseUnavailable):
            await one.create()
        two = bench.manager("http://one:1")
        await two.election.step()
        await two.pass_time(70)
        assert two.states() == {}
        await two.create(replication=2)
        third.is_silent = False
        await two.reconcile()
        assert (two.states(), third.held, two.outdated) == ({"t": READY}, {}, [])

    on_bench(tmp_path, work)


def test_replicas_of_a_deleted_topic_are_closed_on_returning_brokers(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        late = next(iter(writer.brokers.values()))
        late.is_silent = True
        await writer.topics.delete(writer.epoch, "t")
        await writer.pass_time(6)
        assert bench.store.snapshot().topics[0].state == TopicState.DELETED
        assert len(late.held) == 2
        late.is_silent = False
        await writer.reconcile()
        assert (late.held, writer.outdated) == ({}, [])

    on_bench(tmp_path, work)


def test_concurrently_created_topics_are_placed_like_sequential_ones(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=6)
        await asyncio.gather(*(writer.create(f"t{at}", partitions=1, replication=1) for at in range(12)))
        counts = Counter(member for topic in bench.store.snapshot().topics for member in topic.partitions[0].members)
        assert set(counts.values()) == {2}

    on_bench(tmp_path, work)


def test_put_topic_is_idempotent_and_adds_partitions(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        first = await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=2, owner="Topic/a"))
        version = bench.store.version()
        again = await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=2, owner="Topic/a"))
        assert (bench.store.version(), again.id, again.state) == (version, first.id, READY)
        grown = await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=5, owner="Topic/a"))
        assert [one.index for one in grown.partitions] == [0, 1, 2, 3, 4]
        assert grown.partitions[:2] == first.partitions
        fewer = writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=4, owner="Topic/a"))
        assert "the number cannot be decreased" in str(await refusal_of(fewer))

    on_bench(tmp_path, work)


def test_concurrent_changes_of_different_settings_are_all_kept(tmp_path: Path) -> None:
    """A change of one setting keeps the others."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        changes: list[dict[str, Any]] = [
            {"retention_bytes": 1000},
            {"compression": "zstd"},
            {"partitions": 2},
            {"retention_ms": None},
            {"batch_bytes_max": 2048},
        ]
        await asyncio.gather(*(writer.topics.patch(writer.epoch, "t", **change) for change in changes))
        (topic,) = bench.store.snapshot().topics
        assert (topic.retention_ms, topic.retention_bytes, topic.batch_bytes_max) == (None, 1000, 2048)
        assert (topic.compression, len(topic.partitions)) == ("zstd", 2)

    on_bench(tmp_path, work)


def test_change_does_not_restore_a_deleted_topic(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        deleting = asyncio.create_task(writer.topics.delete(writer.epoch, "t"))
        await asyncio.sleep(0)
        late = await refusal_of(writer.topics.patch(writer.epoch, "t", compression="zstd"))
        await deleting
        assert late.code == "not_found"
        assert writer.states() == {"t": TopicState.DELETING}

    on_bench(tmp_path, work)


def test_concurrent_requests_grow_a_topic_once(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        spec = TopicSpec(name="t", partitions=4)
        await asyncio.gather(*(writer.topics.put(writer.epoch, spec) for _ in range(3)))
        assert len(bench.store.snapshot().topics[0].partitions) == 4
        assert held(writer) == 12

    on_bench(tmp_path, work)


def test_one_of_two_concurrent_owners_is_refused(tmp_path: Path) -> None:
    """A topic with an owner refuses other owners, and the message names the owner."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create()
        puts = [writer.topics.put(writer.epoch, TopicSpec(name="t", owner=f"Topic/{at}")) for at in range(2)]
        ends = await asyncio.gather(*puts, return_exceptions=True)
        assert [type(end).__name__ for end in ends] == ["Topic", "Refusal"]
        assert "is owned by Topic/0" in str(ends[1])
        for owner in (None, "Topic/1"):
            refusal = await refusal_of(writer.topics.delete(writer.epoch, "t", owner))
            assert "is owned by Topic/0" in str(refusal)
        await writer.topics.delete(writer.epoch, "t", "Topic/0")
        assert writer.brokers[next(iter(writer.brokers))].given(DeleteReplica)

    on_bench(tmp_path, work)


def test_reconciler_opens_new_partitions_that_a_broker_did_not_open(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=1)
        third = list(writer.brokers.values())[2]
        third.refuses = PutReplica
        await writer.topics.put(writer.epoch, TopicSpec(name="t", partitions=3))
        assert len(third.held) == 1
        third.refuses = None
        await writer.reconcile()
        assert len(third.held) == 3

    on_bench(tmp_path, work)


def test_each_committed_change_of_a_topic_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        topic = await writer.create(partitions=2)
        for _ in range(2):  # the second change of each kind changes nothing
            await writer.topics.patch(writer.epoch, "t", retention_ms=None, compression="zstd")
        for _ in range(2):
            await writer.topics.patch(writer.epoch, "t", partitions=5)
        for _ in range(2):
            await writer.topics.patch(writer.epoch, "t", owner="Topic/a")
        for _ in range(2):
            await writer.topics.release(writer.epoch, "t", "Topic/a")
        await writer.topics.delete(writer.epoch, "t")
        subject = f"topic=t topic_id={topic.id}"
        assert [line for line in caplog.messages if line.startswith("topic ")] == [
            f"topic created {subject} partitions=2 replication=3",
            f"topic changed {subject} retention_ms=None compression='zstd'",
            f"topic changed {subject} partitions=5 partitions_before=2",
            f"topic changed {subject} owner='Topic/a'",
            f"topic released {subject} owner='Topic/a'",
            f"topic deleted {subject} partitions=5",
        ]

    with caplog.at_level(logging.INFO):
        on_bench(tmp_path, work)


def test_failed_creation_of_a_topic_is_logged_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        list(writer.brokers.values())[2].refuses = PutReplica
        await refusal_of(writer.create())
        (line,) = [line for line in caplog.messages if line.startswith("topic ")]
        assert line.startswith("topic creation failed, deleting topic=t topic_id=")

    with caplog.at_level(logging.INFO):
        on_bench(tmp_path, work)


def test_numbers_of_topics_and_partitions_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        await writer.create(partitions=3)
        monkeypatch.setattr(topics, "PARTITIONS_TOTAL_MAX", 4)
        partitions = "3 partitions exist, and the request adds 2; the limit is 4. "
        partitions += "Delete unused topics, or request fewer partitions."
        for call in (writer.create("u", partitions=2), writer.topics.patch(writer.epoch, "t", partitions=5)):
            refused = await refusal_of(call)
            assert (refused.code, str(refused)) == ("bad_request", partitions)
        monkeypatch.setattr(topics, "TOPICS_MAX", 1)
        refused = await refusal_of(writer.create("u", partitions=1))
        assert (refused.code, str(refused)) == (
            "bad_request",
            "1 topics exist; the limit is 1. Delete unused topics.",
        )

    on_bench(tmp_path, work)


@pytest.mark.parametrize("call", ["create", "delete"])
def test_completed_change_succeeds_although_the_database_fails_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        if call == "delete":
            await writer.create()
        set_topic_state = writer.store.set_topic_state

        async def fail() -> None:
            raise DatabaseUnavailable("away")

        def set_and_go_away(epoch: int, topic_id: str, state: TopicState) -> None:
            set_topic_state(epoch, topic_id, state)
            monkeypatch.setattr(writer.metadata, "refresh", fail)

        monkeypatch.setattr(writer.store, "set_topic_state", set_and_go_away)
        await (writer.create() if call == "create" else writer.topics.delete(writer.epoch, "t"))
        assert ("t" in bench.store.snapshot().ready) == (call == "create")

    on_bench(tmp_path, work)
