"""Every path of a broker has an access rule; the default, to reject, must never be needed."""

import asyncio
from pathlib import Path

from fastapi import FastAPI

from flotilla_broker.api.app import RULES, make_app
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings
from flotilla_server.authorization import Need
from support.access import SECRET, idle_rules, missing_rules


def test_every_path_has_a_rule_and_every_rule_a_path(tmp_path: Path) -> None:
    async def check() -> tuple[list[str], list[object]]:
        broker = Broker.open(Settings(data=tmp_path), on_failure=lambda _: None)
        try:
            front = make_app(broker)
            app = front.rest
            assert isinstance(app, FastAPI)
            return missing_rules(front.fast, app, RULES), list(idle_rules(front.fast, app, RULES))
        finally:
            await broker.close()

    assert asyncio.run(check()) == ([], [])


def test_authentication_follows_the_settings(tmp_path: Path) -> None:
    async def check(auth: str) -> bool:
        broker = Broker.open(Settings(data=tmp_path / auth, auth=auth, secret=SECRET.encode()), lambda _: None)
        try:
            return make_app(broker).authorizer.access is not None
        finally:
            await broker.close()

    assert [asyncio.run(check(auth)) for auth in ("on", "off", "auto")] == [True, False, False]


def test_only_health_and_docs_need_no_token() -> None:
    """A new open path must be added here, too."""
    assert {rule.path for rule in RULES if rule.need is Need.OPEN} == {
        "/healthz", "/readyz", "/metrics", "/openapi.json", "/favicon.ico", "/docs", "/docs/{version}/{file}",
    }  # fmt: skip
    writes = {(method, rule.path) for rule in RULES for method in rule.methods if method != "GET"}
    known = {rule.path: rule.need for rule in RULES if rule.methods != ("GET",)}
    assert {path for _, path in writes if known[path] is not Need.SYSTEM} == {"/v1/append", "/v1/delete-records"}
