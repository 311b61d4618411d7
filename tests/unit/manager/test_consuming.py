"""Consuming: each message once and in order, whichever manager is asked, while nothing fails; and nothing sticks."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import pytest

from flotilla.serving.errors import Refusal
from flotilla_manager import consuming as module
from flotilla_manager.consuming import Consuming, Steps, advance, moved, position, turns
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.consumers import choose
from flotilla_manager.metadata.errors import DatabaseAway, OutcomeUnknown
from flotilla_manager.model import Advance, Consumer, Topic
from flotilla_manager.records import Found, Records
from flotilla_manager.routing.gateway import Gateway, Offsets
from unit.manager.dataplane import make_topic, on_virtual_time

TOPIC = make_topic(partitions=2)
GROWN = make_topic(partitions=3)


def make_consumer(**changes: object) -> Consumer:
    given: dict[str, Any] = {"partition": None, "version": 0, "cursor": 0, "positions": (0, 0), **changes}
    return Consumer(id="c1", topic_id=TOPIC.id, **given)


class Database:
    """Rows of consumers, changed by compare-and-set as the real ones are; one for all managers."""

    def __init__(self, *consumers: Consumer) -> None:
        self.rows = {consumer.id: consumer for consumer in consumers}
        self.store = self
        self.calls: list[str] = []
        self.trouble: Exception | None = None
        self.is_lost = False  # the step is made, and its answer lost

    async def call(self, function: Callable[..., object], *args: object) -> object:
        self.calls.append(function.__name__)
        await asyncio.sleep(0.002)
        if self.trouble is not None:
            raise self.trouble
        found = function(*args)
        await asyncio.sleep(0.002)
        if self.is_lost:
            raise OutcomeUnknown("lost")
        return found

    def find_consumer(self, consumer_id: str) -> Consumer | None:
        return self.rows.get(consumer_id)

    def advance(self, steps: Sequence[Advance]) -> list[bool]:
        made = choose({id_: row.version for id_, row in self.rows.items()}, steps)
        for step, is_made in zip(steps, made, strict=True):
            if is_made:
                self.rows[step.consumer_id] = moved(self.rows[step.consumer_id], step)
        return made


class Partitions:
    """Messages of partitions, as records and as a gateway."""

    def __init__(self, *messages: Sequence[bytes]) -> None:
        self.messages = [list(one) for one in messages]
        self.seconds, self.takes_s = 15.0, 0.001
        self.without_leader: set[int] = set()

    async def at(self, _: object, index: int, offset: int, seconds: float) -> Found | None:
        await asyncio.sleep(seconds if index in self.without_leader else self.takes_s)
        if index in self.without_leader:
            raise Refusal("unavailable", "no leader")
        there = self.messages[index]
        return Found(offset, there[offset]) if offset < len(there) else None

    async def offsets(self, _: object, index: int, *, seconds: float) -> Offsets:  # noqa: ARG002 - as the gateway has it
        return Offsets(0, len(self.messages[index]))


def make_consuming(database: Database, partitions: Partitions) -> Consuming:
    return Consuming(cast("AsyncMetadata", database), cast("Records", partitions), cast("Gateway", partitions))


async def take_all(consuming: Consuming, topic: Topic = TOPIC, consumer_id: str = "c1") -> list[bytes]:
    found = []
    while (one := await consuming.consume(topic, consumer_id, None)) is not None:
        found.append(one.value)
    return found


# -- pure ---------------------------------------------------------------------------------------------------------


def test_turns_go_round_from_the_cursor_and_stay_within_what_was_registered() -> None:
    assert turns(GROWN, make_consumer(cursor=2), None) == [2, 0, 1]
    assert turns(TOPIC, make_consumer(cursor=2), None) == [0, 1]  # what is known here may be older
    assert turns(GROWN, make_consumer(partition=1), None) == [1]
    assert turns(GROWN, make_consumer(), 2) == [2]


def test_a_step_to_a_partition_that_was_added_keeps_the_other_places() -> None:
    consumer = make_consumer(positions=(5, 6))
    step = advance(GROWN, consumer, module.Consumed(2, 0, b""), explicit=False)
    found = moved(consumer, step)
    assert (found.positions, found.cursor, found.version) == ((5, 6, 1), 0, 1)
    assert position(consumer, 2) == 0


def test_a_partition_that_was_asked_for_by_name_does_not_change_the_turn() -> None:
    step = advance(TOPIC, make_consumer(cursor=0), module.Consumed(0, 3, b""), explicit=True)
    assert (step.cursor, step.position) == (0, 4)


# -- one manager, and several -------------------------------------------------------------------------------------


def test_messages_come_from_the_partitions_in_turn_until_there_are_none() -> None:
    async def run() -> None:
        consuming = make_consuming(Database(make_consumer()), Partitions([b"a0", b"a1", b"a2"], [b"b0"]))
        assert await take_all(consuming) == [b"a0", b"b0", b"a1", b"a2"]

    on_virtual_time(run())


@pytest.mark.parametrize("seed", range(10))
def test_managers_that_share_a_consumer_hand_out_each_message_once_and_in_order(seed: int) -> None:
    """While nothing fails, consumers that share an id get each message exactly once, over several managers."""
    rng = Random(seed)

    async def run() -> None:
        partitions = Partitions([b"0 %d" % at for at in range(40)], [b"1 %d" % at for at in range(40)])
        database = Database(make_consumer())
        managers = [make_consuming(database, partitions) for _ in range(3)]
        got: list[bytes] = []

        async def person(manager: Consuming) -> None:
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


def test_what_another_manager_has_taken_meanwhile_is_not_handed_out_again() -> None:
    async def run() -> None:
        partitions = Partitions([b"a", b"b", b"c"], [])
        database = Database(make_consumer())
        first, second = (make_consuming(database, partitions) for _ in range(2))
        found = [await one.consume(TOPIC, "c1", None) for one in (first, second, first)]
        assert [one.value for one in found if one is not None] == [b"a", b"b", b"c"]

    on_virtual_time(run())


def test_a_known_consumer_costs_one_query_for_each_message() -> None:
    async def run() -> None:
        database = Database(make_consumer())
        consuming = make_consuming(database, Partitions([b"a", b"b", b"c"], []))
        await take_all(consuming)
        assert database.calls == ["find_consumer", "advance", "advance", "advance"]

    on_virtual_time(run())


@pytest.mark.parametrize("trouble", [DatabaseAway("gone"), OutcomeUnknown("gone"), ValueError("a mistake")])
def test_a_step_that_was_not_made_hands_nothing_out_and_loses_nothing(trouble: Exception) -> None:
    async def run() -> None:
        database = Database(make_consumer())
        consuming = make_consuming(database, Partitions([b"a", b"b"], []))
        assert (await consuming.consume(TOPIC, "c1", None)) is not None
        database.trouble = trouble
        with pytest.raises(type(trouble)):
            await consuming.consume(TOPIC, "c1", None)
        database.trouble = None
        assert await take_all(consuming) == [b"b"]

    on_virtual_time(run())


def test_a_step_whose_answer_was_lost_is_never_made_twice() -> None:
    """At most once: the message is gone for this consumer, and the next one is the next."""

    async def run() -> None:
        database = Database(make_consumer())
        consuming = make_consuming(database, Partitions([b"a", b"b", b"c"], []))
        assert (await consuming.consume(TOPIC, "c1", None)) is not None
        database.is_lost = True
        with pytest.raises(OutcomeUnknown):
            await consuming.consume(TOPIC, "c1", None)
        database.is_lost = False
        assert await take_all(consuming) == [b"c"]

    on_virtual_time(run())


def test_a_client_that_leaves_in_the_middle_blocks_nobody() -> None:
    async def run() -> None:
        for moment_s in (0.0005, 0.002, 0.0045, 0.0055, 0.0075):
            database = Database(make_consumer())
            consuming = make_consuming(database, Partitions([b"a", b"b", b"c"], []))
            leaver = asyncio.create_task(consuming.consume(TOPIC, "c1", None))
            await asyncio.sleep(moment_s)
            leaver.cancel()
            await asyncio.gather(leaver, return_exceptions=True)
            assert (await take_all(consuming))[-2:] == [b"b", b"c"]

    on_virtual_time(run())


def test_topics_that_grow_are_read_from_the_beginning_of_what_was_added() -> None:
    async def run() -> None:
        partitions = Partitions([b"a"], [b"b"], [b"c0", b"c1"])
        consuming = make_consuming(Database(make_consumer()), partitions)
        assert await take_all(consuming) == [b"a", b"b"]
        assert await take_all(consuming, GROWN) == [b"c0", b"c1"]

    on_virtual_time(run())


@pytest.mark.parametrize("consumer_id", ["nobody", "", "\0", "é", "x" * 200, "c1 "])
def test_strangers_are_refused_and_odd_ids_never_reach_the_database(consumer_id: str) -> None:
    """PostgreSQL takes no NUL: what cannot be an id is not asked for."""

    async def run() -> None:
        database = Database(make_consumer())
        consuming = make_consuming(database, Partitions([b"a"], []))
        for call in (consuming.consume(TOPIC, consumer_id, None), consuming.left(TOPIC, consumer_id, None, 1)):
            with pytest.raises(Refusal, match=r"^Consumer not registered with topic\.$"):
                await call
        assert not await consuming.is_known(consumer_id)
        assert database.calls == (["find_consumer"] * 3 if consumer_id == "nobody" else [])

    on_virtual_time(run())


def test_a_consumer_of_a_topic_that_was_made_again_is_a_stranger() -> None:
    async def run() -> None:
        consuming = make_consuming(Database(make_consumer()), Partitions([b"a"], []))
        for _ in range(2):
            with pytest.raises(Refusal, match="not registered"):
                await consuming.consume(make_topic(id_="ef" * 16), "c1", None)
        assert (await consuming.consume(TOPIC, "c1", None)) is not None

    on_virtual_time(run())


# -- partitions that do not answer --------------------------------------------------------------------------------


def test_a_partition_without_a_leader_is_passed_over() -> None:
    async def run() -> None:
        partitions = Partitions([b"a"], [b"b"])
        partitions.without_leader = {0}
        consuming = make_consuming(Database(make_consumer()), partitions)
        found = await consuming.consume(TOPIC, "c1", None)
        assert found is not None
        assert found.value == b"b"

    on_virtual_time(run())


def test_partitions_that_do_not_answer_are_not_called_empty_and_cost_a_bounded_time() -> None:
    async def run() -> None:
        topic = make_topic(partitions=50)
        partitions = Partitions(*[[]] * 50)
        partitions.without_leader = set(range(49))
        consuming = make_consuming(Database(make_consumer(positions=(0,) * 50)), partitions)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(Refusal) as caught:
            await consuming.consume(topic, "c1", None)
        assert caught.value.code == "unavailable"
        assert loop.time() - began < 16

    on_virtual_time(run())


def test_what_was_not_looked_into_in_time_is_not_called_empty() -> None:
    async def run() -> None:
        partitions = Partitions(*[[]] * 49, [b"last"])
        partitions.takes_s = 1.0
        consuming = make_consuming(Database(make_consumer(positions=(0,) * 50)), partitions)
        with pytest.raises(Refusal, match="too slow"):
            await consuming.consume(make_topic(partitions=50), "c1", None)

    on_virtual_time(run())


def test_those_who_share_an_id_do_not_wait_for_each_other_for_ever() -> None:
    async def run() -> None:
        partitions = Partitions([])
        partitions.without_leader = {0}
        consuming = make_consuming(Database(make_consumer(positions=(0,))), partitions)
        loop = asyncio.get_running_loop()
        began = loop.time()
        asking = [consuming.consume(make_topic(), "c1", None) for _ in range(20)]
        found = await asyncio.gather(*asking, return_exceptions=True)
        codes = [one.code for one in found if isinstance(one, Refusal)]
        assert len(codes) == 20
        assert set(codes) == {"unavailable", "busy"}
        assert loop.time() - began <= 31

    on_virtual_time(run())


def test_size_counts_what_is_left_from_the_first_record_that_is_there() -> None:
    async def run() -> None:
        partitions = Partitions([b"a"] * 5, [b"b"] * 2)
        consuming = make_consuming(Database(make_consumer(positions=(2, 0))), partitions)
        assert await consuming.left(TOPIC, "c1", None, 1) == {0: 3, 1: 2}
        assert await consuming.left(TOPIC, "c1", 1, 1) == {1: 2}

    on_virtual_time(run())


# -- limits -------------------------------------------------------------------------------------------------------


def test_steps_that_come_at_once_share_transactions() -> None:
    async def run() -> None:
        consumers = [Consumer(**{**vars(make_consumer()), "id": f"c{at}"}) for at in range(300)]
        database = Database(*consumers)
        steps = Steps(cast("AsyncMetadata", database))
        asked = [Advance(consumer_id=one.id, version=0, cursor=0, partition=0, position=1) for one in consumers]
        assert await asyncio.gather(*map(steps.take, asked)) == [True] * 300
        assert await asyncio.gather(*map(steps.take, asked)) == [False] * 300
        assert len(database.calls) == 4

    on_virtual_time(run())


def test_consumers_that_are_remembered_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN_MAX", 10)

    async def run() -> None:
        consumers = [Consumer(**{**vars(make_consumer()), "id": f"c{at}"}) for at in range(30)]
        consuming = make_consuming(Database(*consumers), Partitions([b"a"], []))
        for one in consumers:
            assert await take_all(consuming, consumer_id=one.id) == [b"a"]
        assert len(consuming._entries) == 10

    on_virtual_time(run())
