"""The options of a client: frozen values, checked when they are made. Errors name the option and the rule."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypedDict

from flotilla.client.errors import ConfigInvalid
from flotilla.net.urls import parse_url
from flotilla.records import BATCH_BYTES_MAX, RECORDS_MAX

DEFAULT_URL = "http://127.0.0.1:8080"
_S_MAX = 86_400.0


class Route(StrEnum):
    """How records travel."""

    AUTO = "auto"  # direct if brokers can be reached, else through managers
    DIRECT = "direct"
    GATEWAY = "gateway"


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """Where the system is, and who asks."""

    urls: tuple[str, ...]
    route: Route = Route.AUTO
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    request_s: float = 30.0  # for whatever has no time limit of its own

    def __post_init__(self) -> None:
        require(bool(self.urls), "url", "given")
        require_seconds(self.request_s, "request_s")
        require(self.token is None or (self.token.isascii() and self.token.isprintable()), "token", "printable ASCII")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """What every request carries."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    def make_tls(self) -> ssl.SSLContext | None:
        """Make what checks servers' certificates; None is what this machine trusts."""
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:  # an SSLError is one, too
            raise ConfigInvalid(
                f"ca: the certificates in {self.ca} cannot be read: {error.strerror or error}"
            ) from error


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """How records are put together and sent."""

    linger_s: float = 0.0  # how long a batch that could be sent waits for more records
    batch_bytes: int = 1 << 20
    buffer_bytes: int = 64 << 20  # of records that are not answered yet
    delivery_s: float = 60.0  # after this, a record has failed, or its outcome is unknown
    compression: str = "none"  # zstd, or auto: as the topic wishes

    def __post_init__(self) -> None:
        require(self.compression in {"none", "zstd", "auto"}, "compression", "none, zstd or auto")
        require(0.0 <= self.linger_s <= 60.0, "linger_s", "from 0 to 60")  # noqa: PLR2004 - a rule
        require(1 <= self.batch_bytes <= BATCH_BYTES_MAX, "batch_bytes", f"from 1 to {BATCH_BYTES_MAX}")
        require(self.buffer_bytes >= self.batch_bytes, "buffer_bytes", "at least batch_bytes")
        require_seconds(self.delivery_s, "delivery_s")


class ProducerOptions(TypedDict, total=False):
    """What `client.producer` takes: the fields of ProducerConfig."""

    linger_s: float
    batch_bytes: int
    buffer_bytes: int
    delivery_s: float
    compression: str


class OnGone(StrEnum):
    """What a consumer does when the records at its position were removed."""

    EARLIEST = "earliest"  # goes on with the first that is there, and logs it
    LATEST = "latest"  # goes on with what comes from now on, and logs it
    RAISE = "raise"  # raises OffsetOutOfRange; `seek` goes on


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """How records are fetched, and how a member of a group behaves."""

    fetch_bytes: int = 4 << 20  # of one answer, at most; a single batch may be larger
    prefetch_bytes: int = 32 << 20  # of all partitions together, before anybody has asked for them
    wait_s: float = 10.0  # how long a fetch waits for records that are not there yet
    on_gone: str = OnGone.EARLIEST
    auto_commit_s: float | None = 5.0  # None: only `commit()` commits
    session_s: float = 10.0  # a member that is silent for longer has left its group
    max_poll_s: float | None = None  # a member whose user does not ask for records for longer leaves

    def __post_init__(self) -> None:
        require(self.on_gone in set(OnGone), "on_gone", ", ".join(OnGone))
        require(self.auto_commit_s is None or self.auto_commit_s > 0.0, "auto_commit_s", "more than 0, or None")
        require(1.0 <= self.session_s <= 3600.0, "session_s", "from 1 to 3600")  # noqa: PLR2004 - what servers allow
        require(self.max_poll_s is None or self.max_poll_s > 0.0, "max_poll_s", "more than 0, or None")
        require(self.fetch_bytes >= 1, "fetch_bytes", "at least 1")
        require(self.prefetch_bytes >= 1, "prefetch_bytes", "at least 1")
        require(0.0 <= self.wait_s <= 30.0, "wait_s", "from 0 to 30")  # noqa: PLR2004 - what servers allow


class ConsumerOptions(TypedDict, total=False):
    """What `client.consumer` takes besides what it names: the fields of ConsumerConfig."""

    fetch_bytes: int
    prefetch_bytes: int
    wait_s: float
    on_gone: str
    auto_commit_s: float | None
    session_s: float
    max_poll_s: float | None


BATCH_RECORDS_MAX = RECORDS_MAX


def load_client(
    url: str | None,
    *,
    token: str | None = None,
    ca: str | Path | None = None,
    route: str = Route.AUTO,
    request_s: float = 30.0,
    environment: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """Fill in what is not given from FLOTILLA_URL, FLOTILLA_TOKEN and FLOTILLA_TLS_CA; raises ConfigInvalid."""
    text = url or environment.get("FLOTILLA_URL") or DEFAULT_URL
    authority = ca or environment.get("FLOTILLA_TLS_CA") or None
    try:
        urls = tuple(parse_url(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ConfigInvalid(f"url: {error}") from error
    require(route in set(Route), "route", ", ".join(Route))
    return ClientConfig(
        urls=urls,
        route=Route(route),
        token=token or environment.get("FLOTILLA_TOKEN") or None,
        ca=None if authority is None else Path(authority),
        request_s=request_s,
    )


def require(holds: bool, name: str, rule: str) -> None:
    """Check a rule about an option; raises ConfigInvalid."""
    if not holds:
        raise ConfigInvalid(f"{name} must be {rule}")


def require_seconds(value: float, name: str) -> None:
    """Check a time; raises ConfigInvalid."""
    require(0.0 < value <= _S_MAX, name, f"more than 0 and at most {_S_MAX:g} seconds")
