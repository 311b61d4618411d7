"""Options of clients, producers and consumers: frozen values, validated on creation.

Errors name the option, the rule and the value.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TypedDict

from flotilla.client.errors import ConfigInvalid
from flotilla.limits import COMPRESSIONS, PRODUCER_COMPRESSIONS, SESSION_MS_MAX, SESSION_MS_MIN
from flotilla.net.urls import parse_url
from flotilla.records import BATCH_BYTES_MAX, Compression

DEFAULT_URL = "http://127.0.0.1:8080"
COMPRESSION_BY_NAME: dict[str, Compression] = {name: Compression[name.upper()] for name in COMPRESSIONS}
_S_MAX = 86_400.0
_LINGER_S_MAX = 60.0
_WAIT_S_MAX = 30.0  # the servers' limit
_SESSION_S_MIN, _SESSION_S_MAX = SESSION_MS_MIN / 1000, SESSION_MS_MAX / 1000


class Route(StrEnum):
    """How a client sends and fetches records: option `route` of a client."""

    AUTO = "auto"  # direct if brokers are reachable, else through managers
    DIRECT = "direct"  # to the leaders
    GATEWAY = "gateway"  # through managers


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """URLs of managers, and credentials."""

    urls: tuple[str, ...]
    route: Route = Route.AUTO
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    request_s: float = 30.0  # timeout of calls that have none of their own

    def __post_init__(self) -> None:
        require(bool(self.urls), "url", "given")
        require_seconds(self.request_s, "request_s")
        require(self.token is None or (self.token.isascii() and self.token.isprintable()), "token", "printable ASCII")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of every request."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    def make_tls(self) -> ssl.SSLContext | None:
        """Create the TLS context for a CA bundle; None uses the system CAs. Raises ConfigInvalid."""
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:  # an SSLError is one, too
            raise ConfigInvalid(f"ca: cannot read certificates from {self.ca}: {error.strerror or error}") from error


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """How a producer batches and sends records."""

    linger_s: float = 0.0  # how long a batch waits for more records before it is sent
    batch_bytes: int = 1 << 20
    buffer_bytes: int = 64 << 20  # all unacknowledged records
    delivery_s: float = 60.0  # time limit of a delivery; then it has failed, or its outcome is unknown
    compression: str = "none"  # none, zstd, or auto: the topic's setting

    def __post_init__(self) -> None:
        rule = f"{', '.join(COMPRESSIONS)} or auto"
        require(self.compression in PRODUCER_COMPRESSIONS, "compression", rule, self.compression)
        require(0.0 <= self.linger_s <= _LINGER_S_MAX, "linger_s", f"from 0 to {_LINGER_S_MAX:g}", self.linger_s)
        require(
            1 <= self.batch_bytes <= BATCH_BYTES_MAX, "batch_bytes", f"from 1 to {BATCH_BYTES_MAX}", self.batch_bytes
        )
        require(
            self.buffer_bytes >= self.batch_bytes,
            "buffer_bytes",
            f"at least batch_bytes ({self.batch_bytes})",
            self.buffer_bytes,
        )
        require_seconds(self.delivery_s, "delivery_s")


class ProducerOptions(TypedDict, total=False):
    """Options of `client.producer`, for type checkers.

    linger_s: how long a batch waits for more records before it is sent, 0 to 60. Default: 0.
    batch_bytes: maximum size of a batch. Default: 1 MiB.
    buffer_bytes: maximum size of all unacknowledged records. Default: 64 MiB.
    delivery_s: time limit of a delivery. Default: 60.
    compression: "none", "zstd", or "auto" for the topic's setting. Default: "none".
    """

    linger_s: float
    batch_bytes: int
    buffer_bytes: int
    delivery_s: float
    compression: str


class OnGone(StrEnum):
    """What a consumer does if the records at its position were deleted: option `on_gone` of a consumer."""

    EARLIEST = "earliest"  # continue at the first offset, and log a warning
    LATEST = "latest"  # continue at the next offset, and log a warning
    RAISE = "raise"  # raise OffsetOutOfRange; continue with `seek`


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """How a consumer fetches records, and its membership in a group."""

    fetch_bytes: int = 4 << 20  # maximum size of a fetch response; a single batch may exceed it
    prefetch_bytes: int = 32 << 20  # maximum size of all prefetched records
    wait_s: float = 10.0  # how long a fetch waits for new records
    on_gone: str = OnGone.EARLIEST
    auto_commit_s: float | None = 5.0  # interval of automatic commits; None: only `commit()` commits
    session_s: float = 10.0  # session timeout: a member without heartbeats for longer loses its partitions
    max_poll_s: float | None = None  # maximum time between two polls; a member that exceeds it leaves

    def __post_init__(self) -> None:
        require(self.on_gone in set(OnGone), "on_gone", " or ".join(OnGone), self.on_gone)
        for name in ("auto_commit_s", "max_poll_s"):
            seconds = getattr(self, name)
            require(seconds is None or seconds > 0.0, name, "more than 0, or None", seconds)
        session = f"from {_SESSION_S_MIN:g} to {_SESSION_S_MAX:g}"
        require(_SESSION_S_MIN <= self.session_s <= _SESSION_S_MAX, "session_s", session, self.session_s)
        require(self.fetch_bytes >= 1, "fetch_bytes", "at least 1", self.fetch_bytes)
        require(self.prefetch_bytes >= 1, "prefetch_bytes", "at least 1", self.prefetch_bytes)
        require(0.0 <= self.wait_s <= _WAIT_S_MAX, "wait_s", f"from 0 to {_WAIT_S_MAX:g}", self.wait_s)


class ConsumerOptions(TypedDict, total=False):
    """Options of `client.consumer` besides its named parameters, for type checkers.

    fetch_bytes: maximum size of a fetch response; a single batch may exceed it. Default: 4 MiB.
    prefetch_bytes: maximum size of all prefetched records. Default: 32 MiB.
    wait_s: how long a fetch waits for new records, 0 to 30. Default: 10.
    on_gone: what to do if the records at the position were deleted; see OnGone. Default: "earliest".
    auto_commit_s: interval of automatic commits; None: only `commit()` commits. Default: 5.
    session_s: session timeout of a group member, 1 to 3,600. Default: 10.
    max_poll_s: maximum time between two polls of a group member; None: no limit. Default: None.
    """

    fetch_bytes: int
    prefetch_bytes: int
    wait_s: float
    on_gone: str
    auto_commit_s: float | None
    session_s: float
    max_poll_s: float | None


_HIDDEN = object()  # no value to show


def load_client(
    url: str | None,
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    route: str = Route.AUTO,
    request_s: float = 30.0,
    environment: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """Take missing options from FLOTILLA_URL, FLOTILLA_TOKEN and FLOTILLA_TLS_CA. Raises ConfigInvalid."""
    text = url or environment.get("FLOTILLA_URL") or DEFAULT_URL
    authority = ca or environment.get("FLOTILLA_TLS_CA") or None
    try:
        urls = tuple(parse_url(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ConfigInvalid(f"url: {error}") from error
    require(route in set(Route), "route", " or ".join(Route), route)
    return ClientConfig(
        urls=urls,
        route=Route(route),
        token=token or environment.get("FLOTILLA_TOKEN") or None,
        ca=None if authority is None else Path(authority),
        request_s=request_s,
    )


def require(holds: bool, name: str, rule: str, value: object = _HIDDEN) -> None:
    """Raise ConfigInvalid unless a rule about an option holds; the message has the value, if one is passed."""
    if not holds:
        found = "" if value is _HIDDEN else f", not {value!r}"
        raise ConfigInvalid(f"{name} must be {rule}{found}")


def require_seconds(value: float, name: str) -> None:
    """Raise ConfigInvalid unless a time limit is valid."""
    require(0.0 < value <= _S_MAX, name, f"more than 0 and at most {_S_MAX:g} seconds", value)


def to_ms(moment: datetime | int, name: str) -> int:
    """Convert a timestamp to milliseconds. Raises ConfigInvalid, which names the option."""
    if isinstance(moment, datetime):
        require(moment.tzinfo is not None, name, "a datetime with a time zone, as in datetime.now(UTC)", moment)
        found = int(moment.timestamp() * 1000)
    else:
        found = moment
    require(found >= 0, name, "1970 or later", moment)
    return found
