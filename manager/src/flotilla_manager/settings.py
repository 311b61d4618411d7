"""Settings of a manager, from flags and environment variables.

The flag `--role` takes precedence over the variable `FLOTILLA_ROLE`, and that over its alias `READ_ONLY`. A database
URL with a password belongs in the variable or in a file, because other users can read flags.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flotilla.limits import (
    BODY_BYTES_MAX_DEFAULT,
    CLIENT_SILENCE_S_DEFAULT,
    MESSAGE_BYTES_MAX_DEFAULT,
    RETENTION_MS_DEFAULT,
    WAIT_MS_MAX_DEFAULT,
)
from flotilla.net.urls import parse_url
from flotilla.records import BATCH_BYTES_MAX
from flotilla_server.logs import LEVELS
from flotilla_server.open_files import OVERHEAD
from flotilla_server.security import AUTH_HELP, AUTO, check_security, is_auth_on
from flotilla_server.settings import (
    CONNECTIONS_MIN,
    PORT_MAX,
    TIMEOUT_S_MAX,
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


def _role_of(text: str) -> str:
    """Translate READ_ONLY into a role."""
    return "reader" if parse_flag(text) else "writer"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a manager."""

    role: str = setting("reader", "writer or reader", str, {"READ_ONLY": _role_of})
    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(8080, "port of the HTTP API; 0 selects a free port", int, {"PORT": int})
    reuse_port: bool = setting(False, "true: share the port with other managers on this machine", parse_flag)
    own_port: int | None = setting(
        None, "additional port on 127.0.0.1 for this manager alone, if it shares --port", int
    )
    public_port: int | None = setting(
        None, "second port on --host, without /v1/control and /metrics, for clients outside the cluster", int
    )
    url: str | None = setting(
        None,
        "URL at which other managers reach this one",
        parse_url,
        {"CURRENT_ADDRESS": parse_url},
        fallback="host and port",
    )
    name: str | None = setting(None, "name of this manager", fallback="host and port")
    writer: str | None = setting(
        None, "URL of the writer", parse_url, {"MANAGER_ADDRESS": parse_url}, fallback="taken from the database"
    )
    database: str = setting(
        "sqlite:///flotilla.db",
        "URL of the metadata database: sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
    )
    database_file: Path | None = setting(None, "file that contains the URL of the database", Path)
    brokers_min: int = setting(1, "number of registered brokers required before topics can be created", int)
    retention_ms: int | None = setting(
        RETENTION_MS_DEFAULT,
        "default retention of new topics in milliseconds, or unlimited",
        unless_unlimited(parse_count),
    )
    retention_bytes: int | None = setting(
        None,
        "default retention of new topics in bytes per partition, for example 10GiB, or unlimited",
        unless_unlimited(parse_size),
        fallback="unlimited",
    )
    message_bytes_max: int = setting(
        MESSAGE_BYTES_MAX_DEFAULT, "maximum size of a message of the simple API", parse_size
    )
    body_bytes_max: int = setting(BODY_BYTES_MAX_DEFAULT, "maximum size of a request to /v1/append", parse_size)
    in_flight_bytes_max: int = setting(
        256 << 20, "maximum bytes in flight, separately for messages, appends and fetches", parse_size
    )
    connections_max: int = setting(2048, "maximum number of client connections", int)
    request_s_max: float = setting(15.0, "time to keep trying to reach a partition's leader, s", float)
    wait_ms_max: int = setting(WAIT_MS_MAX_DEFAULT, "longest wait of a fetch for records, ms", int)
    client_silence_s: float = setting(
        CLIENT_SILENCE_S_DEFAULT,
        "time without a request after which a registered producer or consumer is inactive, s",
        float,
    )
    auth: str = setting(AUTO, AUTH_HELP)
    secret_file: Path | None = setting(None, "file with the secret that all servers of the cluster share", Path)
    tls_cert: Path | None = setting(None, "certificate chain of this server (PEM); turns TLS on", Path)
    tls_key: Path | None = setting(None, "private key of the certificate (PEM)", Path)
    tls_ca: Path | None = setting(None, "CA bundle to verify other servers", Path, fallback="system CAs")
    log_level: str = setting("info", "debug, info, warning or error")
    secret: bytes | None = secret("secret_file")

    def __post_init__(self) -> None:
        require(self.role in ROLES, "role", "writer or reader")
        require_port(self.port, "port")
        require_port(self.own_port or 0, "own_port")
        require(
            self.public_port is None
            or (1 <= self.public_port <= PORT_MAX and self.public_port not in {self.port, self.own_port}),
            "public_port",
            f"from 1 to {PORT_MAX}, and different from port and own_port",
        )
        require(self.brokers_min >= 0, "brokers_min", "at least 0")
        require(
            1 <= self.message_bytes_max <= BATCH_BYTES_MAX // 2,
            "message_bytes_max",
            f"from 1 to {BATCH_BYTES_MAX // 2}",
        )
        require(self.body_bytes_max >= BATCH_BYTES_MAX, "body_bytes_max", f"at least {BATCH_BYTES_MAX}, a batch")
        require(self.in_flight_bytes_max >= self.body_bytes_max, "in_flight_bytes_max", "at least body_bytes_max")
        require(self.connections_max >= CONNECTIONS_MIN, "connections_max", f"at least {CONNECTIONS_MIN}")
        for name in ("request_s_max", "client_silence_s"):
            require(_S_MIN <= getattr(self, name) <= TIMEOUT_S_MAX, name, f"from {_S_MIN} to {TIMEOUT_S_MAX} seconds")
        require(0 <= self.wait_ms_max <= TIMEOUT_S_MAX * 1000, "wait_ms_max", f"from 0 to {TIMEOUT_S_MAX * 1000}")
        require(self.log_level in LEVELS, "log_level", ", ".join(LEVELS))
        check_security(self)

    @property
    def is_auth_on(self) -> bool:
        """Whether callers must authenticate."""
        return is_auth_on(self)

    @property
    def scheme(self) -> str:
        """URL scheme of this manager."""
        return "http" if self.tls_cert is None else "https"

    @property
    def files_required(self) -> int:
        """Minimum number of open files."""
        return 2 * OVERHEAD

    @property
    def files_wanted(self) -> int:
        """Number of open files at all limits: each client connection may need a connection to a broker."""
        return self.files_required + 2 * self.connections_max

    def at_port(self, port: int) -> "Settings":
        """Set the port that was bound, and the URL and name that depend on it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.host in {"0.0.0.0", "::"}:  # noqa: S104 - all interfaces: not an address to connect to
            host = socket.gethostname()
        url = self.url or f"{self.scheme}://{host}:{port}"
        name = self.name or url.partition("://")[2] + (f"#{os.getpid()}" if self.reuse_port else "")
        return replace(self, port=port, url=url, name=name)


def load_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Load settings from flags and environment. Raises SettingsInvalid; `--help` exits."""
    parser = make_parser(
        Settings,
        prog="python -m flotilla_manager",
        description="Run a Flotilla manager: it serves the HTTP API. The writer also manages topics and brokers.",
    )
    settings = load(Settings, arguments, environment, parser)
    if settings.database_file is None:
        return settings
    try:
        return replace(settings, database=settings.database_file.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        text = f"database_file {settings.database_file} cannot be read: {error}"
        raise SettingsInvalid(text) from error
