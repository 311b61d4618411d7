"""How commands ask servers with the library's client: who is asked is found out at once, and errors are explained."""

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
from flotilla.command.asking import Server, explained
from flotilla.command.errors import CommandError, InputInvalid, ServerRefused, ServerSilent
from support.cluster import free_port
from support.fakemanager import FakeManager, serving

TOKEN = "flt_x"  # noqa: S105 - an example
HERE = Server("http://here:1")


@pytest.mark.parametrize(
    ("raised", "kind", "code", "text"),
    [
        (ConfigInvalid("url: no"), InputInvalid, 2, "url: no"),
        (ServerUnreachable("nobody"), ServerSilent, 1, "nobody"),
        (OutcomeUnknown("who knows"), ServerSilent, 1, "who knows"),
        (TopicMissing("there is no topic 'x'", "not_found", {}), ServerRefused, 1, "there is no topic 'x'"),
        (NotAllowed("no", "unauthorized", {}), ServerRefused, 1, "the servers ask for a token: set FLOTILLA_TOKEN"),
        (DeliveryFailed("too late"), CommandError, 1, "too late"),
        (ClientClosed("it is closed"), CommandError, 1, "it is closed"),
    ],
)
def test_what_the_library_raises_is_explained(
    raised: FlotillaError, kind: type[CommandError], code: int, text: str
) -> None:
    with pytest.raises(CommandError) as caught, explained(HERE):
        raise raised
    assert (type(caught.value), caught.value.exit_code) == (kind, code)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (Server("http://here:1", TOKEN), "the token is not valid there: .* \\(http://here:1\\)$"),
        (Server("http://here:1", context="prod"), "or have context 'prod' name a token file$"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_do(server: Server, text: str) -> None:
    with pytest.raises(ServerRefused, match=text), explained(server):
        raise NotAllowed("no", "unauthorized", {})


def test_other_errors_are_bugs_and_pass() -> None:
    with pytest.raises(ZeroDivisionError), explained(HERE):
        raise ZeroDivisionError


def test_a_server_that_is_away_is_told_of_at_once() -> None:
    """A client would be patient for half a minute; somebody at a terminal is not."""
    server = Server(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    with pytest.raises(ServerSilent, match=r"cannot reach .*: Connection refused\. Is it running\?"):
        server.open()
    assert time.monotonic() - began < 10.0


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with serving() as server:
        yield server


def test_a_client_asks_with_the_token_of_the_command(manager: FakeManager) -> None:
    manager.answers = {"GET /v1/topics": {"topics": []}}
    with Server(manager.url, TOKEN).open() as client:
        assert client.topics.list() == ()
    assert {authorization for _, _, authorization, _ in manager.asked} == {f"Bearer {TOKEN}"}


def test_about_a_token_that_was_just_made_a_client_is_patient(manager: FakeManager) -> None:
    """Managers hear of a new token within a second or two: until then they refuse it."""
    manager.status, manager.answer = 401, json.dumps({"code": "unauthorized", "message": "no"}).encode()
    with Server(manager.url, TOKEN).open() as client:
        manager.status, manager.answers = 200, {"GET /v1/topics": {"topics": []}}
        assert client.topics.list() == ()
