"""Lanes: each message once, in order, with its own offset; whoever waits is told how it ended, whatever happens."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import pytest

from flotilla.records import Buffer, check, decode, encode
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Topic
from flotilla_manager.routing.lanes import Lanes, batch_bytes
from unit.manager.dataplane import (
    LOST,
    UNREACHABLE,
    Answer,
    Brokers,
    PartitionLog,
    Request,
    hang,
    make_gateway,
    make_topic,
    make_view,
    on_virtual_time,
    refusal,
)

TOPIC = make_topic()


def make_lanes(brokers: Brokers, *topics: Topic, seconds: float = 15.0, bytes_max: int = 1 << 30) -> Lanes:
    ids = iter(range(1, 1000))
    loop = asyncio.get_running_loop()
    return Lanes(
        make_gateway(brokers, make_view(*(topics or (TOPIC,)))),
        bytes_max=bytes_max,
        seconds=seconds,
        clock=loop.time,
        random_bytes=lambda size: next(ids).to_bytes(size, "big"),
    )


def storing(log: PartitionLog, disturb: Callable[[], Answer | None] = lambda: None) -> Brokers:
    """Brokers that store what they get; `disturb` may replace an answer."""

    async def answer(request: Request) -> Answer:
        await asyncio.sleep(0.001)
        found = log.append(request.body)
        return disturb() or found

    return Brokers(answer)


async def append_all(lanes: Lanes, values: Sequence[bytes], topic: Topic = TOPIC) -> list[int | str]:
    """Append at once; return offsets, or codes of refusals."""

    async def append(value: bytes) -> int | str:
        try:
            return await lanes.append(topic, 0, value)
        except Refusal as error:
            return error.code

    return list(await asyncio.gather(*map(append, values)))


def test_messages_that_come_meanwhile_share_the_next_batch_and_keep_their_order() -> None:
    async def run() -> None:
        log = PartitionLog()
        values = [b"%d" % at for at in range(100)]
        assert await append_all(make_lanes(storing(log)), values) == list(range(100))
        assert log.values == values
        assert len(log.batches) <= 2

    on_virtual_time(run())


def test_a_batch_has_limits() -> None:
    async def run() -> None:
        log = PartitionLog()
        lanes = make_lanes(storing(log))
        assert await append_all(lanes, [b"x" * (400 << 10)] * 5 + [b"y" * (2 << 20)] + [b""] * 5000) == list(
            range(5006)
        )
        assert [check(batch).count for batch in log.batches] == [2, 2, 1, 1, 2048, 2048, 904]

    on_virtual_time(run())


def test_a_batch_whose_answer_was_lost_is_stored_once_and_has_its_first_offset() -> None:
    """Guarantee 3, for people: the manager is a producer itself."""

    async def run() -> None:
        log, lost = PartitionLog(), iter([None, LOST, refusal("internal"), refusal("unknown_outcome")])
        lanes = make_lanes(storing(log, lambda: next(lost, None)))
        assert await append_all(lanes, [b"a", b"b", b"c"]) == [0, 1, 2]
        assert await append_all(lanes, [b"d"]) == [3]
        assert log.values == [b"a", b"b", b"c", b"d"]

    on_virtual_time(run())


@pytest.mark.parametrize(("answer", "code"), [(LOST, "unknown_outcome"), (refusal("disk_full"), "disk_full")])
def test_after_a_batch_that_failed_the_next_one_begins_a_new_epoch(answer: Answer, code: str) -> None:
    """After a failed or unknown batch the client raises its epoch and starts at 0."""

    async def run() -> None:
        log, is_ill = PartitionLog(), False

        async def respond(request: Request) -> Answer:
            return answer if is_ill else log.append(request.body)

        brokers = Brokers(respond)
        lanes = make_lanes(brokers, seconds=1)
        assert await append_all(lanes, [b"a", b"b"]) == [0, 1]
        is_ill = True
        assert await append_all(lanes, [b"c"]) == [code]
        late = brokers.asked[-1].body
        is_ill = False
        assert await append_all(lanes, [b"d"]) == [2]
        head = check(brokers.asked[-1].body)
        assert (head.producer_epoch, head.base_sequence) == (1, 0)
        assert log.append(late).status == 409  # a late copy of what is told as unknown cannot overtake the next
        assert log.values == [b"a", b"b", b"d"]

    on_virtual_time(run())


def test_a_lane_that_its_partition_forgot_begins_anew_and_nobody_notices() -> None:
    async def run() -> None:
        log = PartitionLog()
        lanes = make_lanes(storing(log))
        assert await append_all(lanes, [b"a"]) == [0]
        log.producers.expire(10**9)
        assert await append_all(lanes, [b"b"]) == [1]
        assert log.values == [b"a", b"b"]

    on_virtual_time(run())


def test_a_lane_that_was_idle_for_long_is_another_producer() -> None:
    async def run() -> None:
        log = PartitionLog()
        brokers = storing(log)
        lanes = make_lanes(brokers)
        for pause_s in (0, 500, 601):
            await asyncio.sleep(pause_s)
            await append_all(lanes, [b"m"])
        ids = [check(request.body).producer_id[-1] for request in brokers.asked]
        assert ids == [1, 1, 2]

    on_virtual_time(run())


def test_a_topic_that_was_made_again_has_a_lane_of_its_own() -> None:
    async def run() -> None:
        log, again = PartitionLog(), make_topic(id_="ef" * 16)
        brokers = storing(log)
        lanes = make_lanes(brokers, TOPIC, again)
        await append_all(lanes, [b"old"])
        await append_all(lanes, [b"new"], again)
        heads = [check(request.body) for request in brokers.asked]
        assert heads[0].producer_id != heads[1].producer_id
        assert [head.base_sequence for head in heads] == [0, 0]

    on_virtual_time(run())


def test_one_batch_at_a_time_is_under_way() -> None:
    """With one in flight, a retry can never overtake or be overtaken."""

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

        lanes = make_lanes(Brokers(answer))
        loop = asyncio.get_running_loop()
        tasks = []
        for at in range(20):
            tasks.append(loop.create_task(lanes.append(TOPIC, 0, b"%d" % at)))
            await asyncio.sleep(0.003)
        assert [await task for task in tasks] == list(range(20))
        assert under_way_max == 1

    on_virtual_time(run())


def test_a_client_that_leaves_takes_nobody_with_it() -> None:
    async def run() -> None:
        log = PartitionLog()
        lanes = make_lanes(storing(log))
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(lanes.append(TOPIC, 0, b"%d" % at)) for at in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        assert (await tasks[0], await tasks[2]) == (0, 2)
        assert lanes.in_flight.bytes == 0

    on_virtual_time(run())


def test_a_mistake_of_ours_ends_one_batch_as_unknown_and_the_lane_goes_on() -> None:
    """Nobody waits for ever behind it."""

    async def run() -> None:
        log, mistakes = PartitionLog(), iter([ValueError("a mistake")])

        async def answer(request: Request) -> Answer:
            await asyncio.sleep(0.01)
            return next(mistakes, None) or log.append(request.body)

        lanes = make_lanes(Brokers(answer))
        first = asyncio.create_task(append_all(lanes, [b"a"]))
        await asyncio.sleep(0.001)
        assert await append_all(lanes, [b"b", b"c"]) == [0, 1]
        assert await first == ["unknown_outcome"]
        assert await append_all(lanes, [b"d"]) == [2]

    on_virtual_time(run())


def test_a_lane_that_is_cancelled_tells_everybody_and_can_be_used_again() -> None:
    async def run() -> None:
        log, is_stuck = PartitionLog(), True

        async def answer(request: Request) -> Answer:
            return await hang() if is_stuck else log.append(request.body)

        lanes = make_lanes(Brokers(answer))
        first = asyncio.create_task(append_all(lanes, [b"a"]))
        await asyncio.sleep(0.001)
        second = asyncio.create_task(append_all(lanes, [b"b"]))
        await asyncio.sleep(0.001)
        (lane,) = lanes._lanes.values()
        assert lane.task is not None
        lane.task.cancel()
        assert (await first, await second) == (["unknown_outcome"], ["unavailable"])
        is_stuck = False
        assert await append_all(lanes, [b"c"]) == [0]

    on_virtual_time(run())


def test_too_much_under_way_is_refused() -> None:
    async def run() -> None:
        found = await append_all(make_lanes(storing(PartitionLog()), bytes_max=10), [b"12345678", b"123"])
        assert found == [0, "busy"]

    on_virtual_time(run())


class Chaos:
    """Brokers that do anything that brokers and networks may do to an append."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._late: list[Buffer] = []
        self.log = PartitionLog()
        codes = ("not_leader", "no_leader", "busy", "disk_full", "unknown_partition", "bad_batch")
        self._refusals: list[Answer] = [UNREACHABLE, *map(refusal, codes)]
        self._doubts: list[Answer] = [LOST, refusal("internal"), refusal("unknown_outcome")]

    async def answer(self, request: Request) -> Answer:
        rng = self._rng
        if self._late and rng.random() < 0.2:  # a copy arrives that was under way all the time
            self.log.append(self._late.pop(rng.randrange(len(self._late))))
        fate = rng.choice(["done"] * 10 + ["late"] * 3 + ["unanswered"] * 2 + ["refused"] * 5)
        if fate == "refused":
            return rng.choice(self._refusals)
        if fate == "late":
            self._late.append(request.body)
            return await hang() if rng.random() < 0.3 else LOST
        found = self.log.append(request.body)
        return found if fate == "done" else rng.choice(self._doubts)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_brokers_do_outcomes_are_told_truly(seed: int) -> None:
    """Guarantees 1 to 3: ok is there once, at its offset; failed is not there; what one sent in order is in order."""

    async def run() -> None:
        rng = Random(seed)
        chaos = Chaos(rng)
        lanes = make_lanes(Brokers(chaos.answer), seconds=rng.choice([0.5, 4]))
        told: dict[bytes, int | str] = {}

        async def person(name: int) -> None:
            for number in range(40):
                value = b"%d %d" % (name, number)
                (told[value],) = await append_all(lanes, [value])
                await asyncio.sleep(rng.random() * 0.05)

        await asyncio.gather(*map(person, range(4)))
        check_told(told, chaos.log.values)

    on_virtual_time(run())


def check_told(told: dict[bytes, int | str], stored: list[bytes]) -> None:
    assert any(isinstance(outcome, int) for outcome in told.values())
    assert len(set(stored)) == len(stored)
    for value, outcome in told.items():
        if isinstance(outcome, int):
            assert stored[outcome] == value
        elif outcome != "unknown_outcome":
            assert value not in stored
    names = [tuple(map(int, value.split())) for value in stored]
    for person in range(4):
        numbers = [number for name, number in names if name == person]
        assert numbers == sorted(numbers)


def test_the_batches_can_be_opened_by_consumers() -> None:
    async def run() -> None:
        log = PartitionLog()
        await append_all(make_lanes(storing(log)), [b"", b"\xff"])
        assert [decode(batch).values for batch in log.batches] == [[b"", b"\xff"]]

    on_virtual_time(run())


# -- a topic with a limit of its own for batches -----------------------------------------------------------------------


def test_messages_share_batches_only_as_far_as_their_topic_takes_them() -> None:
    async def run() -> None:
        topic, log = make_topic(batch_bytes_max=1024), PartitionLog()
        values = [bytes(at % 200) for at in range(300)]
        assert await append_all(make_lanes(storing(log), topic), values, topic) == list(range(300))
        assert log.values == values
        sizes = [len(batch) for batch in log.batches]
        assert max(sizes) <= 1024
        assert sum(size > 700 for size in sizes) > len(sizes) / 2, "and they do share them"

    on_virtual_time(run())


def test_a_lane_heeds_a_limit_that_was_set_after_it_began() -> None:
    async def run() -> None:
        log = PartitionLog()
        lanes = make_lanes(storing(log))
        await append_all(lanes, [bytes(100)] * 20)
        before = len(log.batches)
        assert max(map(len, log.batches)) > 1024
        await append_all(lanes, [bytes(100)] * 20, make_topic(batch_bytes_max=1024))
        assert max(map(len, log.batches[before:])) <= 1024

    on_virtual_time(run())


def test_messages_that_are_too_large_together_go_one_after_the_other() -> None:
    """A limit that was lowered a moment ago, and is not known here yet, costs nobody a message that fits."""

    async def run() -> None:
        log = PartitionLog()

        async def answer(request: Request) -> Answer:
            return refusal("too_large") if len(request.body) > batch_bytes(1, 8) else log.append(request.body)

        found = await append_all(make_lanes(Brokers(answer)), [b"a", b"b", bytes(100), b"c", b"d"])
        assert found == [0, 1, "too_large", 2, 3]
        assert log.values == [b"a", b"b", b"c", b"d"]

    on_virtual_time(run())


@pytest.mark.parametrize("values", [[b""], [b"a"] * 3, [bytes(1000)], [bytes(at) for at in range(100)]])
def test_the_size_of_a_batch_is_known_beforehand(values: list[bytes]) -> None:
    assert batch_bytes(len(values), sum(map(len, values))) == len(encode(values))
