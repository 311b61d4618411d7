"""Records that are kept: always those of their topic, partition and offset, and never too many."""

import asyncio
import itertools
from unittest.mock import patch

import pytest

from flotilla.net import Response
from flotilla.records import Compression
from flotilla.serving.errors import Refusal
from flotilla_manager import records as module
from flotilla_manager.model import Topic
from flotilla_manager.records import FRESH_S, Found, Records, open_chunk
from unit.manager.dataplane import (
    Answer,
    Brokers,
    PartitionLog,
    Request,
    batch_at,
    make_gateway,
    make_topic,
    make_view,
    on_virtual_time,
)
from unit.records.forge import batch_around, with_fields

TOPIC, AGAIN = make_topic(partitions=2), make_topic(id_="ef" * 16)


def parameters(request: Request) -> dict[str, str]:
    return dict(pair.split("=") for pair in request.target.partition("?")[2].split("&"))


def make_records(brokers: Brokers) -> Records:
    return Records(make_gateway(brokers, make_view(TOPIC, AGAIN)), 15, asyncio.get_running_loop().time)


class Logs:
    """The logs of partitions, by topic id and index, as brokers."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.brokers = Brokers(self._answer)

    def put(self, values: list[bytes], topic: Topic = TOPIC, index: int = 0) -> PartitionLog:
        log = self.logs.setdefault((topic.id, index), PartitionLog())
        for value in values:
            log.append(batch_at(0, [value]))
        return log

    async def _answer(self, request: Request) -> Answer:
        asked = parameters(request)
        log = self.logs[asked["topic"].removeprefix("id:"), int(asked["partition"])]
        return log.fetch(int(asked["offset"]))

    def records(self) -> Records:
        return make_records(self.brokers)


def test_what_was_fetched_once_is_found_without_a_broker() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a", b"b", b"c"])
        records = logs.records()
        assert [await records.at(TOPIC, 0, at) for at in range(3)] == [Found(0, b"a"), Found(1, b"b"), Found(2, b"c")]
        assert len(logs.brokers.asked) == 1
        assert await records.at(TOPIC, 0, 3) is None

    on_virtual_time(run())


def test_partitions_and_topics_of_one_name_are_never_mixed_up() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"old 0"])
        logs.put([b"old 1"], index=1)
        logs.put([b"new"], AGAIN)
        records = logs.records()
        for _ in range(2):
            assert await records.at(TOPIC, 0, 0) == (0, b"old 0")
            assert await records.at(TOPIC, 1, 0) == (0, b"old 1")
            assert await records.at(AGAIN, 0, 0) == (0, b"new")

    on_virtual_time(run())


def test_what_retention_removed_is_passed_over_to_the_first_record_that_is_left() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"%d" % at for at in range(10)]).first = 6
        assert await logs.records().at(TOPIC, 0, 2) == (6, b"6")

    on_virtual_time(run())


def test_a_place_behind_the_end_is_told_and_not_taken_for_an_empty_partition() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a"])
        with pytest.raises(Refusal) as caught:
            await logs.records().at(TOPIC, 0, 5)
        assert caught.value.code == "offset_out_of_range"

    on_virtual_time(run())


def test_what_is_used_stays_while_others_read_elsewhere() -> None:
    """Consumers at the end bring many small pieces: they must not cost one that is behind its place."""

    async def run() -> None:
        logs = Logs()
        logs.put([b"%d" % at for at in range(100)])
        records = logs.records()
        await records.at(TOPIC, 0, 0)
        for at in range(10):
            logs.put([b"new"])
            await records.at(TOPIC, 0, 100 + at)
            assert await records.at(TOPIC, 0, at) == (at, b"%d" % at)
        assert len(logs.brokers.asked) == 11

    on_virtual_time(run())


def test_what_is_kept_has_a_limit() -> None:
    async def run() -> None:
        logs = Logs()
        for index in (0, 1):
            for topic in (TOPIC, AGAIN)[: 2 - index]:
                logs.put([b"x" * 1000], topic, index)
        records = logs.records()
        with patch.object(module, "_BYTES_MAX", 2500):
            for topic, index in ((TOPIC, 0), (TOPIC, 1), (AGAIN, 0)):
                await records.at(topic, index, 0)
                assert records.size <= 2500
            assert len(logs.brokers.asked) == 3
            await records.at(AGAIN, 0, 0)
            assert len(logs.brokers.asked) == 3
            await records.at(TOPIC, 0, 0)
            assert len(logs.brokers.asked) == 4

    on_virtual_time(run())


def test_those_who_fetch_the_same_at_once_get_the_same() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a", b"b"])
        records = logs.records()
        found = await asyncio.gather(*(records.at(TOPIC, 0, at % 2) for at in range(10)))
        assert found == [Found(0, b"a"), Found(1, b"b")] * 5
        assert records.size == sum(chunk.size for chunks in records._chunks.values() for chunk in chunks)

    on_virtual_time(run())


def test_batches_that_compress_well_do_not_fill_the_memory() -> None:
    """A few bytes of a fetch may become gigabytes: of what was fetched, only a little is opened at a time."""
    bomb = [bytes(1 << 20)] * 8
    body = b"".join(batch_at(at * 8, bomb, compression=Compression.ZSTD) for at in range(10))
    assert len(body) < 128 << 10
    for offset, count in ((0, 8), (17, 7), (79, 1)):
        chunk = open_chunk(body, offset)
        assert (chunk.base, len(chunk.values)) == (offset, count)


def test_a_gap_is_not_papered_over() -> None:
    body = batch_at(5, [b"a"]) + batch_at(7, [b"b"])
    chunk = open_chunk(body, 5)
    assert (chunk.base, chunk.values) == (5, [b"a"])
    assert open_chunk(body, 6).at(7) == (7, b"b")


def test_a_batch_that_was_damaged_on_its_way_is_asked_for_again() -> None:
    body = bytearray(batch_at(0, [b"value"]))
    body[-8] ^= 1
    with pytest.raises(Refusal, match="cannot be read"):
        open_chunk(bytes(body), 0)


def poisoned(offset: int, count: int) -> bytes:
    """A batch that is whole, as far as brokers look, and holds nothing that can be read."""
    return bytes(with_fields(batch_around(b"nonsense" * count, count=count), base_offset=offset))


def test_a_batch_that_nobody_can_read_does_not_hide_what_lies_behind_it() -> None:
    """Brokers store batches unopened, so that anybody may store such a one: bad input never costs data."""

    async def run() -> None:
        body = batch_at(0, [b"a"]) + poisoned(1, 3) + batch_at(4, [b"b"])

        async def answer(request: Request) -> Answer:
            offset = int(parameters(request)["offset"])
            return Response(200, {}, body if offset < 5 else b"")

        records = make_records(Brokers(answer))
        assert [await records.at(TOPIC, 0, at) for at in range(6)] == [
            (0, b"a"),
            *[(4, b"b")] * 4,
            None,
        ]

    on_virtual_time(run())


def test_what_was_kept_is_used_for_a_moment_only() -> None:
    """Whoever deletes records waits as long: then no manager hands them out any more."""

    async def run() -> None:
        logs = Logs()
        log = logs.put([b"a", b"b", b"c"])
        records = logs.records()
        assert await records.at(TOPIC, 0, 0) == (0, b"a")
        log.first = 2
        await asyncio.sleep(FRESH_S)
        assert await records.at(TOPIC, 0, 1) == (2, b"c")
        assert records.size == open_chunk(log.fetch(2).body, 2).size, "what is old is let go of"

    on_virtual_time(run())


def test_a_slow_answer_is_as_old_as_its_question() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a", b"b"])

        async def slow(request: Request) -> Answer:
            await asyncio.sleep(FRESH_S)
            return await logs._answer(request)

        brokers = Brokers(slow)
        records = make_records(brokers)
        assert [await records.at(TOPIC, 0, at) for at in (0, 1)] == [(0, b"a"), (1, b"b")]
        assert len(brokers.asked) == 2

    on_virtual_time(run())


class Slow:
    """Brokers that read at once and answer a while later."""

    def __init__(self, logs: Logs, seconds: float) -> None:
        self._logs = logs
        self._seconds = seconds
        self.brokers = Brokers(self._answer)

    async def _answer(self, request: Request) -> Answer:
        found = await self._logs._answer(request)
        await asyncio.sleep(self._seconds)
        return found


def test_consumers_that_miss_at_the_same_time_share_a_fetch_however_long_it_takes() -> None:
    """Otherwise what each fetches is too old for the others, and under load every message costs a fetch."""

    async def run() -> None:
        logs = Logs()
        logs.put([b"%d" % at for at in range(50)])
        slow = Slow(logs, 2 * FRESH_S)
        records = make_records(slow.brokers)
        found = await asyncio.gather(*(records.at(TOPIC, 0, at) for at in range(50)))
        assert found == [(at, b"%d" % at) for at in range(50)]
        assert len(slow.brokers.asked) == 1

    on_virtual_time(run())


def test_a_fetch_that_began_before_a_deletion_was_answered_is_not_shared_afterwards() -> None:
    async def run() -> None:
        logs = Logs()
        log = logs.put([b"a", b"b", b"c"])
        records = make_records(Slow(logs, 2 * FRESH_S).brokers)
        early = asyncio.create_task(records.at(TOPIC, 0, 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        log.first = 2
        await asyncio.sleep(FRESH_S)
        assert await records.at(TOPIC, 0, 0) == (2, b"c")
        assert await early == (0, b"a"), "it was asked for before"

    on_virtual_time(run())


def test_that_nothing_is_there_is_told_by_a_fetch_of_ones_own() -> None:
    """A message that was stored before somebody asks is found, whoever asked a moment earlier."""

    async def run() -> None:
        logs = Logs()
        logs.put([b"a"])
        records = make_records(Slow(logs, 0.1).brokers)
        early = asyncio.create_task(records.at(TOPIC, 0, 1))
        await asyncio.sleep(0.05)
        logs.put([b"b"])
        assert await records.at(TOPIC, 0, 1) == (1, b"b")
        assert await early is None

    on_virtual_time(run())


def test_one_who_leaves_does_not_take_the_fetch_from_those_who_share_it() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a", b"b"])
        slow = Slow(logs, 0.1)
        records = make_records(slow.brokers)
        first, second = (asyncio.create_task(records.at(TOPIC, 0, at)) for at in (0, 1))
        await asyncio.sleep(0.05)
        first.cancel()
        assert await second == (1, b"b")
        assert len(slow.brokers.asked) == 1

    on_virtual_time(run())


def test_records_that_share_a_batch_with_a_deleted_one_are_found_and_the_deleted_one_is_not() -> None:
    async def run() -> None:
        logs = Logs()
        log = logs.put([])
        log.append(batch_at(0, [b"a", b"b", b"c", b"d"]))
        log.first = 2
        records = logs.records()
        assert await records.at(TOPIC, 0, 3) == (3, b"d")
        assert await records.at(TOPIC, 0, 0) == (2, b"c"), "not from the batch that another one has fetched"

    on_virtual_time(run())


def test_unreadable_batches_alone_are_passed_over_to_the_end() -> None:
    async def run() -> None:
        async def answer(request: Request) -> Answer:
            offset = int(parameters(request)["offset"])
            return Response(200, {}, poisoned(offset, 1) if offset < 7 else b"")

        brokers = Brokers(answer)
        assert await make_records(brokers).at(TOPIC, 0, 0) is None
        assert len(brokers.asked) == 8

    on_virtual_time(run())


def test_those_who_come_at_the_very_moment_a_fetch_ends_ask_once_more_and_not_in_circles() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a"])

        async def answer(request: Request) -> Answer:
            for _ in range(10):
                await asyncio.sleep(0)
            return await logs._answer(request)

        ticks = itertools.count()
        gateway = make_gateway(Brokers(answer), make_view(TOPIC, AGAIN))
        records = Records(gateway, 15, lambda: next(ticks) * 1e-6)  # no two of them ask at the same time
        asked = []
        for _ in range(100):  # one in every round of the loop
            asked.append(asyncio.create_task(records.at(TOPIC, 0, 1)))
            await asyncio.sleep(0)
        assert await asyncio.gather(*asked) == [None] * 100

    on_virtual_time(run())
