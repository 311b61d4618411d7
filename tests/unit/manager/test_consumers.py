"""`consume` of the simple API: each message once and in order through any manager, and timeouts."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import pytest

from flotilla.protocol.errors import Refusal
from flotilla_manager import consumers as module
from flotilla_manager.consumers import Consumers, PositionWriter, advance, apply, position, read_order
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.consumers import match_versions
from flotilla_manager.metadata.errors import DatabaseUnavailable, OutcomeUnknown
from flotilla_manager.model import Advance, Consumer, Topic
from flotilla_manager.record_cache import Found, RecordCache
from flotilla_manager.routing.gateway import Gateway, Offsets
from unit.manager.dataplane import make_topic, on_virtual_time

TOPIC = make_topic(partitions=2)
GROWN = make_topic(partitions=3)


def make_consumer(**changes: object) -> Consumer:
    given: dict[str, Any] = {"partition": None, "version": 0, "cursor": 0, "positions": (0, 0), **changes}
    return Consumer(id="c1", topic_id=TOPIC.id, **given)


class Database:
    """Consumers with compare-and-set, like the real store, shared by all managers."""

    def __init__(self, *consumers: Consumer) -> None:
        self.rows = {consumer.id: consumer for consumer in consumers}
        self.store = self
        self.calls: list[str] = []
        self.last_error: Exception | None = None
        self.is_lost = False  # the step is committed, and the response lost

    async def call(self, function: Callable[..., object], *args: object) -> object:
        self.calls.append(function.__name__)
        await asyncio.sleep(0.002)
        if self.last_error is not None:
            raise self.last_error
        found = function(*args)
        await asyncio.sleep(0.002)
        if self.is_lost:
            raise OutcomeUnknown("lost")
        return found

    def find_consumer(self, consumer_id: str) -> Consumer | None:
        return self.rows.get(consumer_id)

    def advance(self, steps: Sequence[Advance]) -> list[bool]:
        made = match_versions({id_: row.version for id_, row in self.rows.items()}, steps)
        for step, is_made in zip(steps, made, strict=True):
            if is_made:
                self.rows[step.consumer_id] = apply(self.rows[step.consumer_id], step)
        return made


class Partitions:
    """Messages of partitions, as record cache and gateway."""

    def __init__(self, *messages: Sequence[bytes]) -> None:
        self.messages = [list(one) for one in messages]
        self.timeout_s, self.takes_s = 15.0, 0.001
        self.without_leader: set[int] = set()

    async def at(self, _: object, index: int, offset: int, timeout_s: float) -> Found | None:
        await asyncio.sleep(timeout_s if index in self.without_leader else self.takes_s)
        if index in self.without_leader:
            raise Refusal("unavailable", "no leader")
        there = self.messages[index]
        return Found(offset, there[offset]) if offset < len(there) else None

    async def offsets(self, _: object, index: int, *, timeout_s: float) -> Offsets:  # noqa: ARG002 - as the gateway has it
        return Offsets(0, len(self.messages[index]))


def make_consumers(database: Database, partitions: Partitions) -> Consumers:
    return Consumers(cast("AsyncMetadata", database), cast("RecordCache", partitions), cast("Gateway", partitions))


async def take_all(consumers: Consumers, topic: Topic = TOPIC, consumer_id: str = "c1") -> list[bytes]:
    found = []
    while (one := await consumers.consume(topic, consumer_id, None)) is not None:
        found.append(one.value)
    return found


# -- pure functions -----------------------------------------------------------------------------------------------


def test_read_order_starts_at_the_cursor_and_respects_the_registered_partition() -> None:
    assert read_order(GROWN, make_consumer(cursor=2), None) == [2, 0, 1]
    assert read_order(TOPIC, make_consumer(cursor=2), None) == [0, 1]  # the cached topic may be outdated
    assert read_order(GROWN, make_consumer(partition=1), None) == [1]
    assert read_order(GROWN, make_consumer(), 2) == [2]


def test_step_in_an_added_partition_keeps_other_positions() -> None:
    consumer = make_consumer(positions=(5, 6))
    step = advance(GROWN, consumer, module.Consumed(2, 0, b""), explicit=False)
    found = apply(consumer, step)
    assert (found.positions, found.cursor, found.version) == ((5, 6, 1), 0, 1)
    assert position(consumer, 2) == 0


def test_explicit_partition_does_not_move_the_cursor() -> None:
    step = advance(TOPIC, make_consumer(cursor=0), module.Consumed(0, 3, b""), explicit=True)
    assert (step.cursor, step.position) == (0, 4)


# -- consume ------------------------------------------------------------------------------------------------------


def test_messages_are_read_round_robin_until_the_end() -> None:
    async def run() -> None:
        consumers = make_consumers(Database(make_consumer()), Partitions([b"a0", b"a1", b"a2"], [b"b0"]))
        assert await take_all(consumers) == [b"a0", b"b0", b"a1", b"a2"]

    on_virtual_time(run())


@pytest.mark.parametrize("seed", range(10))
def test_managers_that_share_a_consumer_return_each_message_once_in_order(seed: int) -> None:
    """Without failures, consumers that share an id get each message exactly once."""
    rng = Random(seed)

    async def run() -> None:
        partitions = Partitions([b"0 %d" % at for at in range(40)], [b"1 %d" % at for at in range(40)])
        database = Database(make_consumer())
        managers = [make_consumers(database, partitions) for _ in range(3)]
        got: list[bytes] = []

        async def person(manager: Consumers) -> None:
            while (found := await manager.consume(TOPIC, "c1", rng.choice([None, None, 0]))) is not None or len(
                got
            ) < 80:
                if found is not None:
                    assert partitions.messages[found.partition][found.offset] == found.value
                    got.append(found.value)
                await asyncio.sleep(rng.random() * 0.01)

        await asyncio.gather(*(person(manager) for manager in managers for _ in range(3)))
        assert sorted(got) == sorted(value for one in partitions.messages for value in one)

    on_virtual_time(run())


def test_message_consumed_through_another_manager_is_not_returned_again() -> None:
    async def run() -> None:
        partitions = Partitions([b"a", b"b", b"c"], [])
        database = Database(make_consumer())
        first, second = (make_consumers(database, partitions) for _ in range(2))
        found = [await one.consume(TOPIC, "c1", None) for one in (first, second, first)]
        assert [one.value for one in found if one is not None] == [b"a", b"b", b"c"]

    on_virtual_time(run())


def test_cached_consumer_needs_one_query_per_message() -> None:
    async def run() -> None:
        database = Database(make_consumer())
        consumers = make_consumers(database, Partitions([b"a", b"b", b"c"], []))
        await take_all(consumers)
        assert database.calls == ["find_consumer", "advance", "advance", "advance"]

    on_virtual_time(run())


@pytest.mark.parametrize("last_error", [DatabaseUnavailable("gone"), OutcomeUnknown("gone"), ValueError("a mistake")])
def test_failed_step_returns_no_message_and_loses_none(last_error: Exception) -> None:
    async def run() -> None:
        database = Database(make_consumer())
        consumers = make_consumers(database, Partitions([b"a", b"b"], []))
        assert (await consumers.consume(TOPIC, "c1", None)) is not None
        database.last_error = last_error
        with pytest.raises(type(last_error)):
            await consumers.consume(TOPIC, "c1", None)
        database.last_error = None
        assert await take_all(consumers) == [b"b"]

    on_virtual_time(run())


def test_step_of_unknown_outcome_is_not_repeated() -> None:
    """At most once: the message is lost for this consumer, which continues with the next one."""

    async def run() -> None:
        database = Database(make_consumer())
        consumers = make_consumers(database, Partitions([b"a", b"b", b"c"], []))
        assert (await consumers.consume(TOPIC, "c1", None)) is not None
        database.is_lost = True
        with pytest.raises(OutcomeUnknown):
            await consumers.consume(TOPIC, "c1", None)
        database.is_lost = False
        assert await take_all(consumers) == [b"c"]

    on_virtual_time(run())


def test_cancelled_consume_does_not_block_others() -> None:
    async def run() -> None:
        for moment_s in (0.0005, 0.002, 0.0045, 0.0055, 0.0075):
            database = Database(make_consumer())
            consumers = make_consumers(database, Partitions([b"a", b"b", b"c"], []))
            leaver = asyncio.create_task(consumers.consume(TOPIC, "c1", None))
            await asyncio.sleep(moment_s)
            leaver.cancel()
            await asyncio.gather(leaver, return_exceptions=True)
            assert (await take_all(consumers))[-2:] == [b"b", b"c"]

    on_virtual_time(run())


def test_added_partitions_are_read_from_offset_0() -> None:
    async def run() -> None:
        partitions = Partitions([b"a"], [b"b"], [b"c0", b"c1"])
        consumers = make_consumers(Database(make_consumer()), partitions)
        assert await take_all(consumers) == [b"a", b"b"]
        assert await take_all(consumers, GROWN) == [b"c0", b"c1"]

    on_virtual_time(run())


@pytest.mark.parametrize("consumer_id", ["nobody", "", "\0", "é", "x" * 200, "c1 "])
def test_unregistered_consumers_are_rejected_and_invalid_ids_not_queried(consumer_id: str) -> None:
    """PostgreSQL rejects NUL."""

    async def run() -> None:
        database = Database(make_consumer())
        consumers = make_consumers(database, Partitions([b"a"], []))
        for call in (consumers.consume(TOPIC, consumer_id, None), consumers.lag(TOPIC, consumer_id, None, 1)):
            with pytest.raises(Refusal, match=r"^Consumer not registered with topic\.$"):
                await call
        assert not await consumers.is_known(consumer_id)
        assert database.calls == (["find_consumer"] * 3 if consumer_id == "nobody" else [])

    on_virtual_time(run())


def test_registration_is_invalid_for_a_topic_that_was_created_again() -> None:
    async def run() -> None:
        consumers = make_consumers(Database(make_consumer()), Partitions([b"a"], []))
        for _ in range(2):
            with pytest.raises(Refusal, match="not registered"):
                await consumers.consume(make_topic(id_="ef" * 16), "c1", None)
        assert (await consumers.consume(TOPIC, "c1", None)) is not None

    on_virtual_time(run())


# -- unavailable partitions ---------------------------------------------------------------------------------------


def test_partition_without_a_leader_is_skipped() -> None:
    async def run() -> None:
        partitions = Partitions([b"a"], [b"b"])
        partitions.without_leader = {0}
        consumers = make_consumers(Database(make_consumer()), partitions)
        found = await consumers.consume(TOPIC, "c1", None)
        assert found is not None
        assert found.value == b"b"

    on_virtual_time(run())


def test_unresponsive_partitions_share_one_timeout_and_raise_unavailable() -> None:
    async def run() -> None:
        topic = make_topic(partitions=50)
        partitions = Partitions(*[[]] * 50)
        partitions.without_leader = set(range(49))
        consumers = make_consumers(Database(make_consumer(positions=(0,) * 50)), partitions)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(Refusal) as caught:
            await consumers.consume(topic, "c1", None)
        assert caught.value.code == "unavailable"
        assert loop.time() - began < 16

    on_virtual_time(run())


def test_unread_partitions_at_the_timeout_raise_unavailable() -> None:
    async def run() -> None:
        partitions = Partitions(*[[]] * 49, [b"last"])
        partitions.takes_s = 1.0
        consumers = make_consumers(Database(make_consumer(positions=(0,) * 50)), partitions)
        with pytest.raises(Refusal, match="timed out before all partitions were read"):
            await consumers.consume(make_topic(partitions=50), "c1", None)

    on_virtual_time(run())


def test_wait_for_other_requests_of_a_consumer_times_out() -> None:
    async def run() -> None:
        partitions = Partitions([])
        partitions.without_leader = {0}
        consumers = make_consumers(Database(make_consumer(positions=(0,))), partitions)
        loop = asyncio.get_running_loop()
        began = loop.time()
        asking = [consumers.consume(make_topic(), "c1", None) for _ in range(20)]
        found = await asyncio.gather(*asking, return_exceptions=True)
        codes = [one.code for one in found if isinstance(one, Refusal)]
        assert len(codes) == 20
        assert set(codes) == {"unavailable", "busy"}
        assert loop.time() - began <= 31

    on_virtual_time(run())


def test_lag_counts_from_the_first_existing_record() -> None:
    async def run() -> None:
        partitions = Partitions([b"a"] * 5, [b"b"] * 2)
        consumers = make_consumers(Database(make_consumer(positions=(2, 0))), partitions)
        assert await consumers.lag(TOPIC, "c1", None, 1) == {0: 3, 1: 2}
        assert await consumers.lag(TOPIC, "c1", 1, 1) == {1: 2}

    on_virtual_time(run())


# -- limits -------------------------------------------------------------------------------------------------------


def test_concurrent_steps_share_transactions() -> None:
    async def run() -> None:
        consumers = [Consumer(**{**vars(make_consumer()), "id": f"c{at}"}) for at in range(300)]
        database = Database(*consumers)
        steps = PositionWriter(cast("AsyncMetadata", database))
        asked = [Advance(consumer_id=one.id, version=0, cursor=0, partition=0, position=1) for one in consumers]
        assert await asyncio.gather(*map(steps.write, asked)) == [True] * 300
        assert await asyncio.gather(*map(steps.write, asked)) == [False] * 300
        assert len(database.calls) == 4

    on_virtual_time(run())


def test_number_of_cached_consumers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN_MAX", 10)

    async def run() -> None:
        known = [Consumer(**{**vars(make_consumer()), "id": f"c{at}"}) for at in range(30)]
        consumers = make_consumers(Database(*known), Partitions([b"a"], []))
        for one in known:
            assert await take_all(consumers, consumer_id=one.id) == [b"a"]
        assert len(consumers._entries) == 10

    on_virtual_time(run())
