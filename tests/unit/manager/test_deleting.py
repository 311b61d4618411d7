"""Deleting records of several partitions, some of whose leaders do not do as they should."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from fastapi import APIRouter, FastAPI

from flotilla.net import Response
from flotilla.serving.handlers import add_handlers
from flotilla_manager.api.deleting import add_deleting
from unit.manager.dataplane import (
    LOST,
    Answer,
    Brokers,
    Request,
    make_gateway,
    make_topic,
    make_view,
    on_virtual_time,
    refusal,
)

TOPIC = make_topic(partitions=3)


class Leaders:
    """Leaders of partitions with ten records each."""

    def __init__(self) -> None:
        self.firsts = [0, 0, 0]
        self.away: dict[int, str] = {}  # partitions that cannot be asked about this: GET or POST
        self.silent: set[int] = set()  # ... and those that do it and do not say so

    async def answer(self, request: Request) -> Answer:
        query = {name: found[0] for name, found in parse_qs(urlsplit(request.target).query).items()}
        index = int(query["partition"])
        if self.away.get(index) == request.method:
            return refusal("no_leader")
        if request.method == "POST":
            self.firsts[index] = 10 if query["offset"] == "latest" else int(query["offset"])
            if index in self.silent:
                return LOST
        body = {"status": "ok", "first_offset": self.firsts[index], "next_offset": 10}
        headers = {b"flotilla-first-offset": b"%d" % self.firsts[index], b"flotilla-next-offset": b"10"}
        return Response(200, headers, json.dumps(body).encode())


def delete(leaders: Leaders, *cuts: tuple[int, int | str]) -> dict[str, Any]:
    """Ask a manager; return its answer."""

    async def run() -> dict[str, Any]:
        gateway = make_gateway(Brokers(leaders.answer), make_view(TOPIC))
        manager: Any = SimpleNamespace(gateway=gateway, settings=SimpleNamespace(request_s_max=5.0))
        app, router = FastAPI(), APIRouter()
        add_handlers(app)
        add_deleting(router, manager, lambda *_: asyncio.sleep(0, TOPIC))
        app.include_router(router)
        body = {"partitions": [{"partition": index, "offset": offset} for index, offset in cuts]}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://manager") as client:
            found: dict[str, Any] = (await client.post("/topics/t/delete-records", json=body)).json()
            return found

    return on_virtual_time(run())


def test_partitions_are_answered_in_the_order_in_which_they_were_named() -> None:
    assert delete(Leaders(), (2, 5), (0, "latest"))["partitions"] == [
        {"partition": 2, "first_offset": 5, "next_offset": 10},
        {"partition": 0, "first_offset": 10, "next_offset": 10},
    ]


def test_nothing_is_deleted_if_a_partition_cannot_be_reached_whatever_goes_of_it() -> None:
    for offset in (5, "latest"):
        leaders = Leaders()
        leaders.away = {1: "GET"}
        refused = delete(leaders, (0, 5), (1, offset))
        assert (refused["code"], refused["details"]["partition"]) == ("no_leader", 1)
        assert leaders.firsts == [0, 0, 0]


def test_a_refusal_on_the_way_names_what_is_done() -> None:
    """Who gets it knows what is gone and what is left."""
    leaders = Leaders()
    leaders.away = {1: "POST"}
    refused = delete(leaders, (0, 5), (1, 5), (2, "latest"))
    assert refused["details"] == {"partition": 1, "done": [0, 2]}
    assert leaders.firsts == [5, 0, 10]


def test_a_deletion_in_doubt_is_told_rather_than_one_that_was_refused() -> None:
    leaders = Leaders()
    leaders.away, leaders.silent = {0: "POST"}, {1}
    refused = delete(leaders, (0, 5), (1, 5), (2, 5))
    assert (refused["code"], refused["details"]) == ("unknown_outcome", {"partition": 1, "done": [2]})
