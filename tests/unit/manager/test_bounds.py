"""Asking many leaders: so many at a time, and not for ever."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flotilla.groups.offsets import Bounds
from flotilla.groups.state import Place
from flotilla.serving.errors import Refusal
from flotilla_manager import bounds
from flotilla_manager.bounds import Asking
from support.metadata import a_topic

TOPIC = a_topic(1, partitions=200)
PLACES = [Place(TOPIC.id, index) for index in range(200)]
HEADERS = {b"flotilla-first-offset": b"3", b"flotilla-next-offset": b"9", b"flotilla-offset": b"5"}


class Leaders:
    """Leaders that answer, refuse, or say nothing."""

    def __init__(self) -> None:
        self.now = self.at_once = self.asked = 0
        self.refusing: set[int] = set()
        self.hanging: set[int] = set()

    async def fetch(self, _: object, index: int, query: str, *, seconds: float) -> Any:  # noqa: ANN401 - a response
        assert seconds
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


def test_all_partitions_are_asked_so_many_at_a_time() -> None:
    leaders = Leaders()
    found = asyncio.run(Asking(leaders, 5.0).all_of({TOPIC.id: TOPIC}, PLACES))  # type: ignore[arg-type]
    assert set(found) == set(PLACES)
    assert set(found.values()) == {(Bounds(3, 9), 5)}
    assert leaders.at_once == 64


def test_one_leader_that_refuses_is_the_end_of_it_if_all_are_needed() -> None:
    leaders = Leaders()
    leaders.refusing = {7}
    with pytest.raises(Refusal, match="partition 7"):
        asyncio.run(Asking(leaders, 5.0).all_of({TOPIC.id: TOPIC}, PLACES))  # type: ignore[arg-type]
    assert leaders.now == 0


def test_where_some_may_be_missing_those_that_refuse_or_say_nothing_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "_ALL_S", 0.2)
    leaders = Leaders()
    leaders.refusing, leaders.hanging = {7}, {8}
    gone = Place("f" * 32, 0)
    found = asyncio.run(Asking(leaders, 5.0).some_of({TOPIC.id: TOPIC}, [*PLACES, gone]))  # type: ignore[arg-type]
    assert set(found) == set(PLACES) - {PLACES[7], PLACES[8]}
    assert leaders.now == 0
    assert asyncio.run(Asking(leaders, 5.0).some_of({}, [])) == {}  # type: ignore[arg-type]
