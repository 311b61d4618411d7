"""The client of the control API: success, retry and rejection by status and error code."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from flotilla.net import Response
from flotilla_operator.control_client import ControlClient
from flotilla_operator.errors import Rejected, Unavailable
from support.fakemanager import FakePool, no, ok

Call = Callable[[ControlClient], Awaitable[None]]
ID = "a" * 32
DELETIONS: dict[str, tuple[str, Call]] = {
    "topic": ("topic", lambda control: control.delete_topic("t", ID, "me")),
    "owner": ("topic", lambda control: control.release_topic("t", "me")),
    "broker": ("broker", lambda control: control.remove_broker(ID)),
}
every_deletion = pytest.mark.parametrize(("resource", "call"), DELETIONS.values(), ids=list(DELETIONS))


def ask(call: Call, *answers: Response) -> None:
    control = ControlClient("http://writer:1", None)
    control._pool = FakePool(*answers)
    asyncio.run(asyncio.wait_for(_done(call(control)), 10))


async def _done(call: Awaitable[None]) -> None:
    await call


@every_deletion
def test_deletion_succeeds_if_the_resource_is_missing(resource: str, call: Call) -> None:
    ask(call, ok({"status": "ok"}))
    ask(call, no(404, "not_found", "any words", resource=resource))


@every_deletion
def test_deletion_accepts_not_found_of_managers_0_2(resource: str, call: Call) -> None:
    assert resource
    ask(call, no(404, "not_found", "Topic does not exist."))


@every_deletion
@pytest.mark.parametrize("other", ["path", "group", "replica", "mood", None, ["topic"]])
def test_deletion_fails_if_another_resource_is_missing(resource: str, call: Call, other: object) -> None:
    """A port without the control API must not look like a deleted topic."""
    assert resource != other
    with pytest.raises(Rejected, match=r"Topic does not exist\."):
        ask(call, no(404, "not_found", "Topic does not exist.", resource=other))


@every_deletion
@pytest.mark.parametrize("body", [b"", b"<h1>404</h1>", b"[]", b'{"code": ["not_found"]}', b'{"message": "gone"}'])
def test_deletion_fails_if_another_server_answers(resource: str, call: Call, body: bytes) -> None:
    assert resource
    with pytest.raises(Rejected):
        ask(call, Response(404, {}, body))


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (no(401, "unauthorized", "the token is invalid"), "rejected the operator's token (HTTP 401): operator and"),
        (no(403, "forbidden", "the scope admin is missing"), "(HTTP 403): operator and managers must use the same S"),
        (no(500, "internal", "why"), "GET /v1/control/state failed: HTTP 500: why"),
        (Response(502, {}, b"<h1>"), "GET /v1/control/state failed: HTTP 502: no message"),
    ],
)
def test_error_for_the_state_names_the_cause(response: Response, message: str) -> None:
    async def call(control: ControlClient) -> None:
        await control.get_state()

    with pytest.raises(Unavailable, match=re.escape(message)):
        ask(call, response)


def test_change_of_a_missing_broker_is_rejected() -> None:
    with pytest.raises(Rejected, match="no such broker"):
        ask(lambda control: control.put_broker(ID, {}), no(404, "not_found", "no such broker", resource="broker"))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "unavailable", Unavailable),
        (429, "busy", Unavailable),
        (409, "conflict", Rejected),
        (400, "bad_request", Rejected),
    ],
)
def test_status_decides_between_unavailable_and_rejected(status: int, code: str, kind: type[Exception]) -> None:
    for _, call in DELETIONS.values():
        with pytest.raises(kind, match="why"):
            ask(call, no(status, code, "why"))
