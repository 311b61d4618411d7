"""Delete records of several partitions, with failures of leaders."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from fastapi import APIRouter, FastAPI

from flotilla.net import Response
from flotilla_manager.api.delete_records import add_delete_records
from flotilla_server.handlers import add_handlers
from unit.manager.dataplane import (
    LOST,
    Answer,
    Brokers,
    Request,
    make_gateway,
    make_metadata,
    make_topic,
    on_virtual_time,
    refusal,
)

TOPIC = make_topic(partitions=3)


class Leaders:
    """Leaders of partitions with ten records each."""

    def __init__(self) -> None:
        self.firsts = [0, 0, 0]
        self.database_refusal: dict[int, str] = {}  # partitions that refuse this method: GET or POST
        self.silent: set[int] = set()  # partitions that execute a request but do not respond

    async def answer(self, request: Request) -> Answer:
        query = {name: found[0] for name, found in parse_qs(urlsplit(request.target).query).items()}
        index = int(query["partition"])
        if self.database_refusal.get(index) == request.method:
            return refusal("no_leader")
        if request.method == "POST":
            self.firsts[index] = 10 if query["offset"] == "latest" else int(query["offset"])
            if index in self.silent:
                return LOST
        body = {"status": "ok", "first_offset": self.firsts[index], "next_offset": 10}
        headers = {b"flotilla-first-offset": b"%d" % self.firsts[index], b"flotilla-next-offset": b"10"}
        return Response(200, headers, json.dumps(body).encode())


def delete(leaders: Leaders, *points: tuple[int, int | str]) -> dict[str, Any]:
    """Send a request to a manager; return the response."""

    async def run() -> dict[str, Any]:
        gateway = make_gateway(Brokers(leaders.answer), make_metadata(TOPIC))
        manager: Any = SimpleNamespace(gateway=gateway, settings=SimpleNamespace(request_s_max=5.0))
        app, router = FastAPI(), APIRouter()
        add_handlers(app)
        add_delete_records(router, manager, lambda *_: asyncio.sleep(0, TOPIC))
        app.include_router(router)
        body = {"partitions": [{"partition": index, "offset": offset} for index, offset in points]}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://manager") as client:
            found: dict[str, Any] = (await client.post("/topics/t/delete-records", json=body)).json()
            return found

    return on_virtual_time(run())


def test_results_are_in_the_order_of_the_requested_partitions() -> None:
    assert delete(Leaders(), (2, 5), (0, "latest"))["partitions"] == [
        {"partition": 2, "first_offset": 5, "next_offset": 10},
        {"partition": 0, "first_offset": 10, "next_offset": 10},
    ]


def test_nothing_is_deleted_if_a_partition_is_unreachable() -> None:
    for offset in (5, "latest"):
        leaders = Leaders()
        leaders.database_refusal = {1: "GET"}
        refused = delete(leaders, (0, 5), (1, offset))
        assert (refused["code"], refused["details"]["partition"]) == ("no_leader", 1)
        assert leaders.firsts == [0, 0, 0]


def test_refusal_lists_the_partitions_that_were_deleted() -> None:
    """So the client knows which partitions were deleted and which were not."""
    leaders = Leaders()
    leaders.database_refusal = {1: "POST"}
    refused = delete(leaders, (0, 5), (1, 5), (2, "latest"))
    assert refused["details"] == {"partition": 1, "done": [0, 2]}
    assert leaders.firsts == [5, 0, 10]


def test_unknown_outcome_takes_precedence_over_a_refusal() -> None:
    leaders = Leaders()
    leaders.database_refusal, leaders.silent = {0: "POST"}, {1}
    refused = delete(leaders, (0, 5), (1, 5), (2, 5))
    assert (refused["code"], refused["details"]) == ("unknown_outcome", {"partition": 1, "done": [2]})
