"""Connection of commands to a manager: URL, credentials, CA bundle, and translation of errors.

Credentials are a token, or the secret that all servers share, from which the system token is derived; the first token
is created with it. Neither can be an argument, because all users of the machine can read arguments.

Options take precedence over variables, and variables over the current context. With `--context`, variables are ignored.
If an option or a variable sets the URL, the current context is ignored: a token is sent only to the system that it
belongs to.
"""

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

from flotilla.access import system_token
from flotilla.client.admin import AsyncBrokers, AsyncGroups, AsyncTokens, AsyncTopics
from flotilla.client.cluster import Cluster, ManagerClient, TopicInfo
from flotilla.client.config import DEFAULT_URL, ClientConfig, Route
from flotilla.client.errors import (
    ConfigInvalid,
    FlotillaError,
    OutcomeUnknown,
    Refused,
    ServerUnreachable,
    TopicMissing,
)
from flotilla.command import config
from flotilla.command.config import Context
from flotilla.command.errors import CommandError, InputInvalid, RequestRejected, ServerUnavailable
from flotilla.command.flags import ConnectionFlags
from flotilla.limits import TOPIC_NAME, TOPIC_NAME_HELP
from flotilla.net import Disconnected, Pool

if TYPE_CHECKING:
    from flotilla.client.blocking import Client

T = TypeVar("T")

_TIMEOUT_S = 70.0
_PROBE, _PROBE_TIMEOUT_S = "/v1/metadata?topic=-", 10.0  # metadata of no topic: the cheapest authenticated request
_AUTHENTICATION_REQUIRED = (
    "authentication required: set FLOTILLA_TOKEN or --token-file (to create the first token: FLOTILLA_SECRET or "
    "--secret-file)"
)


@dataclass(frozen=True)
class ConnectionTarget:
    """One or more managers (URLs separated by commas) and the credentials for them."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    context: str | None = None  # name of the context that it was read from

    @property
    def is_token_exposed(self) -> bool:
        """Whether the token is sent without encryption."""
        return self.token is not None and any(map(_is_unencrypted, self.urls))

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of all managers."""
        return tuple(self.url.split(","))

    def probe(self) -> None:
        """Check that a manager answers and accepts the token; raises CommandError."""
        run(self, lambda admin: admin.managers.call("GET", _PROBE), timeout_s=_PROBE_TIMEOUT_S)

    def open(self, *, route: str = Route.AUTO, request_s: float = 30.0) -> "Client":
        """Create a client, for commands that produce and consume; raises CommandError.

        A client retries while servers are unavailable, so the connection is checked first, to fail fast. The command
        reports records that are not stored, so the log of the client is silenced.
        """
        from flotilla.client.blocking import Client  # noqa: PLC0415 - only commands with records need it

        logging.getLogger("flotilla.client.sender").setLevel(logging.ERROR)
        with suppress(RequestRejected):  # the server answers; the client retries with a token that is not known yet
            self.probe()
        with translate_errors(self):
            return Client(self.url, token=self.token, ca=self.ca, route=route, request_s=request_s, environment={})


@dataclass(frozen=True)
class Admin:
    """The admin APIs of the client."""

    topics: AsyncTopics
    brokers: AsyncBrokers
    groups: AsyncGroups
    tokens: AsyncTokens
    managers: ManagerClient

    @classmethod
    def of(cls, managers: ManagerClient) -> Self:
        """Create the APIs for these managers."""
        topics = AsyncTopics(managers, Cluster(managers))
        return cls(topics, AsyncBrokers(managers), AsyncGroups(managers), AsyncTokens(managers), managers)


# -- resolving options -----------------------------------------------------------------------------------------------


def resolve_server(flags: ConnectionFlags, environment: Mapping[str, str]) -> ConnectionTarget:
    """Resolve URL, CA bundle and token from options, environment and contexts; raises InputInvalid."""
    _check_flags(flags)
    name, context = _resolve_context(flags, environment)
    if flags.context is not None:
        environment = {}
    url = flags.url or environment.get("FLOTILLA_URL") or (context.url if context else DEFAULT_URL)
    ca = flags.ca or (Path(environment["FLOTILLA_TLS_CA"]) if environment.get("FLOTILLA_TLS_CA") else None)
    if ca is None and context is not None:
        ca = context.ca
    token = _resolve_token(flags, environment)
    if token is None and context is not None and context.token_file is not None:
        token = _check_token(_read(context.token_file), str(context.token_file))
    return ConnectionTarget(_check_url(url), token, ca, name)


def _check_flags(flags: ConnectionFlags) -> None:
    """Reject empty values: `--context "$SYSTEM"` with an unset variable must not mean the default."""
    for name, value in (("--context", flags.context), ("--url", flags.url)):
        if value == "":
            raise InputInvalid(f"{name} must not be empty: set a value, or omit the option")


def _resolve_context(flags: ConnectionFlags, environment: Mapping[str, str]) -> tuple[str | None, Context | None]:
    if flags.context is None and (flags.url or environment.get("FLOTILLA_URL")):
        return None, None
    known = config.load(config.find_path(environment))
    name = flags.context or environment.get("FLOTILLA_CONTEXT") or known.current
    if name is None:
        return None, None
    return name, known.find(name, None if flags.context else "FLOTILLA_CONTEXT")


def _check_url(text: str) -> str:
    try:
        return config.check_url(text)
    except ValueError as error:
        raise InputInvalid(f"invalid URL: {error}") from error


def _is_unencrypted(url: str) -> bool:
    """Return whether requests to this URL are sent without encryption over a network."""
    parts = urlsplit(url)
    is_loopback = parts.hostname in {"localhost", "::1"} or (parts.hostname or "").startswith("127.")
    return parts.scheme == "http" and not is_loopback


def _resolve_token(flags: ConnectionFlags, environment: Mapping[str, str]) -> str | None:
    if flags.token_file is not None:
        return _check_token(_read(flags.token_file), str(flags.token_file))
    if flags.secret_file is not None:
        return _system_token(_read(flags.secret_file), str(flags.secret_file))
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
    """Validate a token; errors do not show it."""
    if not text.isascii() or not text.startswith(b"flt_") or len(text.split()) != 1:
        raise InputInvalid(f"{where} does not contain a token: a token starts with flt_ and has no spaces")
    return text.decode()


def _system_token(secret: bytes, where: str) -> str:
    if not secret:
        raise InputInvalid(f"secret in {where} is empty")
    return system_token(secret)


# -- requests ----------------------------------------------------------------------------------------------------


def run(server: ConnectionTarget, work: Callable[[Admin], Awaitable[T]], *, timeout_s: float = _TIMEOUT_S) -> T:
    """Run `work` with the admin APIs, and return its result; raises CommandError."""
    with translate_errors(server):
        return asyncio.run(_run(server, work, timeout_s))


async def _run(server: ConnectionTarget, work: Callable[[Admin], Awaitable[T]], timeout_s: float) -> T:
    settings = ClientConfig(urls=server.urls, token=server.token, ca=server.ca, request_s=timeout_s)
    pool = Pool(tls=settings.make_tls())
    try:
        # Without retries: before a server rejects a request, it has waited for other servers itself.
        managers = ManagerClient(settings, pool, asyncio.get_running_loop().time, retry_s=0.0)
        return await work(Admin.of(managers))
    finally:
        pool.close()


def find_topic(server: ConnectionTarget, name: str) -> TopicInfo:
    """Look a topic up, without waiting for a missing one. Raises CommandError."""
    try:
        return run(server, lambda admin: admin.topics.describe(name))
    except RequestRejected as error:
        if isinstance(error.__cause__, TopicMissing):
            can_be = re.match(TOPIC_NAME, name) is not None
            advice = f"create it with `flotilla topics create {name}`" if can_be else TOPIC_NAME_HELP
            raise RequestRejected(f"{error}; {advice}") from error
        raise


@contextmanager
def translate_errors(server: ConnectionTarget) -> Iterator[None]:
    """Translate errors of the client library into CommandError, with a hint what to do."""
    try:
        yield
    except ConfigInvalid as error:
        raise InputInvalid(str(error)) from error
    except ServerUnreachable as error:
        raise ServerUnavailable(_describe_unavailable(server, error)) from error
    except Refused as error:
        raise RequestRejected(_describe_rejection(server, error)) from error
    except FlotillaError as error:
        raise CommandError(str(error)) from error


def _describe_unavailable(server: ConnectionTarget, error: ServerUnreachable) -> str:
    if not isinstance(error.__cause__, Disconnected) or isinstance(error, OutcomeUnknown):
        return str(error)
    lost = error.__cause__
    named = "" if server.context is None else f" (context '{server.context}')"
    refused = lost.__cause__
    if isinstance(refused, ssl.SSLCertVerificationError):
        return (
            f"certificate of {' or '.join(server.urls)}{named} is not trusted: {refused.verify_message}. Set the "
            "CA bundle with --ca, --context or FLOTILLA_TLS_CA"
        )
    why = os.strerror(refused.errno) if isinstance(refused, ConnectionRefusedError) and refused.errno else str(lost)
    return (
        f"cannot reach {' or '.join(server.urls)}{named}: {why}. Is it running? Start a "
        "local cluster with `flotilla up`, or set the URL with --url, --context or FLOTILLA_URL"
    )


def _describe_rejection(server: ConnectionTarget, error: Refused) -> str:
    if error.code != "unauthorized":
        return str(error)
    if server.token is not None:
        return (
            f"token rejected by {server.url}: it belongs to another cluster, was revoked, or has expired; create one "
            "with `flotilla tokens create`"
        )
    if server.context is not None:
        return (
            f"{_AUTHENTICATION_REQUIRED}, or set a token file for context '{server.context}': `flotilla contexts set`"
        )
    return _AUTHENTICATION_REQUIRED
