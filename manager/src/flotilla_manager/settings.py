"""The settings of a manager: one frozen object, from flags and environment, checked before anything starts.

A flag `--role` is the variable `FLOTILLA_ROLE`; the flag wins. The ancestors' `PORT`, `MANAGER_ADDRESS`,
`CURRENT_ADDRESS` and `READ_ONLY` are known, too. The database's URL may hold a password: it is better given by its
variable, or in a file, than by the flag.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flotilla.limits import WEEK_MS
from flotilla.net.urls import parse_url
from flotilla.records import BATCH_BYTES_MAX
from flotilla.serving.logs import LEVELS
from flotilla.serving.safety import AUTH_HELP, AUTO, check_safety, is_auth_on
from flotilla.serving.settings import (
    PORT_MAX,
    SettingsInvalid,
    load,
    make_parser,
    parse_count,
    parse_flag,
    parse_size,
    require,
    require_port,
    secret,
    setting,
    unless_unlimited,
)

ROLES = ("writer", "reader")
_S_MIN = 0.1
_S_MAX = 3600
_CONNECTIONS_MIN = 8


def _role_of(text: str) -> str:
    """What READ_ONLY means."""
    return "reader" if parse_flag(text) else "writer"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a manager can be told."""

    role: str = setting("reader", "writer or reader", str, {"READ_ONLY": _role_of})
    host: str = setting("127.0.0.1", "where clients are served")
    port: int = setting(8080, "where clients are served; 0 takes any free port", int, {"PORT": int})
    reuse_port: bool = setting(False, "true: several managers on this machine share the port", parse_flag)
    own_port: int | None = setting(
        None, "a port of 127.0.0.1 for this manager alone, beside one that it shares with others", int
    )
    public_port: int | None = setting(
        None, "a second port of host, for the world: the same API without /v1/control and /metrics", int
    )
    url: str | None = setting(
        None, "where others reach this manager; by default its host and port", parse_url, {"CURRENT_ADDRESS": parse_url}
    )
    name: str | None = setting(None, "how this manager is called; by default its host and port")
    writer: str | None = setting(
        None, "where the writer is; by default, the database says so", parse_url, {"MANAGER_ADDRESS": parse_url}
    )
    database: str = setting("sqlite:///flotilla.db", "where the metadata is: sqlite:///path or postgresql://…")
    database_file: Path | None = setting(None, "a file that holds the database's URL", Path)
    brokers_min: int = setting(1, "no topic is made before so many brokers have registered", int)
    retention_ms: int | None = setting(
        WEEK_MS, "how long new topics keep records unless told otherwise; or unlimited", unless_unlimited(parse_count)
    )
    retention_bytes: int | None = setting(
        None,
        "how much new topics keep in each partition unless told otherwise, as in 10GiB; or unlimited",
        unless_unlimited(parse_size),
    )
    message_bytes_max: int = setting(1 << 20, "the largest message of the API for people", parse_size)
    body_bytes_max: int = setting(32 << 20, "the largest request of the API for programs", parse_size)
    in_flight_bytes_max: int = setting(256 << 20, "messages and batches that are under way, each", parse_size)
    connections_max: int = setting(2048, "connections of clients", int)
    request_s_max: float = setting(15.0, "how long to try to reach a partition's leader", float)
    wait_ms_max: int = setting(30_000, "how long a fetch may wait for records", int)
    client_silence_s: float = setting(
        30.0, "producers and consumers that are silent for so long show as inactive", float
    )
    auth: str = setting(AUTO, AUTH_HELP)
    secret_file: Path | None = setting(None, "a file with the secret that all servers share", Path)
    tls_cert: Path | None = setting(None, "TLS for clients: this server's certificate", Path)
    tls_key: Path | None = setting(None, "TLS for clients: the certificate's key", Path)
    tls_ca: Path | None = setting(
        None, "who signs certificates of other servers; by default, whom this machine trusts", Path
    )
    log_level: str = setting("info", ", ".join(LEVELS))
    secret: bytes | None = secret("secret_file")

    def __post_init__(self) -> None:
        require(self.role in ROLES, "role", "writer or reader")
        require_port(self.port, "port")
        require_port(self.own_port or 0, "own_port")
        require(
            self.public_port is None
            or (1 <= self.public_port <= PORT_MAX and self.public_port not in {self.port, self.own_port}),
            "public_port",
            f"from 1 to {PORT_MAX}, and another one than port and own_port",
        )
        require(self.brokers_min >= 0, "brokers_min", "at least 0")
        require(
            1 <= self.message_bytes_max <= BATCH_BYTES_MAX // 2,
            "message_bytes_max",
            f"from 1 to {BATCH_BYTES_MAX // 2}",
        )
        require(self.body_bytes_max >= BATCH_BYTES_MAX, "body_bytes_max", f"at least {BATCH_BYTES_MAX}, a batch")
        require(self.in_flight_bytes_max >= self.body_bytes_max, "in_flight_bytes_max", "at least body_bytes_max")
        require(self.connections_max >= _CONNECTIONS_MIN, "connections_max", f"at least {_CONNECTIONS_MIN}")
        for name in ("request_s_max", "client_silence_s"):
            require(_S_MIN <= getattr(self, name) <= _S_MAX, name, f"from {_S_MIN} to {_S_MAX} seconds")
        require(0 <= self.wait_ms_max <= _S_MAX * 1000, "wait_ms_max", f"from 0 to {_S_MAX * 1000}")
        require(self.log_level in LEVELS, "log_level", ", ".join(LEVELS))
        check_safety(self)

    @property
    def is_auth_on(self) -> bool:
        """Whether callers have to say who they are."""
        return is_auth_on(self)

    @property
    def scheme(self) -> str:
        """What clients speak with this manager."""
        return "http" if self.tls_cert is None else "https"

    def at_port(self, port: int) -> "Settings":
        """Fill in what follows from the port that was bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.host in {"0.0.0.0", "::"}:  # noqa: S104 - everywhere; others need a name
            host = socket.gethostname()
        url = self.url or f"{self.scheme}://{host}:{port}"
        name = self.name or url.partition("://")[2] + (f"#{os.getpid()}" if self.reuse_port else "")
        return replace(self, port=port, url=url, name=name)


def load_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read flags and environment; raises SettingsInvalid. `--help` ends the process."""
    parser = make_parser(
        Settings,
        prog="python -m flotilla_manager",
        description="A manager of Flotilla: serves the HTTP API; the writer also decides about topics and brokers.",
    )
    settings = load(Settings, arguments, environment, parser)
    if settings.database_file is None:
        return settings
    try:
        return replace(settings, database=settings.database_file.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        text = f"database_file {settings.database_file} cannot be read: {error}"
        raise SettingsInvalid(text) from error
