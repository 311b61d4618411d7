"""Every path of a broker has a rule: that what has none is closed must never be needed."""

import asyncio
from pathlib import Path

from fastapi import FastAPI

from flotilla.serving.gate import Need
from flotilla_broker.api.app import make_app
from flotilla_broker.api.rules import RULES
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings
from support.access import SECRET, idle_rules, missing_rules


def test_every_path_has_a_rule_and_every_rule_a_path(tmp_path: Path) -> None:
    async def look() -> tuple[list[str], list[object]]:
        broker = Broker.open(Settings(data=tmp_path), on_failure=lambda _: None)
        try:
            front = make_app(broker)
            app = front.rest
            assert isinstance(app, FastAPI)
            return missing_rules(front.fast, app, RULES), list(idle_rules(front.fast, app, RULES))
        finally:
            await broker.close()

    assert asyncio.run(look()) == ([], [])


def test_callers_are_checked_when_settings_say_so(tmp_path: Path) -> None:
    async def look(auth: str) -> bool:
        broker = Broker.open(Settings(data=tmp_path / auth, auth=auth, secret=SECRET.encode()), lambda _: None)
        try:
            return make_app(broker).gate.access is not None
        finally:
            await broker.close()

    assert [asyncio.run(look(auth)) for auth in ("on", "off", "auto")] == [True, False, False]


def test_nothing_but_health_and_docs_is_open() -> None:
    """To open something is a decision; this test is where it is made a second time."""
    assert {rule.path for rule in RULES if rule.need is Need.OPEN} == {
        "/healthz", "/readyz", "/metrics", "/openapi.json", "/favicon.ico", "/docs", "/docs/{version}/{file}",
    }  # fmt: skip
    writes = {(method, rule.path) for rule in RULES for method in rule.methods if method != "GET"}
    known = {rule.path: rule.need for rule in RULES if rule.methods != ("GET",)}
    assert {path for _, path in writes if known[path] is not Need.SYSTEM} == {"/v1/append", "/v1/delete-records"}
