"""Record cache: correct records per topic, partition and offset, expiry, shared fetches, and limits."""

import asyncio
import itertools
from unittest.mock import patch

import pytest

from flotilla.net import Response
from flotilla.protocol.errors import Refusal
from flotilla.records import Compression
from flotilla_manager import record_cache as module
from flotilla_manager.model import Topic
from flotilla_manager.record_cache import FRESH_S, Found, RecordCache, decode_batches
from unit.manager.dataplane import (
    Answer,
    Brokers,
    PartitionLog,
    Request,
    batch_at,
    make_gateway,
    make_metadata,
    make_topic,
    on_virtual_time,
)
from unit.records.forge import batch_around, with_fields

TOPIC, AGAIN = make_topic(partitions=2), make_topic(id_="ef" * 16)


def parameters(request: Request) -> dict[str, str]:
    return dict(pair.split("=") for pair in request.target.partition("?")[2].split("&"))


def make_records(brokers: Brokers) -> RecordCache:
    return RecordCache(make_gateway(brokers, make_metadata(TOPIC, AGAIN)), 15, asyncio.get_running_loop().time)


class Logs:
    """Brokers with logs of partitions, by topic id and index."""

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

    def records(self) -> RecordCache:
        return make_records(self.brokers)


def test_fetched_records_are_served_from_the_cache() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a", b"b", b"c"])
        records = logs.records()
        assert [await records.at(TOPIC, 0, at) for at in range(3)] == [Found(0, b"a"), Found(1, b"b"), Found(2, b"c")]
        assert len(logs.brokers.asked) == 1
        assert await records.at(TOPIC, 0, 3) is None

    on_virtual_time(run())


def test_partitions_and_topics_of_one_name_are_cached_separately() -> None:
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


def test_offset_before_the_first_record_skips_to_it() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"%d" % at for at in range(10)]).first = 6
        assert await logs.records().at(TOPIC, 0, 2) == (6, b"6")

    on_virtual_time(run())


def test_offset_beyond_the_end_is_refused() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a"])
        with pytest.raises(Refusal) as caught:
            await logs.records().at(TOPIC, 0, 5)
        assert caught.value.code == "offset_out_of_range"

    on_virtual_time(run())


def test_used_range_stays_cached_while_others_read_elsewhere() -> None:
    """Consumers at the end add many small ranges, which must not evict the range of a consumer that lags."""

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


def test_size_of_the_cache_is_limited() -> None:
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


def test_concurrent_reads_of_an_offset_get_the_same_record() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a", b"b"])
        records = logs.records()
        found = await asyncio.gather(*(records.at(TOPIC, 0, at % 2) for at in range(10)))
        assert found == [Found(0, b"a"), Found(1, b"b")] * 5
        assert records.size == sum(
            records_found.size for chunks in records._chunks.values() for records_found in chunks
        )

    on_virtual_time(run())


def test_decoded_bytes_per_fetch_are_limited() -> None:
    """A small compressed fetch may decode to gigabytes, so only a part is decoded at a time."""
    bomb = [bytes(1 << 20)] * 8
    body = b"".join(batch_at(at * 8, bomb, compression=Compression.ZSTD) for at in range(10))
    assert len(body) < 128 << 10
    for offset, count in ((0, 8), (17, 7), (79, 1)):
        records_found = decode_batches(body, offset)
        assert (records_found.base, len(records_found.values)) == (offset, count)


def test_decoding_stops_at_a_gap() -> None:
    body = batch_at(5, [b"a"]) + batch_at(7, [b"b"])
    records_found = decode_batches(body, 5)
    assert (records_found.base, records_found.values) == (5, [b"a"])
    assert decode_batches(body, 6).at(7) == (7, b"b")


def test_batch_with_an_invalid_checksum_is_unavailable() -> None:
    body = bytearray(batch_at(0, [b"value"]))
    body[-8] ^= 1
    with pytest.raises(Refusal, match="invalid batch"):
        decode_batches(bytes(body), 0)


def poisoned(offset: int, count: int) -> bytes:
    """Batch with a valid checksum and an undecodable body."""
    return bytes(with_fields(batch_around(b"nonsense" * count, count=count), base_offset=offset))


def test_undecodable_batch_is_skipped() -> None:
    """Brokers do not decode batches, so any producer can store an invalid one. It must not block later records."""

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


def test_cached_records_expire_after_fresh_s() -> None:
    """A delete-records request waits for this time, so that no manager returns deleted records."""

    async def run() -> None:
        logs = Logs()
        log = logs.put([b"a", b"b", b"c"])
        records = logs.records()
        assert await records.at(TOPIC, 0, 0) == (0, b"a")
        log.first = 2
        await asyncio.sleep(FRESH_S)
        assert await records.at(TOPIC, 0, 1) == (2, b"c")
        assert records.size == decode_batches(log.fetch(2).body, 2).size, "expired records are dropped"

    on_virtual_time(run())


def test_age_of_a_fetch_counts_from_its_start() -> None:
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
    """Brokers that read at once and respond later."""

    def __init__(self, logs: Logs, seconds: float) -> None:
        self._logs = logs
        self._seconds = seconds
        self.brokers = Brokers(self._answer)

    async def _answer(self, request: Request) -> Answer:
        found = await self._logs._answer(request)
        await asyncio.sleep(self._seconds)
        return found


def test_concurrent_misses_share_a_slow_fetch() -> None:
    """Otherwise each result is too old for the others, and under load every message needs a fetch."""

    async def run() -> None:
        logs = Logs()
        logs.put([b"%d" % at for at in range(50)])
        slow = Slow(logs, 2 * FRESH_S)
        records = make_records(slow.brokers)
        found = await asyncio.gather(*(records.at(TOPIC, 0, at) for at in range(50)))
        assert found == [(at, b"%d" % at) for at in range(50)]
        assert len(slow.brokers.asked) == 1

    on_virtual_time(run())


def test_fetch_from_before_a_deletion_is_not_shared_afterwards() -> None:
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
        assert await early == (0, b"a"), "the request started earlier"

    on_virtual_time(run())


def test_end_of_partition_requires_a_fetch_started_after_the_request() -> None:
    """A message that was stored before a request must be found, although an older fetch did not see it."""

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


def test_cancelled_reader_does_not_cancel_a_shared_fetch() -> None:
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


def test_deleted_records_of_a_batch_are_left_out() -> None:
    async def run() -> None:
        logs = Logs()
        log = logs.put([])
        log.append(batch_at(0, [b"a", b"b", b"c", b"d"]))
        log.first = 2
        records = logs.records()
        assert await records.at(TOPIC, 0, 3) == (3, b"d")
        assert await records.at(TOPIC, 0, 0) == (2, b"c"), "not from the batch of the other request"

    on_virtual_time(run())


def test_partition_with_only_undecodable_batches_is_read_to_the_end() -> None:
    async def run() -> None:
        async def answer(request: Request) -> Answer:
            offset = int(parameters(request)["offset"])
            return Response(200, {}, poisoned(offset, 1) if offset < 7 else b"")

        brokers = Brokers(answer)
        assert await make_records(brokers).at(TOPIC, 0, 0) is None
        assert len(brokers.asked) == 8

    on_virtual_time(run())


def test_readers_at_the_end_of_a_fetch_start_one_more_fetch() -> None:
    async def run() -> None:
        logs = Logs()
        logs.put([b"a"])

        async def answer(request: Request) -> Answer:
            for _ in range(10):
                await asyncio.sleep(0)
            return await logs._answer(request)

        ticks = itertools.count()
        gateway = make_gateway(Brokers(answer), make_metadata(TOPIC, AGAIN))
        records = RecordCache(gateway, 15, lambda: next(ticks) * 1e-6)  # every call gets another time
        asked = []
        for _ in range(100):  # one per iteration of the event loop
            asked.append(asyncio.create_task(records.at(TOPIC, 0, 1)))
            await asyncio.sleep(0)
        assert await asyncio.gather(*asked) == [None] * 100

    on_virtual_time(run())
