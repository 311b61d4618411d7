"""Settings of a broker, from flags and environment variables, validated before anything starts.

The flag `--data` takes precedence over the variable `FLOTILLA_DATA`. The secret comes from `FLOTILLA_SECRET` or a file,
never from a flag.
"""

import argparse
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flotilla.limits import (
    BODY_BYTES_MAX_DEFAULT,
    FETCH_BYTES_MAX_DEFAULT,
    MANAGER_HEARTBEAT_S_MAX,
    MANAGER_HEARTBEAT_S_MIN,
    WAIT_MS_MAX_DEFAULT,
)
from flotilla.records import BATCH_BYTES_MAX
from flotilla_broker.identity import NAME_RULE, BrokerAddress, is_host, is_name
from flotilla_broker.log import Durability, LogConfig
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.peers import PeerConfig, PeerTls
from flotilla_broker.raft import RaftConfig
from flotilla_server import settings
from flotilla_server.logs import LEVELS
from flotilla_server.open_files import OVERHEAD
from flotilla_server.security import AUTH_HELP, AUTO, check_security, is_auth_on
from flotilla_server.settings import (
    CONNECTIONS_MIN,
    PORT_MAX,
    TIMEOUT_S_MAX,
    SettingsInvalid,
    is_loopback,
    load,
    parse_size,
    parse_urls,
    require,
    require_port,
    secret,
    setting,
    url_host,
    url_port,
)

_ANY = {"0.0.0.0", "::"}  # noqa: S104 - addresses to listen on, not to connect to
_RACK = re.compile(r"[\x21-\x7e]{1,200}")
_S_MIN = 0.01


def _parse_durability(text: str) -> Durability:
    try:
        return Durability(text)
    except ValueError:
        raise ValueError(f"{text!r} must be fsync, os or memory") from None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a broker."""

    data: Path = setting(Path("data"), "data folder: log, identity, access table", Path)
    host: str = setting("127.0.0.1", "address to listen on for clients")
    port: int = setting(8090, "port to listen on for clients; 0 selects a free port", int, {"PORT": int})
    peer_host: str = setting("127.0.0.1", "address to listen on for other brokers")
    peer_port: int = setting(8091, "port to listen on for other brokers; 0 selects a free port", int)
    advertise_host: str | None = setting(
        None, "host that clients connect to", str, {"CURRENT_ADDRESS": url_host}, fallback="that of --host"
    )
    advertise_port: int | None = setting(
        None, "port that clients connect to", int, {"CURRENT_ADDRESS": url_port}, fallback="that of --port"
    )
    advertise_peer_host: str | None = setting(
        None, "host that other brokers connect to", fallback="that of --peer-host"
    )
    advertise_peer_port: int | None = setting(
        None, "port that other brokers connect to", int, fallback="that of --peer-port"
    )
    managers: tuple[str, ...] = setting(
        (), "comma-separated base URLs of managers", parse_urls, {"MANAGER_ADDRESS": parse_urls}
    )
    manager_heartbeat_s: float = setting(
        1.0,
        "interval of heartbeats to managers, 0.01 to 10 s; managers mark a broker inactive after three intervals",
        float,
    )
    name: str | None = setting(
        None, "name of this broker in tables, logs and metrics", lambda text: text or None, fallback="its id"
    )
    rack: str | None = setting(
        None, "failure domain; replicas of a partition go to different racks", lambda text: text or None
    )
    auth: str = setting(AUTO, AUTH_HELP)
    secret_file: Path | None = setting(None, "file with the secret that all servers of the cluster share", Path)
    tls_cert: Path | None = setting(None, "TLS for clients: certificate chain (PEM)", Path)
    tls_key: Path | None = setting(None, "TLS for clients: private key of the certificate (PEM)", Path)
    tls_ca: Path | None = setting(None, "CA bundle to verify managers", Path, fallback="system CAs")
    peer_cert: Path | None = setting(None, "mutual TLS between brokers: certificate chain (PEM)", Path)
    peer_key: Path | None = setting(None, "mutual TLS between brokers: private key of the certificate (PEM)", Path)
    peer_ca: Path | None = setting(None, "mutual TLS between brokers: CA bundle to verify other brokers", Path)
    durability: Durability = setting(
        Durability.FSYNC,
        "where acknowledged records are: fsync (on disk), os (in the page cache) or memory (lost at a restart)",
        _parse_durability,
    )
    segment_bytes: int = setting(64 << 20, "size of a log segment", parse_size)
    log_bytes_max: int | None = setting(
        None, "maximum disk usage of the log", parse_size, fallback="the whole file system"
    )
    heartbeat_s: float = setting(0.3, "interval of heartbeats from a leader to its followers, s", float)
    election_s_min: float = setting(1.5, "minimum election timeout, s", float)
    election_s_max: float = setting(3.0, "maximum election timeout, s", float)
    body_bytes_max: int = setting(BODY_BYTES_MAX_DEFAULT, "maximum size of a request body", parse_size)
    in_flight_bytes_max: int = setting(
        256 << 20, "maximum bytes of appends in progress, and the same again for fetches", parse_size
    )
    connections_max: int = setting(2048, "maximum number of client connections", int)
    append_s_max: float = setting(10.0, "append timeout, s; after it the outcome is unknown (HTTP 504)", float)
    fetch_bytes_max: int = setting(FETCH_BYTES_MAX_DEFAULT, "maximum size of a fetch response", parse_size)
    wait_ms_max: int = setting(WAIT_MS_MAX_DEFAULT, "longest wait of a fetch for records, ms", int)
    ready_lag_max: int = setting(10_000, "maximum lag of a replica, in entries, on a ready broker", int)
    log_level: str = setting("info", "debug, info, warning or error")
    secret: bytes | None = secret("secret_file")

    def __post_init__(self) -> None:
        for name in ("port", "peer_port"):
            require_port(getattr(self, name), name)
        self._check_advertised()
        self._check_limits()
        require(self.log_level in LEVELS, "log_level", "debug, info, warning or error")
        check_security(self)
        if self.secret is None and not is_loopback(self.peer_host):
            raise SettingsInvalid(
                f"secret is required, because peer_host {self.peer_host} is not a loopback address: "
                "set FLOTILLA_SECRET or secret_file"
            )
        given = [path for path in (self.peer_cert, self.peer_key, self.peer_ca) if path is not None]
        require(len(given) in {0, 3}, "peer_cert, peer_key and peer_ca", "set together or not at all")
        _ = self.log_config, self.raft_config  # validate them as well

    @property
    def is_auth_on(self) -> bool:
        """Whether requests need a token."""
        return is_auth_on(self)

    def _check_limits(self) -> None:
        require(self.body_bytes_max >= BATCH_BYTES_MAX, "body_bytes_max", f"at least {BATCH_BYTES_MAX}, a batch")
        least = self.body_bytes_max
        require(self.in_flight_bytes_max >= least, "in_flight_bytes_max", "at least body_bytes_max")
        require(self.fetch_bytes_max >= 1, "fetch_bytes_max", "at least 1")
        require(self.connections_max >= CONNECTIONS_MIN, "connections_max", f"at least {CONNECTIONS_MIN}")
        for name in ("append_s_max", "heartbeat_s", "election_s_min", "election_s_max"):
            require(_S_MIN <= getattr(self, name) <= TIMEOUT_S_MAX, name, f"from {_S_MIN} to {TIMEOUT_S_MAX} seconds")
        shortest, longest, interval_s = MANAGER_HEARTBEAT_S_MIN, MANAGER_HEARTBEAT_S_MAX, self.manager_heartbeat_s
        rule = f"from {shortest:g} to {longest:g} seconds, not {interval_s:g}"
        require(shortest <= interval_s <= longest, "manager_heartbeat_s", rule)
        require(0 <= self.wait_ms_max <= TIMEOUT_S_MAX * 1000, "wait_ms_max", f"from 0 to {TIMEOUT_S_MAX * 1000}")
        require(self.ready_lag_max >= 0, "ready_lag_max", "at least 0")

    def _check_advertised(self) -> None:
        for name in ("advertise_host", "advertise_peer_host"):
            host = getattr(self, name)
            require(host is None or is_host(host), name, f"a host name or an IP address, not {host!r}")
        for name in ("advertise_port", "advertise_peer_port"):
            port = getattr(self, name)
            require(port is None or 1 <= port <= PORT_MAX, name, f"from 1 to {PORT_MAX}")
        require(self.name is None or is_name(self.name), "name", NAME_RULE)
        require(self.rack is None or _RACK.fullmatch(self.rack) is not None, "rack", "1 to 200 characters, no spaces")
        if self.managers:
            address = self.advertise(1, 1)
            for name, host in (("advertise_host", address.host), ("advertise_peer_host", address.peer_host)):
                require(host not in _ANY, name, f"set to a reachable host: {host} is only an address to listen on")

    def advertise(self, port: int, peer_port: int) -> BrokerAddress:
        """Return the advertised addresses, given the ports that the broker listens on."""
        host = self.advertise_host or self.host
        peer_host = host if self.peer_host in _ANY else self.peer_host
        return BrokerAddress(
            host,
            self.advertise_port or port,
            self.advertise_peer_host or peer_host,
            self.advertise_peer_port or peer_port,
            tls=self.tls_cert is not None,
            name=self.name or "",
        )

    @property
    def log_config(self) -> LogConfig:
        """Settings of the log."""
        return LogConfig(durability=self.durability, segment_bytes=self.segment_bytes, log_bytes_max=self.log_bytes_max)

    @property
    def files_required(self) -> int:
        """Minimum number of open files: segments of the log, and a few more."""
        return self.log_config.open_files_most + OVERHEAD

    @property
    def files_wanted(self) -> int:
        """Number of open files when all limits are reached."""
        return self.files_required + self.connections_max + self.peer_config.connections_max

    @property
    def raft_config(self) -> RaftConfig:
        """Settings of Raft groups."""
        return RaftConfig(
            heartbeat_s=self.heartbeat_s, election_s_min=self.election_s_min, election_s_max=self.election_s_max
        )

    @property
    def peer_config(self) -> PeerConfig:
        """Settings of connections between brokers; quiesced groups rely on their pings instead of heartbeats."""
        return PeerConfig(ping_s=self.heartbeat_s, silence_s=self.election_s_min)

    @property
    def partition_config(self) -> PartitionConfig:
        """Settings of partitions."""
        return PartitionConfig()

    @property
    def peer_tls(self) -> PeerTls | None:
        """Mutual TLS between brokers, if certificates are set."""
        if self.peer_cert is None or self.peer_key is None or self.peer_ca is None:
            return None
        server = _make_context(ssl.Purpose.CLIENT_AUTH, self.peer_ca)
        server.verify_mode = ssl.CERT_REQUIRED
        client = _make_context(ssl.Purpose.SERVER_AUTH, self.peer_ca)
        for context in (server, client):
            _load_certificate(context, self.peer_cert, self.peer_key)
        return PeerTls(server, client)


def _make_context(purpose: ssl.Purpose, file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(purpose, cafile=file)
    except OSError as error:  # includes SSLError
        raise SettingsInvalid(f"peer_ca {file} cannot be loaded: {error.strerror or error}") from error


def _load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    for name, file in (("peer_cert", cert), ("peer_key", key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise SettingsInvalid(f"{name} {file} cannot be read: {error.strerror}") from error
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"peer_cert {cert} and peer_key {key} are not a valid pair: {error}") from error


def load_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read flags and environment; raises SettingsInvalid. `--help` ends the process."""
    loaded = load(Settings, arguments, environment, make_parser())
    _ = loaded.peer_tls  # fail now on unreadable certificates
    return loaded


def make_parser() -> argparse.ArgumentParser:
    """Create the parser of the command line."""
    return settings.make_parser(
        Settings,
        prog="python -m flotilla_broker",
        description="Run a Flotilla broker: store replicas of partitions, serve append and fetch.",
        epilog="Set the shared secret with FLOTILLA_SECRET or --secret-file; no flag takes the secret itself.",
    )
