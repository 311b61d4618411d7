"""Connection of commands: fail fast, and translate errors of the client."""

import json
import time
from collections.abc import Iterator

import pytest

from flotilla.client.errors import (
    ClientClosed,
    ConfigInvalid,
    DeliveryFailed,
    FlotillaError,
    NotAllowed,
    OutcomeUnknown,
    ServerUnreachable,
    TopicMissing,
)
from flotilla.command.connection import ConnectionTarget, translate_errors
from flotilla.command.errors import CommandError, InputInvalid, RequestRejected, ServerUnavailable
from support.cluster import free_port
from support.fakemanager import FakeManager, serving

TOKEN = "flt_x"  # noqa: S105 - an example
HERE = ConnectionTarget("http://here:1")


@pytest.mark.parametrize(
    ("raised", "kind", "code", "text"),
    [
        (ConfigInvalid("url: no"), InputInvalid, 2, "url: no"),
        (ServerUnreachable("nobody"), ServerUnavailable, 1, "nobody"),
        (OutcomeUnknown("who knows"), ServerUnavailable, 1, "who knows"),
        (TopicMissing("topic 'x' does not exist", "not_found", {}), RequestRejected, 1, "topic 'x' does not exist"),
        (NotAllowed("no", "unauthorized", {}), RequestRejected, 1, "authentication required: set FLOTILLA_TOKEN"),
        (DeliveryFailed("too late"), CommandError, 1, "too late"),
        (ClientClosed("it is closed"), CommandError, 1, "it is closed"),
    ],
)
def test_client_errors_become_command_errors(
    raised: FlotillaError, kind: type[CommandError], code: int, text: str
) -> None:
    with pytest.raises(CommandError) as caught, translate_errors(HERE):
        raise raised
    assert (type(caught.value), caught.value.exit_code) == (kind, code)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (ConnectionTarget("http://here:1", TOKEN), "token rejected by http://here:1: "),
        (ConnectionTarget("http://here:1", context="prod"), "or set a token file for context 'prod'"),
    ],
)
def test_unauthorized_error_explains_what_to_do(server: ConnectionTarget, text: str) -> None:
    with pytest.raises(RequestRejected, match=text), translate_errors(server):
        raise NotAllowed("no", "unauthorized", {})


def test_other_exceptions_are_not_translated() -> None:
    with pytest.raises(ZeroDivisionError), translate_errors(HERE):
        raise ZeroDivisionError


def test_unreachable_server_fails_fast() -> None:
    """A client would retry for 30 s; a command must not."""
    server = ConnectionTarget(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(ServerUnavailable, match=r"cannot reach .*: Connection refused\. Is it running\?"):
        server.open()
    assert time.monotonic() - began < 10.0


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with serving() as server:
        yield server


def test_client_uses_the_token_of_the_command(manager: FakeManager) -> None:
    manager.answers = {"GET /v1/topics": {"topics": []}}
    with ConnectionTarget(manager.url, TOKEN).open() as client:
        assert client.topics.list() == ()
    assert {authorization for _, _, authorization, _ in manager.asked} == {f"Bearer {TOKEN}"}


def test_client_retries_with_a_token_that_is_not_known_yet(manager: FakeManager) -> None:
    """Managers learn of a new token within about 2 s, and reject it until then."""
    manager.status, manager.answer = 401, json.dumps({"code": "unauthorized", "message": "no"}).encode()
    with ConnectionTarget(manager.url, TOKEN).open() as client:
        manager.status, manager.answers = 200, {"GET /v1/topics": {"topics": []}}
        assert client.topics.list() == ()
