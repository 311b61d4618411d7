"""The settings of a broker: one frozen object, from flags and environment, checked before anything starts.

A flag `--data` is the variable `FLOTILLA_DATA`; the flag wins. The secret is never a flag: it comes from
`FLOTILLA_SECRET`, or from a file.
"""

import argparse
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flotilla.records import BATCH_BYTES_MAX
from flotilla.serving import settings
from flotilla.serving.logs import LEVELS
from flotilla.serving.safety import AUTH_HELP, AUTO, check_safety, is_auth_on
from flotilla.serving.settings import (
    PORT_MAX,
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
from flotilla_broker.identity import BrokerAddress, is_host
from flotilla_broker.log import Durability, LogConfig
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.peers import PeerConfig, PeerTls
from flotilla_broker.raft import RaftConfig

_ANY = {"0.0.0.0", "::"}  # noqa: S104 - where one can listen, and nobody can go
_RACK = re.compile(r"[\x21-\x7e]{1,200}")
_S_MIN = 0.01
_S_MAX = 3600
_CONNECTIONS_MIN = 8


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a broker can be told."""

    data: Path = setting(Path("data"), "the folder for everything that must survive", Path)
    host: str = setting("127.0.0.1", "where clients are served")
    port: int = setting(8090, "where clients are served; 0 takes any free port", int, {"PORT": int})
    peer_host: str = setting("127.0.0.1", "where other brokers are served")
    peer_port: int = setting(8091, "where other brokers are served; 0 takes any free port", int)
    advertise_host: str | None = setting(
        None, "where clients reach this broker; by default host", str, {"CURRENT_ADDRESS": url_host}
    )
    advertise_port: int | None = setting(
        None, "where clients reach this broker; by default port", int, {"CURRENT_ADDRESS": url_port}
    )
    advertise_peer_host: str | None = setting(None, "where other brokers reach this one; by default peer_host")
    advertise_peer_port: int | None = setting(None, "where other brokers reach this one; by default peer_port", int)
    managers: tuple[str, ...] = setting(
        (), "base URLs of managers, with commas between them", parse_urls, {"MANAGER_ADDRESS": parse_urls}
    )
    manager_heartbeat_s: float = setting(1.0, "how often managers are told how this broker is", float)
    rack: str | None = setting(
        None, "what fails together with this broker: replicas go to different ones", lambda text: text or None
    )
    auth: str = setting(AUTO, AUTH_HELP)
    secret_file: Path | None = setting(None, "a file with the secret that all servers share", Path)
    tls_cert: Path | None = setting(None, "TLS for clients: this server's certificate", Path)
    tls_key: Path | None = setting(None, "TLS for clients: the certificate's key", Path)
    tls_ca: Path | None = setting(
        None, "who signs certificates of managers; by default, whom this machine trusts", Path
    )
    peer_cert: Path | None = setting(None, "mutual TLS between brokers: this broker's certificate", Path)
    peer_key: Path | None = setting(None, "mutual TLS between brokers: the certificate's key", Path)
    peer_ca: Path | None = setting(None, "mutual TLS between brokers: who signs their certificates", Path)
    durability: Durability = setting(
        Durability.FSYNC, "fsync: acknowledged is on disk; os: in the page cache; memory: nowhere", Durability
    )
    segment_bytes: int = setting(64 << 20, "the size of a file of the log", parse_size)
    log_bytes_max: int | None = setting(None, "what the log may take on disk; by default all there is", parse_size)
    heartbeat_s: float = setting(0.3, "how often a leader shows that it lives", float)
    election_s_min: float = setting(1.5, "a leader that is silent for this long may be replaced", float)
    election_s_max: float = setting(3.0, "a leader that is silent for this long will be replaced", float)
    body_bytes_max: int = setting(32 << 20, "the largest request", parse_size)
    in_flight_bytes_max: int = setting(
        256 << 20, "appends that are under way, all together; and as much again for fetches", parse_size
    )
    connections_max: int = setting(2048, "connections of clients", int)
    append_s_max: float = setting(10.0, "an append that takes longer is answered with: unknown", float)
    fetch_bytes_max: int = setting(16 << 20, "the largest answer to a fetch", parse_size)
    wait_ms_max: int = setting(30_000, "how long a fetch may wait for records", int)
    ready_lag_max: int = setting(10_000, "entries that a replica may be behind on a broker that is ready", int)
    log_level: str = setting("info", "debug, info, warning or error")
    secret: bytes | None = secret("secret_file")

    def __post_init__(self) -> None:
        for name in ("port", "peer_port"):
            require_port(getattr(self, name), name)
        self._check_advertised()
        self._check_limits()
        require(self.log_level in LEVELS, "log_level", "debug, info, warning or error")
        check_safety(self)
        if self.secret is None and not is_loopback(self.peer_host):
            raise SettingsInvalid(
                "secret is missing, and peer_host is not the loopback: set FLOTILLA_SECRET, or secret_file"
            )
        given = [path for path in (self.peer_cert, self.peer_key, self.peer_ca) if path is not None]
        require(len(given) in {0, 3}, "peer_cert, peer_key and peer_ca", "given together or not at all")
        _ = self.log_config, self.raft_config  # they have rules of their own

    @property
    def is_auth_on(self) -> bool:
        """Whether callers have to say who they are."""
        return is_auth_on(self)

    def _check_limits(self) -> None:
        require(self.body_bytes_max >= BATCH_BYTES_MAX, "body_bytes_max", f"at least {BATCH_BYTES_MAX}, a batch")
        least = self.body_bytes_max
        require(self.in_flight_bytes_max >= least, "in_flight_bytes_max", "at least body_bytes_max")
        require(self.fetch_bytes_max >= 1, "fetch_bytes_max", "at least 1")
        require(self.connections_max >= _CONNECTIONS_MIN, "connections_max", f"at least {_CONNECTIONS_MIN}")
        for name in ("append_s_max", "heartbeat_s", "manager_heartbeat_s", "election_s_min", "election_s_max"):
            require(_S_MIN <= getattr(self, name) <= _S_MAX, name, f"from {_S_MIN} to {_S_MAX} seconds")
        require(0 <= self.wait_ms_max <= _S_MAX * 1000, "wait_ms_max", f"from 0 to {_S_MAX * 1000}")
        require(self.ready_lag_max >= 0, "ready_lag_max", "at least 0")

    def _check_advertised(self) -> None:
        for name in ("advertise_host", "advertise_peer_host"):
            host = getattr(self, name)
            require(host is None or is_host(host), name, "the name or address of a host")
        for name in ("advertise_port", "advertise_peer_port"):
            port = getattr(self, name)
            require(port is None or 1 <= port <= PORT_MAX, name, f"from 1 to {PORT_MAX}")
        require(self.rack is None or _RACK.fullmatch(self.rack) is not None, "rack", "1 to 200 characters, no spaces")
        if self.managers:
            address = self.advertise(1, 1)
            for name, host in (("advertise_host", address.host), ("advertise_peer_host", address.peer_host)):
                require(host not in _ANY, name, f"given, because nobody reaches this broker at {host}")

    def advertise(self, port: int, peer_port: int) -> BrokerAddress:
        """Tell where this broker is reached, given the ports that it listens on."""
        host = self.advertise_host or self.host
        peer_host = host if self.peer_host in _ANY else self.peer_host
        return BrokerAddress(
            host,
            self.advertise_port or port,
            self.advertise_peer_host or peer_host,
            self.advertise_peer_port or peer_port,
            tls=self.tls_cert is not None,
        )

    @property
    def log_config(self) -> LogConfig:
        """The settings of the log."""
        return LogConfig(durability=self.durability, segment_bytes=self.segment_bytes, log_bytes_max=self.log_bytes_max)

    @property
    def raft_config(self) -> RaftConfig:
        """The settings of Raft groups."""
        return RaftConfig(
            heartbeat_s=self.heartbeat_s, election_s_min=self.election_s_min, election_s_max=self.election_s_max
        )

    @property
    def peer_config(self) -> PeerConfig:
        """The settings of connections between brokers: quiet groups trust in them as in heartbeats."""
        return PeerConfig(ping_s=self.heartbeat_s, silence_s=self.election_s_min)

    @property
    def partition_config(self) -> PartitionConfig:
        """The settings of partitions."""
        return PartitionConfig()

    @property
    def peer_tls(self) -> PeerTls | None:
        """Mutual TLS between brokers, if certificates were given."""
        if self.peer_cert is None or self.peer_key is None or self.peer_ca is None:
            return None
        server = _authority(ssl.Purpose.CLIENT_AUTH, self.peer_ca)
        server.verify_mode = ssl.CERT_REQUIRED
        client = _authority(ssl.Purpose.SERVER_AUTH, self.peer_ca)
        for context in (server, client):
            _show_certificate(context, self.peer_cert, self.peer_key)
        return PeerTls(server, client)


def _authority(purpose: ssl.Purpose, file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(purpose, cafile=file)
    except OSError as error:  # an SSLError is one, too
        raise SettingsInvalid(f"peer_ca {file} cannot be used: {error.strerror or error}") from error


def _show_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    for name, file in (("peer_cert", cert), ("peer_key", key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise SettingsInvalid(f"{name} {file} cannot be read: {error.strerror}") from error
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"peer_cert {cert} and peer_key {key} cannot be used: {error}") from error


def load_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read flags and environment; raises SettingsInvalid. `--help` ends the process."""
    loaded = load(Settings, arguments, environment, make_parser())
    _ = loaded.peer_tls  # certificates that cannot be read are found now
    return loaded


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    return settings.make_parser(
        Settings,
        prog="python -m flotilla_broker",
        description="A broker of Flotilla: keeps replicas of partitions, takes appends, answers fetches.",
        epilog="The secret that servers share comes from FLOTILLA_SECRET or from --secret-file, never from a flag.",
    )
