"""Offsets of many partitions: limits of concurrency and time."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flotilla.groups.offsets import OffsetBounds
from flotilla.groups.state import PartitionId
from flotilla.protocol.errors import Refusal
from flotilla_manager import partition_offsets
from flotilla_manager.partition_offsets import PartitionOffsets
from support.metadata import a_topic

TOPIC = a_topic(1, partitions=200)
PLACES = [PartitionId(TOPIC.id, index) for index in range(200)]
HEADERS = {b"flotilla-first-offset": b"3", b"flotilla-next-offset": b"9", b"flotilla-offset": b"5"}


class Leaders:
    """Leaders that respond, refuse, or do not respond."""

    def __init__(self) -> None:
        self.now = self.at_once = self.asked = 0
        self.refusing: set[int] = set()
        self.hanging: set[int] = set()

    async def fetch(self, _: object, index: int, query: str, *, timeout_s: float) -> Any:  # noqa: ANN401 - a response
        assert timeout_s
        assert query == "offset=latest&max_bytes=1"
        self.asked += 1
        self.now += 1
        self.at_once = max(self.at_once, self.now)
        try:
            await asyncio.sleep(100 if index in self.hanging else 0)
        finally:
            self.now -= 1
        if index in self.refusing:
            raise Refusal("unavailable", f"partition {index} has no leader")
        return SimpleNamespace(headers=HEADERS)


def test_all_partitions_are_requested_with_limited_concurrency() -> None:
    leaders = Leaders()
    found = asyncio.run(PartitionOffsets(leaders, 5.0).fetch_all({TOPIC.id: TOPIC}, PLACES))  # type: ignore[arg-type]
    assert set(found) == set(PLACES)
    assert set(found.values()) == {(OffsetBounds(3, 9), 5)}
    assert leaders.at_once == 64


def test_fetch_all_fails_if_one_leader_refuses() -> None:
    leaders = Leaders()
    leaders.refusing = {7}
    with pytest.raises(Refusal, match="partition 7"):
        asyncio.run(PartitionOffsets(leaders, 5.0).fetch_all({TOPIC.id: TOPIC}, PLACES))  # type: ignore[arg-type]
    assert leaders.now == 0


def test_fetch_available_omits_partitions_whose_leaders_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_offsets, "_ALL_S", 0.2)
    leaders = Leaders()
    leaders.refusing, leaders.hanging = {7}, {8}
    gone = PartitionId("f" * 32, 0)
    found = asyncio.run(PartitionOffsets(leaders, 5.0).fetch_available({TOPIC.id: TOPIC}, [*PLACES, gone]))  # type: ignore[arg-type]
    assert set(found) == set(PLACES) - {PLACES[7], PLACES[8]}
    assert leaders.now == 0
    assert asyncio.run(PartitionOffsets(leaders, 5.0).fetch_available({}, [])) == {}  # type: ignore[arg-type]
