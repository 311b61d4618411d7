"""`flotilla tokens`: requests, credentials and output."""

import json
import os
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flotilla.access import system_token
from flotilla.client.admin import TokenInfo
from flotilla.command import main
from flotilla.command.connection import ConnectionTarget, resolve_server
from flotilla.command.errors import InputInvalid
from flotilla.command.flags import ConnectionFlags
from flotilla.command.tokens import format_tokens
from support import certificates
from support.cluster import free_port
from support.fakemanager import FakeManager, serving

SECRET = "0123456789abcdef"  # noqa: S105 - an example
TEXT = "flt_00112233445566ff_x"
TOKEN: dict[str, Any] = {
    "id": "00112233445566ff",
    "name": "billing",
    "grants": ["produce:orders.*", "admin:*"],
    "bytes_per_s": 10 << 20,
    "requests_per_s": 5,
    "in_flight_bytes": None,
    "created_ms": 0,
    "expires_ms": 86_400_000,
}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeManager]:
    for name in ("FLOTILLA_TOKEN", "FLOTILLA_SECRET", "FLOTILLA_TLS_CA"):
        monkeypatch.delenv(name, raising=False)
    with serving() as server:
        monkeypatch.setenv("FLOTILLA_URL", server.url)
        yield server


def test_create_prints_only_the_token_to_standard_output(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`TOKEN=$(flotilla tokens create ...)` works."""
    monkeypatch.setenv("FLOTILLA_SECRET", SECRET)
    manager.answer = json.dumps({"token": TEXT, **TOKEN}).encode()
    limits = ["--bytes-per-s", "10MiB", "--requests-per-s", "5", "--in-flight-bytes", "1KiB"]
    arguments = ["billing", "--grant", "produce:orders.*", "--grant", "admin", "--expires", "1d", *limits]
    assert main(["tokens", "create", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{TEXT}\n"
    created = "created token 00112233445566ff 'billing': grants produce:orders.* admin:*; expires 1970-01-02"
    assert created in captured.err
    body = {
        "name": "billing",
        "grants": ["produce:orders.*", "admin:*"],
        "expires_in_s": 86_400,
        "bytes_per_s": 10 << 20,
        "requests_per_s": 5,
        "in_flight_bytes": 1024,
    }
    assert manager.asked == [("POST", "/v1/tokens", f"Bearer {system_token(SECRET.encode())}", body)]


def test_tokens_are_listed_as_table_or_json(manager: FakeManager, capsys: pytest.CaptureFixture[str]) -> None:
    manager.answer = json.dumps({"tokens": [TOKEN]}).encode()
    assert main(["tokens", "list"]) == 0
    assert "00112233445566ff  billing  produce:orders.* admin:*  10MiB/s, 5 requests/s" in capsys.readouterr().out
    assert main(["tokens", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tokens": [TOKEN]}
    manager.answer = b'{"tokens": []}'
    assert main(["tokens", "list"]) == 0
    assert "no tokens found" in capsys.readouterr().err
    assert manager.asked[0] == ("GET", "/v1/tokens", None, None)


def test_revoke_sends_the_token_id(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOTILLA_TOKEN", f"{TEXT}\n")
    assert main(["tokens", "revoke", TOKEN["id"]]) == 0
    assert "revoked" in capsys.readouterr().out
    assert manager.asked == [("DELETE", "/v1/tokens/00112233445566ff", f"Bearer {TEXT}", None)]


def test_token_table_marks_expired_tokens() -> None:
    never = {**TOKEN, "expires_ms": None, "bytes_per_s": None, "requests_per_s": None, "in_flight_bytes": 1 << 20}
    tokens = msgspec.convert([TOKEN, never], tuple[TokenInfo, ...])
    heading, over, good = format_tokens(tokens, now_ms=86_400_000)
    assert heading.split() == ["id", "name", "grants", "limits", "created", "expires"]
    assert over.endswith("1970-01-02 00:00 (expired)")
    assert good.endswith("never")
    assert "1MiB in flight" in good


@pytest.mark.parametrize(
    ("status", "answer", "token", "text"),
    [
        (
            401,
            b'{"code": "unauthorized", "message": "x"}',
            None,
            "authentication required: set FLOTILLA_TOKEN or --token-file",
        ),
        (401, b'{"code": "unauthorized", "message": "x"}', TEXT, "token rejected by http://"),
        (403, b'{"message": "the scope admin on all topics is missing"}', TEXT, "the scope admin on all topics"),
        (503, b'{"message": "The writer does not answer; try again."}', TEXT, "The writer does not answer"),
        (404, b"<html>", None, "is not a manager: status 404"),
        (200, b"<html>", None, "is not a manager: status 200"),
        (500, b"[]", None, "responded with status 500"),
    ],
)
def test_rejection_is_explained_without_showing_the_token(
    manager: FakeManager,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    answer: bytes,
    token: str | None,
    text: str,
) -> None:
    if token is not None:
        monkeypatch.setenv("FLOTILLA_TOKEN", token)
    manager.status, manager.answer = status, answer
    assert main(["tokens", "list"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("flotilla tokens: ")
    assert text in captured.err
    assert TEXT not in captured.err


def test_unreachable_error_explains_how_to_set_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "list", "--url", f"http://127.0.0.1:{free_port()}"]) == 1
    captured = capsys.readouterr().err
    assert re.search(
        r"cannot reach http://127\.0\.0\.1:\d+: .*\. Is it running\? Start a local cluster with `flotilla up`", captured
    )
    assert "--url, --context or FLOTILLA_URL" in captured


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["create", "x"], "--grant"),
        (["create", "--grant", "admin"], "NAME"),
        (["create", "x", "--grant", "fly"], "produce, consume or admin"),
        (["create", "x", "--grant", "produce:a b"], "a pattern of topic names"),
        (["create", "x", "--grant", "admin", "--expires", "soon"], "30d"),
        (["create", "x", "--grant", "admin", "--bytes-per-s", "lots"], "64MiB"),
        (["create", "x", "--grant", "admin", "--requests-per-s", "0"], "at least 1"),
        (["revoke", "x"], "16 hexadecimal digits"),
        (["forge"], "No such command 'forge'"),
        (["revok", "x"], "Did you mean 'revoke'?"),
        (["list", "--jason"], "Did you mean '--json'?"),
    ],
)
def test_invalid_token_arguments_exit_with_2_and_the_rule(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(["tokens", *arguments]) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.startswith("Usage: flotilla tokens")
    assert "--help' for help." in captured.err
    assert captured.out == ""


def test_token_passed_as_id_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "revoke", TEXT]) == 2
    assert TEXT not in capsys.readouterr().err


# -- credentials ------------------------------------------------------------------------------------------------------


def resolve(environment: dict[str, str], **flags: Any) -> ConnectionTarget:  # noqa: ANN401 - as ConnectionFlags has them
    return resolve_server(ConnectionFlags(**flags), {"FLOTILLA_CONFIG": os.devnull, **environment})


def test_files_override_variables_and_tokens_override_secrets(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TEXT}\n")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    token, secret = {"token_file": tmp_path / "token"}, {"secret_file": tmp_path / "secret"}
    both = {"FLOTILLA_TOKEN": "flt_variable", "FLOTILLA_SECRET": "another secret!!"}
    system = system_token(SECRET.encode())
    assert resolve(both, **token, **secret).token == TEXT
    assert resolve(both, **secret).token == system
    assert resolve(both).token == both["FLOTILLA_TOKEN"]
    assert resolve({"FLOTILLA_SECRET": SECRET}).token == system
    assert resolve({"FLOTILLA_TOKEN": "", "FLOTILLA_SECRET": ""}).token is None


def test_url_comes_from_option_or_variable() -> None:
    assert resolve({}).url == "http://127.0.0.1:8080"
    assert resolve({"FLOTILLA_URL": "https://a:1/"}).url == "https://a:1"
    assert resolve({"FLOTILLA_URL": "https://a:1/"}, url="http://b").url == "http://b"
    assert resolve({"FLOTILLA_TLS_CA": "ca.pem"}).ca == Path("ca.pem")
    assert resolve({"FLOTILLA_URL": "http://a:1/, https://b"}).urls == ("http://a:1", "https://b")


def test_one_reachable_manager_is_enough(manager: FakeManager, capsys: pytest.CaptureFixture[str]) -> None:
    manager.answer = json.dumps({"tokens": [TOKEN]}).encode()
    away = f"http://127.0.0.1:{free_port()}"
    assert main(["tokens", "list", "--url", f"{away},{manager.url}"]) == 0
    assert "billing" in capsys.readouterr().out
    assert main(["tokens", "list", "--url", f"{away},http://127.0.0.1:{free_port()}"]) == 1
    assert f"cannot reach {away} or http://127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://a", "a:1", "http://", "http://a:0", "http://a:b", "http://a/b", "http://u:p@a"])
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(InputInvalid, match="is not a base URL"):
        resolve({}, url=url)


@pytest.mark.parametrize("text", ["hush hush", "flt_a b", "flt_ä", "hush\r\nx-evil: 1"])
def test_invalid_token_is_rejected_without_showing_it(text: str) -> None:
    with pytest.raises(InputInvalid, match="FLOTILLA_TOKEN does not contain a token") as caught:
        resolve({"FLOTILLA_TOKEN": text})
    assert text not in str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="missing cannot be read: No such file"):
        resolve({}, token_file=tmp_path / "missing")
    (tmp_path / "empty").write_bytes(b"\n")
    with pytest.raises(InputInvalid, match="is empty"):
        resolve({}, secret_file=tmp_path / "empty")


def test_unreadable_ca_bundle_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOTILLA_TOKEN", TEXT)
    (tmp_path / "ca").write_text("no certificate")
    for name in ("ca", "missing"):
        assert main(["tokens", "list", "--url", "https://127.0.0.1:1", "--ca", str(tmp_path / name)]) == 2
        assert f"cannot read certificates from {tmp_path / name}" in capsys.readouterr().err


def test_token_is_sent_only_to_trusted_servers(
    manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token is sent to no other server."""
    files = certificates.write(tmp_path / "own", certificates.make_authority())
    others = certificates.write(tmp_path / "others", certificates.make_authority())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    manager.socket = context.wrap_socket(manager.socket, server_side=True, do_handshake_on_connect=False)
    manager.answer = b'{"tokens": []}'
    monkeypatch.setenv("FLOTILLA_TOKEN", TEXT)
    url = manager.url.replace("http:", "https:")
    assert main(["tokens", "list", "--url", url, "--ca", str(files.ca), "--json"]) == 0
    assert manager.asked == [("GET", "/v1/tokens", f"Bearer {TEXT}", None)]
    for arguments in (["--ca", str(others.ca)], []):
        assert main(["tokens", "list", "--url", url, *arguments]) == 1
        said = capsys.readouterr().err
        assert re.search(
            r"certificate of https://\S+ is not trusted: .*certificate.*\. Set the CA bundle with --ca,", said
        ), said
    assert len(manager.asked) == 1


def test_token_exposure_is_detected(capsys: pytest.CaptureFixture[str]) -> None:
    assert ConnectionTarget("http://queue.example:80", TEXT).is_token_exposed
    assert ConnectionTarget("https://queue.example,http://queue.example", TEXT).is_token_exposed
    for safe in ("https://queue.example", "http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:1"):
        assert not ConnectionTarget(safe, TEXT).is_token_exposed
    assert not ConnectionTarget("http://queue.example").is_token_exposed
    assert TEXT not in repr(ConnectionTarget("http://queue.example:80", TEXT))
    assert capsys.readouterr().err == ""
