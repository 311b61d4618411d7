"""Partition batchers: each message is stored once, in order, and each request gets its outcome and offset."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import pytest

from flotilla.protocol.errors import Refusal
from flotilla.records import Buffer, check, decode, encode
from flotilla_manager.model import Topic
from flotilla_manager.routing.batching import PartitionBatchers, batch_bytes
from unit.manager.dataplane import (
    LOST,
    UNREACHABLE,
    Answer,
    Brokers,
    PartitionLog,
    Request,
    hang,
    make_gateway,
    make_metadata,
    make_topic,
    on_virtual_time,
    refusal,
    scripted,
)

TOPIC = make_topic()


def make_batchers(
    brokers: Brokers, *topics: Topic, timeout_s: float = 15.0, bytes_max: int = 1 << 30
) -> PartitionBatchers:
    ids = iter(range(1, 1000))
    loop = asyncio.get_running_loop()
    return PartitionBatchers(
        make_gateway(brokers, make_metadata(*(topics or (TOPIC,)))),
        bytes_max=bytes_max,
        timeout_s=timeout_s,
        clock=loop.time,
        random_bytes=lambda size: next(ids).to_bytes(size, "big"),
    )


def storing(log: PartitionLog, disturb: Callable[[], Answer | None] = lambda: None) -> Brokers:
    """Make brokers that store batches; `disturb` may replace a response."""

    async def answer(request: Request) -> Answer:
        await asyncio.sleep(0.001)
        found = log.append(request.body)
        return disturb() or found

    return Brokers(answer)


async def append_all(batchers: PartitionBatchers, values: Sequence[bytes], topic: Topic = TOPIC) -> list[int | str]:
    """Append concurrently; return offsets or error codes."""

    async def append(value: bytes) -> int | str:
        try:
            return await batchers.append(topic, 0, value)
        except Refusal as error:
            return error.code

    return list(await asyncio.gather(*map(append, values)))


def test_messages_that_arrive_during_an_append_share_the_next_batch_in_order() -> None:
    async def run() -> None:
        log = PartitionLog()
        values = [b"%d" % at for at in range(100)]
        assert await append_all(make_batchers(storing(log)), values) == list(range(100))
        assert log.values == values
        assert len(log.batches) <= 2

    on_virtual_time(run())


def test_batch_is_limited_in_messages_and_bytes() -> None:
    async def run() -> None:
        log = PartitionLog()
        batchers = make_batchers(storing(log))
        assert await append_all(batchers, [b"x" * (400 << 10)] * 5 + [b"y" * (2 << 20)] + [b""] * 5000) == list(
            range(5006)
        )
        assert [check(batch).count for batch in log.batches] == [2, 2, 1, 1, 2048, 2048, 904]

    on_virtual_time(run())


def test_batch_with_a_lost_response_is_stored_once_and_keeps_its_offset() -> None:
    """Guarantee 3 for the simple API: the manager is an idempotent producer."""

    async def run() -> None:
        log, lost = PartitionLog(), iter([None, LOST, refusal("internal"), refusal("unknown_outcome")])
        batchers = make_batchers(storing(log, lambda: next(lost, None)))
        assert await append_all(batchers, [b"a", b"b", b"c"]) == [0, 1, 2]
        assert await append_all(batchers, [b"d"]) == [3]
        assert log.values == [b"a", b"b", b"c", b"d"]

    on_virtual_time(run())


@pytest.mark.parametrize(("answer", "code"), [(LOST, "unknown_outcome"), (refusal("disk_full"), "disk_full")])
def test_producer_epoch_is_incremented_after_a_failed_batch(answer: Answer, code: str) -> None:
    """After a failed or unknown batch, the producer increments its epoch and restarts at sequence 0."""

    async def run() -> None:
        log, is_ill = PartitionLog(), False

        async def respond(request: Request) -> Answer:
            return answer if is_ill else log.append(request.body)

        brokers = Brokers(respond)
        batchers = make_batchers(brokers, timeout_s=1)
        assert await append_all(batchers, [b"a", b"b"]) == [0, 1]
        is_ill = True
        assert await append_all(batchers, [b"c"]) == [code]
        late = brokers.asked[-1].body
        is_ill = False
        assert await append_all(batchers, [b"d"]) == [2]
        head = check(brokers.asked[-1].body)
        assert (head.producer_epoch, head.base_sequence) == (1, 0)
        assert (
            log.append(late).status == 409
        )  # a delayed duplicate of an unknown batch is rejected after the next batch
        assert log.values == [b"a", b"b", b"d"]

    on_virtual_time(run())


def test_unknown_message_has_advice_for_clients_without_a_sequence() -> None:
    async def run() -> str:
        with pytest.raises(Refusal) as caught:
            await make_batchers(scripted(LOST)).append(TOPIC, 0, b"a")
        return str(caught.value)

    assert on_virtual_time(run()).endswith(
        "may be stored or not: read the partition before you send the message again; a 'sequence' makes retries safe"
    )


def test_halves_of_a_split_batch_have_outcomes_of_their_own() -> None:
    """The limit of the topic was lowered, and the manager does not know it yet."""

    async def run() -> None:
        log = PartitionLog()

        async def answer(request: Request) -> Answer:
            if check(request.body).count > 1:
                return refusal("too_large")
            return log.append(request.body) if decode(request.body).values == [b"a"] else refusal("bad_batch")

        batchers = make_batchers(Brokers(answer))
        assert await append_all(batchers, [b"a", b"b"]) == [0, "bad_batch"]

    on_virtual_time(run())


def test_batcher_resets_its_producer_state_if_the_partition_dropped_it() -> None:
    async def run() -> None:
        log = PartitionLog()
        batchers = make_batchers(storing(log))
        assert await append_all(batchers, [b"a"]) == [0]
        log.producers.expire(10**9)
        assert await append_all(batchers, [b"b"]) == [1]
        assert log.values == [b"a", b"b"]

    on_virtual_time(run())


def test_batcher_that_was_idle_for_long_gets_a_new_producer_id() -> None:
    async def run() -> None:
        log = PartitionLog()
        brokers = storing(log)
        batchers = make_batchers(brokers)
        for pause_s in (0, 500, 601):
            await asyncio.sleep(pause_s)
            await append_all(batchers, [b"m"])
        ids = [check(request.body).producer_id[-1] for request in brokers.asked]
        assert ids == [1, 1, 2]

    on_virtual_time(run())


def test_topic_that_was_created_again_has_its_own_batcher() -> None:
    async def run() -> None:
        log, again = PartitionLog(), make_topic(id_="ef" * 16)
        brokers = storing(log)
        batchers = make_batchers(brokers, TOPIC, again)
        await append_all(batchers, [b"old"])
        await append_all(batchers, [b"new"], again)
        heads = [check(request.body) for request in brokers.asked]
        assert heads[0].producer_id != heads[1].producer_id
        assert [head.base_sequence for head in heads] == [0, 0]

    on_virtual_time(run())


def test_batcher_has_one_batch_in_flight() -> None:
    """So a retry cannot be reordered."""

    async def run() -> None:
        under_way = under_way_max = 0
        log = PartitionLog()

        async def answer(request: Request) -> Answer:
            nonlocal under_way, under_way_max
            under_way += 1
            under_way_max = max(under_way_max, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1
            return log.append(request.body)

        batchers = make_batchers(Brokers(answer))
        loop = asyncio.get_running_loop()
        tasks = []
        for at in range(20):
            tasks.append(loop.create_task(batchers.append(TOPIC, 0, b"%d" % at)))
            await asyncio.sleep(0.003)
        assert [await task for task in tasks] == list(range(20))
        assert under_way_max == 1

    on_virtual_time(run())


def test_disconnected_client_does_not_cancel_the_batch_of_others() -> None:
    async def run() -> None:
        log = PartitionLog()
        batchers = make_batchers(storing(log))
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(batchers.append(TOPIC, 0, b"%d" % at)) for at in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        assert (await tasks[0], await tasks[2]) == (0, 2)
        assert batchers.in_flight.bytes == 0

    on_virtual_time(run())


def test_unexpected_exception_ends_one_batch_as_unknown() -> None:

    async def run() -> None:
        log, mistakes = PartitionLog(), iter([ValueError("a mistake")])

        async def answer(request: Request) -> Answer:
            await asyncio.sleep(0.01)
            return next(mistakes, None) or log.append(request.body)

        batchers = make_batchers(Brokers(answer))
        first = asyncio.create_task(append_all(batchers, [b"a"]))
        await asyncio.sleep(0.001)
        assert await append_all(batchers, [b"b", b"c"]) == [0, 1]
        assert await first == ["unknown_outcome"]
        assert await append_all(batchers, [b"d"]) == [2]

    on_virtual_time(run())


def test_cancelled_batcher_fails_waiting_messages_and_can_be_used_again() -> None:
    async def run() -> None:
        log, is_stuck = PartitionLog(), True

        async def answer(request: Request) -> Answer:
            return await hang() if is_stuck else log.append(request.body)

        batchers = make_batchers(Brokers(answer))
        first = asyncio.create_task(append_all(batchers, [b"a"]))
        await asyncio.sleep(0.001)
        second = asyncio.create_task(append_all(batchers, [b"b"]))
        await asyncio.sleep(0.001)
        (batcher,) = batchers._batchers.values()
        assert batcher.task is not None
        batcher.task.cancel()
        assert (await first, await second) == (["unknown_outcome"], ["unavailable"])
        is_stuck = False
        assert await append_all(batchers, [b"c"]) == [0]

    on_virtual_time(run())


def test_too_many_bytes_in_flight_are_rejected() -> None:
    async def run() -> None:
        found = await append_all(make_batchers(storing(PartitionLog()), bytes_max=10), [b"12345678", b"123"])
        assert found == [0, "busy"]

    on_virtual_time(run())


class Chaos:
    """Brokers with all failures that brokers and networks can have."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._late: list[Buffer] = []
        self.log = PartitionLog()
        codes = ("not_leader", "no_leader", "busy", "disk_full", "unknown_partition", "bad_batch")
        self._refusals: list[Answer] = [UNREACHABLE, *map(refusal, codes)]
        self._doubts: list[Answer] = [LOST, refusal("internal"), refusal("unknown_outcome")]

    async def answer(self, request: Request) -> Answer:
        rng = self._rng
        if self._late and rng.random() < 0.2:  # a delayed duplicate arrives
            self.log.append(self._late.pop(rng.randrange(len(self._late))))
        outcome = rng.choice(["done"] * 10 + ["late"] * 3 + ["unanswered"] * 2 + ["refused"] * 5)
        if outcome == "refused":
            return rng.choice(self._refusals)
        if outcome == "late":
            self._late.append(request.body)
            return await hang() if rng.random() < 0.3 else LOST
        found = self.log.append(request.body)
        return found if outcome == "done" else rng.choice(self._doubts)


@pytest.mark.parametrize("seed", range(30))
def test_reported_outcomes_are_true_with_random_failures_of_brokers(seed: int) -> None:
    """Guarantees 1 to 3: an ok message is stored once at its offset, a failed one is not stored, and order is kept."""

    async def run() -> None:
        rng = Random(seed)
        chaos = Chaos(rng)
        batchers = make_batchers(Brokers(chaos.answer), timeout_s=rng.choice([0.5, 4]))
        outcomes: dict[bytes, int | str] = {}

        async def person(name: int) -> None:
            for number in range(40):
                value = b"%d %d" % (name, number)
                (outcomes[value],) = await append_all(batchers, [value])
                await asyncio.sleep(rng.random() * 0.05)

        await asyncio.gather(*map(person, range(4)))
        check_outcomes(outcomes, chaos.log.values)

    on_virtual_time(run())


def check_outcomes(outcomes: dict[bytes, int | str], stored: list[bytes]) -> None:
    assert any(isinstance(outcome, int) for outcome in outcomes.values())
    assert len(set(stored)) == len(stored)
    for value, outcome in outcomes.items():
        if isinstance(outcome, int):
            assert stored[outcome] == value
        elif outcome != "unknown_outcome":
            assert value not in stored
    names = [tuple(map(int, value.split())) for value in stored]
    for person in range(4):
        numbers = [number for name, number in names if name == person]
        assert numbers == sorted(numbers)


def test_batches_can_be_decoded_by_consumers() -> None:
    async def run() -> None:
        log = PartitionLog()
        await append_all(make_batchers(storing(log)), [b"", b"\xff"])
        assert [decode(batch).values for batch in log.batches] == [[b"", b"\xff"]]

    on_virtual_time(run())


# -- batch limit of a topic --------------------------------------------------------------------------------------------


def test_batches_respect_the_batch_limit_of_the_topic() -> None:
    async def run() -> None:
        topic, log = make_topic(batch_bytes_max=1024), PartitionLog()
        values = [bytes(at % 200) for at in range(300)]
        assert await append_all(make_batchers(storing(log), topic), values, topic) == list(range(300))
        assert log.values == values
        sizes = [len(batch) for batch in log.batches]
        assert max(sizes) <= 1024
        assert sum(size > 700 for size in sizes) > len(sizes) / 2, "requests share batches"

    on_virtual_time(run())


def test_batcher_respects_a_batch_limit_that_was_set_later() -> None:
    async def run() -> None:
        log = PartitionLog()
        batchers = make_batchers(storing(log))
        await append_all(batchers, [bytes(100)] * 20)
        before = len(log.batches)
        assert max(map(len, log.batches)) > 1024
        await append_all(batchers, [bytes(100)] * 20, make_topic(batch_bytes_max=1024))
        assert max(map(len, log.batches[before:])) <= 1024

    on_virtual_time(run())


def test_batch_rejected_as_too_large_is_sent_message_by_message() -> None:
    """If the batch limit was lowered and the cache is outdated, messages within the limit still succeed."""

    async def run() -> None:
        log = PartitionLog()

        async def answer(request: Request) -> Answer:
            return refusal("too_large") if len(request.body) > batch_bytes(1, 8) else log.append(request.body)

        found = await append_all(make_batchers(Brokers(answer)), [b"a", b"b", bytes(100), b"c", b"d"])
        assert found == [0, 1, "too_large", 2, 3]
        assert log.values == [b"a", b"b", b"c", b"d"]

    on_virtual_time(run())


@pytest.mark.parametrize("values", [[b""], [b"a"] * 3, [bytes(1000)], [bytes(at) for at in range(100)]])
def test_estimated_size_of_a_batch_matches_the_encoded_size(values: list[bytes]) -> None:
    assert batch_bytes(len(values), sum(map(len, values))) == len(encode(values))
