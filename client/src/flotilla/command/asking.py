"""How a command asks a manager: where it is, who asks, whom to trust, and what to say if it does not work out.

Who asks is told by a token, or by the secret that all servers share, from which the system's token is derived: so the
first token of all is made. Neither is ever an argument, because everybody on the machine can read those.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import urlsplit

from flotilla.access import system_text
from flotilla.client.admin import AsyncBrokers, AsyncGroups, AsyncTokens, AsyncTopics
from flotilla.client.cluster import Cluster, Managers
from flotilla.client.config import DEFAULT_URL, ClientConfig
from flotilla.client.errors import ConfigInvalid, OutcomeUnknown, Refused, ServerUnreachable
from flotilla.command.errors import InputInvalid, ServerRefused, ServerSilent
from flotilla.net import Disconnected, Pool
from flotilla.net.urls import parse_url

T = TypeVar("T")

WHO = """\
Who asks is told by a token, in FLOTILLA_TOKEN or --token-file, or by the secret that all servers share, in
FLOTILLA_SECRET or --secret-file. Files win over variables, and a token over a secret.
"""
_ANSWER_S = 70.0
_WHERE = "Where one is can be said with --url or FLOTILLA_URL"
_SAY_WHO = (
    "the servers ask for a token: set FLOTILLA_TOKEN or --token-file; for the first token of all, "
    "FLOTILLA_SECRET or --secret-file"
)


@dataclass(frozen=True)
class Server:
    """A manager, and what is shown to it; or several, with commas between their URLs, of which one is enough."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None

    @property
    def is_exposed(self) -> bool:
        """Whether others on the way could read the token."""
        return self.token is not None and any(map(_is_readable, self.urls))

    @property
    def urls(self) -> tuple[str, ...]:
        """All managers, if several are named."""
        return tuple(self.url.split(","))


@dataclass(frozen=True)
class Admin:
    """What a command can ask for."""

    topics: AsyncTopics
    brokers: AsyncBrokers
    groups: AsyncGroups
    tokens: AsyncTokens

    @classmethod
    def of(cls, managers: Managers) -> Self:
        """Ask these managers."""
        topics = AsyncTopics(managers, Cluster(managers))
        return cls(topics, AsyncBrokers(managers), AsyncGroups(managers), AsyncTokens(managers))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every command has that asks a manager."""
    add = parser.add_argument_group("servers").add_argument
    add("--url", help=f"where a manager is, or several with commas (FLOTILLA_URL; {DEFAULT_URL})")
    add("--ca", type=Path, metavar="FILE", help="who signs its certificate (FLOTILLA_TLS_CA; whom this machine trusts)")
    add("--token-file", type=Path, metavar="FILE", help="a file with a token (or FLOTILLA_TOKEN)")
    add("--secret-file", type=Path, metavar="FILE", help="a file with the servers' secret (or FLOTILLA_SECRET)")


def from_arguments(found: argparse.Namespace, environment: Mapping[str, str]) -> Server:
    """Take what is asked, and who asks, from flags and environment; raises InputInvalid."""
    url = found.url or environment.get("FLOTILLA_URL") or DEFAULT_URL
    ca = found.ca or (Path(environment["FLOTILLA_TLS_CA"]) if environment.get("FLOTILLA_TLS_CA") else None)
    return Server(_check_url(url), _find_token(found, environment), ca)


def run(server: Server, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Do something with a manager, and return what comes of it; raises CommandError."""
    try:
        return asyncio.run(_run(server, work))
    except ConfigInvalid as error:
        raise InputInvalid(str(error)) from error
    except ServerUnreachable as error:
        hint = isinstance(error.__cause__, Disconnected) and not isinstance(error, OutcomeUnknown)
        raise ServerSilent(f"{error}. {_WHERE}" if hint else str(error)) from error
    except Refused as error:
        raise ServerRefused(_explain(server, error)) from error


async def _run(server: Server, work: Callable[[Admin], Awaitable[T]]) -> T:
    config = ClientConfig(urls=server.urls, token=server.token, ca=server.ca, request_s=_ANSWER_S)
    pool = Pool(tls=config.make_tls())
    try:
        # People do not wait for what does not work; servers have waited for each other already when they say no.
        managers = Managers(config, pool, asyncio.get_running_loop().time, again_s=0.0)
        return await work(Admin.of(managers))
    finally:
        pool.close()


def _explain(server: Server, error: Refused) -> str:
    if error.code == "unauthorized":
        known = "the token is not valid there: it is another cluster's, was revoked, or has expired"
        return _SAY_WHO if server.token is None else f"{known} ({server.url})"
    return str(error)


def _check_url(text: str) -> str:
    try:
        return ",".join(parse_url(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise InputInvalid(f"the URL {error}") from error


def _is_readable(url: str) -> bool:
    """Tell whether others could read what is sent there."""
    parts = urlsplit(url)
    is_near = parts.hostname in {"localhost", "::1"} or (parts.hostname or "").startswith("127.")
    return parts.scheme == "http" and not is_near


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
