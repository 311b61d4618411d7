"""How a command asks a manager: where it is, who asks, whom to trust, and what to say if it does not work out.

Who asks is told by a token, or by the secret that all servers share, from which the system's token is derived: so the
first token of all is made. Neither is ever an argument, because everybody on the machine can read those.
"""

import argparse
import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from flotilla.access import system_text
from flotilla.command.errors import InputInvalid, ServerRefused, ServerSilent
from flotilla.net import Disconnected, Pool, Response

DEFAULT_URL = "http://127.0.0.1:8080"
WHO = """\
Who asks is told by a token, in FLOTILLA_TOKEN or --token-file, or by the secret that all servers share, in
FLOTILLA_SECRET or --secret-file. Files win over variables, and a token over a secret.
"""
_ANSWER_S = 70.0
_OK, _UNAUTHORIZED = 200, 401
_SAY_WHO = (
    "the servers ask for a token: set FLOTILLA_TOKEN or --token-file; for the first token of all, "
    "FLOTILLA_SECRET or --secret-file"
)


@dataclass(frozen=True)
class Server:
    """A manager, and what is shown to it."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None

    @property
    def is_exposed(self) -> bool:
        """Whether others on the way could read the token."""
        parts = urlsplit(self.url)
        is_near = parts.hostname in {"localhost", "::1"} or (parts.hostname or "").startswith("127.")
        return self.token is not None and parts.scheme == "http" and not is_near


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every command has that asks a manager."""
    add = parser.add_argument_group("servers").add_argument
    add("--url", help=f"where a manager is (FLOTILLA_URL; {DEFAULT_URL})")
    add("--ca", type=Path, metavar="FILE", help="who signs its certificate (FLOTILLA_TLS_CA; whom this machine trusts)")
    add("--token-file", type=Path, metavar="FILE", help="a file with a token (or FLOTILLA_TOKEN)")
    add("--secret-file", type=Path, metavar="FILE", help="a file with the servers' secret (or FLOTILLA_SECRET)")


def from_arguments(found: argparse.Namespace, environment: Mapping[str, str]) -> Server:
    """Take what is asked, and who asks, from flags and environment; raises InputInvalid."""
    url = found.url or environment.get("FLOTILLA_URL") or DEFAULT_URL
    ca = found.ca or (Path(environment["FLOTILLA_TLS_CA"]) if environment.get("FLOTILLA_TLS_CA") else None)
    return Server(_check_url(url), _find_token(found, environment), ca)


def ask(server: Server, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
    """Ask, and return the answer; raises CommandError."""
    response = asyncio.run(_ask(server, method, target, b"" if body is None else msgspec.json.encode(body)))
    try:
        answer = response.json()
    except ValueError:
        raise ServerRefused(f"what answers at {server.url} is no manager: status {response.status}") from None
    if response.status == _OK:
        return answer
    raise ServerRefused(_explain(server, response, answer))


async def _ask(server: Server, method: str, target: str, body: bytes) -> Response:
    headers = [("content-type", "application/json")] if body else []
    if server.token is not None:
        headers.append(("authorization", f"Bearer {server.token}"))
    pool = Pool(tls=_trust(server))
    try:
        return await pool.request(server.url, method, target, body, headers, timeout_s=_ANSWER_S)
    except Disconnected as error:
        if error.sent and method != "GET":
            text = f"{server.url} did not answer: {error}. What was asked for may have been done or not"
            raise ServerSilent(text) from error
        text = f"no manager answers: {error}. Where one is can be said with --url or FLOTILLA_URL"
        raise ServerSilent(text) from error
    finally:
        pool.close()


def _trust(server: Server) -> ssl.SSLContext | None:
    if server.ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=server.ca)
    except (OSError, ssl.SSLError) as error:
        raise InputInvalid(f"the certificates in {server.ca} cannot be read: {error}") from error


def _explain(server: Server, response: Response, answer: object) -> str:
    if response.status == _UNAUTHORIZED:
        known = "the token is not valid there: it is another cluster's, was revoked, or has expired"
        return _SAY_WHO if server.token is None else f"{known} ({server.url})"
    message = answer.get("message") if isinstance(answer, dict) else None
    return str(message or f"{server.url} answers with status {response.status}")


def _check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username is not None:
        raise InputInvalid(f"the URL {text!r} is not a base URL; write it as in https://host:8080")
    return text.rstrip("/")


def _find_token(found: argparse.Namespace, environment: Mapping[str, str]) -> str | None:
    if found.token_file is not None:
        return _check_token(_read(found.token_file), str(found.token_file))
    if found.secret_file is not None:
        return _system_token(_read(found.secret_file), str(found.secret_file))
    if environment.get("FLOTILLA_TOKEN"):
        return _check_token(environment["FLOTILLA_TOKEN"].strip().encode(), "FLOTILLA_TOKEN")
    if environment.get("FLOTILLA_SECRET"):
        return _system_token(environment["FLOTILLA_SECRET"].encode(), "FLOTILLA_SECRET")
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise InputInvalid(f"{path} cannot be read: {error.strerror}") from error


def _check_token(text: bytes, where: str) -> str:
    """Read a token; what is wrong with one is told without showing it."""
    if not text.isascii() or not text.startswith(b"flt_") or len(text.split()) != 1:
        raise InputInvalid(f"what is in {where} is no token: one begins with flt_ and has no spaces")
    return text.decode()


def _system_token(secret: bytes, where: str) -> str:
    if not secret:
        raise InputInvalid(f"the secret in {where} is empty")
    return system_text(secret)
