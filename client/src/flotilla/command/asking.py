"""How a command asks a manager: where it is, who asks, whom to trust, and what to say if it does not work out.

Who asks is told by a token, or by the secret that all servers share, from which the system's token is derived: so the
first token of all is made. Neither is ever an argument, because everybody on the machine can read those.

Flags win over variables, and variables over the current context. A context that is named by `--context` wins over
variables, and then none of them counts; and where a flag or a variable says where to ask, the current context does not
count: so a token goes only where it was meant to go.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

from flotilla.access import system_text
from flotilla.client.admin import AsyncBrokers, AsyncGroups, AsyncTokens, AsyncTopics
from flotilla.client.cluster import Cluster, Managers
from flotilla.client.config import DEFAULT_URL, ClientConfig, Route
from flotilla.client.errors import ConfigInvalid, FlotillaError, OutcomeUnknown, Refused, ServerUnreachable
from flotilla.command import config
from flotilla.command.config import Context
from flotilla.command.errors import CommandError, InputInvalid, ServerRefused, ServerSilent
from flotilla.command.flags import Flags
from flotilla.net import Disconnected, Pool

if TYPE_CHECKING:
    from flotilla.client.blocking import Client

T = TypeVar("T")

_ANSWER_S = 70.0
_PROBE, _PROBE_S = "/v1/metadata?topic=-", 10.0  # about no topic: only to see whether somebody answers
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
    context: str | None = None  # the one that it comes from, if any

    @property
    def is_exposed(self) -> bool:
        """Whether others on the way could read the token."""
        return self.token is not None and any(map(_is_readable, self.urls))

    @property
    def urls(self) -> tuple[str, ...]:
        """All managers, if several are named."""
        return tuple(self.url.split(","))

    def probe(self) -> None:
        """Make sure that a manager answers, and lets us in; raises CommandError."""
        run(self, lambda admin: admin.managers.ask("GET", _PROBE), answer_s=_PROBE_S)

    def open(self, *, route: str = Route.AUTO, request_s: float = 30.0) -> "Client":
        """Make a client, for commands that produce and consume; raises CommandError.

        A client is patient with servers that are away. People are not, so that is found out before. Records that are
        not stored are told by the command, and not by the client's log as well.
        """
        from flotilla.client.blocking import Client  # noqa: PLC0415 - only those who send and read records need it

        logging.getLogger("flotilla.client.producing").setLevel(logging.ERROR)
        with suppress(ServerRefused):  # somebody answers; about a token that was just made, the client is patient
            self.probe()
        with explained(self):
            return Client(self.url, token=self.token, ca=self.ca, route=route, request_s=request_s, environment={})


@dataclass(frozen=True)
class Admin:
    """What a command can ask for."""

    topics: AsyncTopics
    brokers: AsyncBrokers
    groups: AsyncGroups
    tokens: AsyncTokens
    managers: Managers

    @classmethod
    def of(cls, managers: Managers) -> Self:
        """Ask these managers."""
        topics = AsyncTopics(managers, Cluster(managers))
        return cls(topics, AsyncBrokers(managers), AsyncGroups(managers), AsyncTokens(managers), managers)


# -- where, and who -----------------------------------------------------------------------------------------------


def find_server(flags: Flags, environment: Mapping[str, str]) -> Server:
    """Take what is asked, and who asks, from flags, environment and contexts; raises InputInvalid."""
    _check_flags(flags)
    name, context = _find_context(flags, environment)
    if flags.context is not None:
        environment = {}
    url = flags.url or environment.get("FLOTILLA_URL") or (context.url if context else DEFAULT_URL)
    ca = flags.ca or (Path(environment["FLOTILLA_TLS_CA"]) if environment.get("FLOTILLA_TLS_CA") else None)
    if ca is None and context is not None:
        ca = context.ca
    token = _find_token(flags, environment)
    if token is None and context is not None and context.token_file is not None:
        token = _check_token(_read(context.token_file), str(context.token_file))
    return Server(_check_url(url), token, ca, name)


def _check_flags(flags: Flags) -> None:
    """Refuse what says nothing, as in `--context "$SYSTEM"` without that variable: nobody means the default then."""
    for name, value in (("--context", flags.context), ("--url", flags.url)):
        if value == "":
            raise InputInvalid(f"{name} is empty: give it a value, or leave it out")


def _find_context(flags: Flags, environment: Mapping[str, str]) -> tuple[str | None, Context | None]:
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
        raise InputInvalid(f"the URL {error}") from error


def _is_readable(url: str) -> bool:
    """Tell whether others could read what is sent there."""
    parts = urlsplit(url)
    is_near = parts.hostname in {"localhost", "::1"} or (parts.hostname or "").startswith("127.")
    return parts.scheme == "http" and not is_near


def _find_token(flags: Flags, environment: Mapping[str, str]) -> str | None:
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
    """Read a token; what is wrong with one is told without showing it."""
    if not text.isascii() or not text.startswith(b"flt_") or len(text.split()) != 1:
        raise InputInvalid(f"what is in {where} is no token: one begins with flt_ and has no spaces")
    return text.decode()


def _system_token(secret: bytes, where: str) -> str:
    if not secret:
        raise InputInvalid(f"the secret in {where} is empty")
    return system_text(secret)


# -- asking -------------------------------------------------------------------------------------------------------


def run(server: Server, work: Callable[[Admin], Awaitable[T]], *, answer_s: float = _ANSWER_S) -> T:
    """Do something with a manager, and return what comes of it; raises CommandError."""
    with explained(server):
        return asyncio.run(_run(server, work, answer_s))


async def _run(server: Server, work: Callable[[Admin], Awaitable[T]], answer_s: float) -> T:
    settings = ClientConfig(urls=server.urls, token=server.token, ca=server.ca, request_s=answer_s)
    pool = Pool(tls=settings.make_tls())
    try:
        # People do not wait for what does not work; servers have waited for each other already when they say no.
        managers = Managers(settings, pool, asyncio.get_running_loop().time, again_s=0.0)
        return await work(Admin.of(managers))
    finally:
        pool.close()


@contextmanager
def explained(server: Server) -> Iterator[None]:
    """Turn what the library raises into what people are told, and what to do about it; raises CommandError."""
    try:
        yield
    except ConfigInvalid as error:
        raise InputInvalid(str(error)) from error
    except ServerUnreachable as error:
        raise ServerSilent(_explain_silence(server, error)) from error
    except Refused as error:
        raise ServerRefused(_explain_refusal(server, error)) from error
    except FlotillaError as error:
        raise CommandError(str(error)) from error


def _explain_silence(server: Server, error: ServerUnreachable) -> str:
    if not isinstance(error.__cause__, Disconnected) or isinstance(error, OutcomeUnknown):
        return str(error)
    lost = error.__cause__
    named = "" if server.context is None else f", of context '{server.context}'"
    refused = lost.__cause__
    if isinstance(refused, ssl.SSLCertVerificationError):
        return (
            f"{' or '.join(server.urls)}{named} is not trusted: {refused.verify_message}. Who signs its certificate is "
            "told by --ca, --context or FLOTILLA_TLS_CA"
        )
    why = os.strerror(refused.errno) if isinstance(refused, ConnectionRefusedError) and refused.errno else str(lost)
    return (
        f"cannot reach {' or '.join(server.urls)}{named}: {why}. Is it running? Try `flotilla up`, "
        "or say where it is with --url, --context or FLOTILLA_URL"
    )


def _explain_refusal(server: Server, error: Refused) -> str:
    if error.code != "unauthorized":
        return str(error)
    if server.token is not None:
        return f"the token is not valid there: it is another cluster's, was revoked, or has expired ({server.url})"
    if server.context is not None:
        return f"{_SAY_WHO}; or have context '{server.context}' name a token file"
    return _SAY_WHO
