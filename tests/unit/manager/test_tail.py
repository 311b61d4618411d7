"""Tail streams to slow clients."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from flotilla.net import Response
from flotilla.records import assign, encode
from flotilla_manager.api.tail import Stream
from flotilla_manager.record_cache import FRESH_S
from unit.manager.dataplane import (
    Answer,
    Brokers,
    Request,
    hang,
    make_gateway,
    make_metadata,
    make_topic,
    on_virtual_time,
    refusal,
)

TOPIC = make_topic()


class Leader:
    """Leader of a partition with ten batches of one record; some may be deleted."""

    def __init__(self) -> None:
        self.first = 0
        self.is_unreachable = False

    async def answer(self, request: Request) -> Answer:
        offset = parse_qs(urlsplit(request.target).query)["offset"][0]
        if self.is_unreachable:
            return refusal("no_leader")
        at = 10 if offset == "latest" else int(offset)
        if at >= 10 and offset != "latest":
            return await hang()
        batch = bytearray()
        if at < 10:
            batch = encode([b"record %d" % at])
            assign(batch, at, 5)
        headers = {b"flotilla-first-offset": b"%d" % self.first, b"flotilla-next-offset": b"10"}
        return Response(200, headers, bytes(batch))


def listen(leader: Leader, pause_s: float, meanwhile: Any) -> list[bytes]:  # noqa: ANN401 - any call
    """Read a stream from the start. The client pauses before the second event, while the partition changes."""

    async def run() -> list[bytes]:
        gateway = make_gateway(Brokers(leader.answer), make_metadata(TOPIC))
        manager: Any = SimpleNamespace(gateway=gateway, settings=SimpleNamespace(request_s_max=5.0))
        stream = Stream(manager, TOPIC, {0: 0})
        following = asyncio.create_task(stream.follow(0))
        events = [await anext(stream)]
        await asyncio.sleep(pause_s)
        meanwhile()
        async for event in stream:
            events.append(event)
            if b'"offset":9' in event:
                stream.end()
        following.cancel()
        return events

    return on_virtual_time(run())


def offsets(events: list[bytes]) -> list[int]:
    found = b"".join(events).decode().splitlines()
    return [
        json.loads(line.removeprefix("data: "))["offset"] for line in found if line.startswith('data: {"partition"')
    ]


def test_records_deleted_while_a_client_was_slow_are_not_sent() -> None:
    """After the response to a deletion, no manager sends a deleted record."""
    leader = Leader()

    def delete() -> None:
        leader.first = 6

    assert offsets(listen(leader, FRESH_S, delete)) == [0, 6, 7, 8, 9]


def test_fast_client_gets_all_records_without_a_second_request() -> None:
    leader = Leader()
    assert offsets(listen(leader, 0.0, lambda: None)) == list(range(10))


def test_stream_that_cannot_check_for_deletions_ends_and_can_be_resumed() -> None:
    leader = Leader()

    def disconnect() -> None:
        leader.is_unreachable = True

    events = listen(leader, FRESH_S, disconnect)
    assert offsets(events) == [0]
    assert events[-1].startswith(b"event: error")
    assert events[0].startswith(b"id: 0:1\n")
