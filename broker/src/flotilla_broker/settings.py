"""The settings of a broker: one frozen object, from flags and environment, checked before anything starts.

A flag `--data` is the variable `FLOTILLA_DATA`; the flag wins. The secret is never a flag, because everybody on the
machine can read those: it comes from `FLOTILLA_SECRET`, or from a file.
"""

import argparse
import ipaddress
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from flotilla.records import BATCH_BYTES_MAX
from flotilla_broker.log import Durability, LogConfig
from flotilla_broker.partition.config import PartitionConfig
from flotilla_broker.peers import PeerConfig, PeerTls
from flotilla_broker.raft import RaftConfig

_PREFIX = "FLOTILLA_"
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_PORT_MAX = 65535
_S_MIN = 0.01
_S_MAX = 3600
_SECRET_BYTES_MIN = 16
_CONNECTIONS_MIN = 8


class SettingsInvalid(ValueError):
    """A setting breaks a rule. The text names the setting and the rule."""


def parse_size(text: str) -> int:
    """Read a number of bytes, as in 1048576 or 1MiB."""
    number = text.rstrip("KMGTiB")
    unit = text[len(number) :]
    if unit not in _UNITS or not number.isdecimal():
        raise ValueError(f"{text!r} is not a size; write a number of bytes, or as in 64MiB")
    return int(number) * _UNITS[unit]


def _setting(default: Any, text: str, parse: Callable[[str], Any] = str) -> Any:  # noqa: ANN401 - any type of setting
    return field(default=default, metadata={"help": text, "parse": parse})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a broker can be told."""

    data: Path = _setting(Path("data"), "the folder for everything that must survive", Path)
    host: str = _setting("127.0.0.1", "where clients are served")
    port: int = _setting(8090, "where clients are served; 0 takes any free port", int)
    peer_host: str = _setting("127.0.0.1", "where other brokers are served")
    peer_port: int = _setting(8091, "where other brokers are served; 0 takes any free port", int)
    secret_file: Path | None = _setting(None, "a file with the secret that all brokers share", Path)
    peer_cert: Path | None = _setting(None, "mutual TLS between brokers: this broker's certificate", Path)
    peer_key: Path | None = _setting(None, "mutual TLS between brokers: the certificate's key", Path)
    peer_ca: Path | None = _setting(None, "mutual TLS between brokers: who signs their certificates", Path)
    durability: Durability = _setting(
        Durability.FSYNC, "fsync: acknowledged is on disk; os: in the page cache; memory: nowhere", Durability
    )
    segment_bytes: int = _setting(64 << 20, "the size of a file of the log", parse_size)
    log_bytes_max: int | None = _setting(None, "what the log may take on disk; by default all there is", parse_size)
    heartbeat_s: float = _setting(0.3, "how often a leader shows that it lives", float)
    election_s_min: float = _setting(1.5, "a leader that is silent for this long may be replaced", float)
    election_s_max: float = _setting(3.0, "a leader that is silent for this long will be replaced", float)
    body_bytes_max: int = _setting(32 << 20, "the largest request", parse_size)
    in_flight_bytes_max: int = _setting(
        256 << 20, "appends that are under way, all together; and as much again for fetches", parse_size
    )
    connections_max: int = _setting(2048, "connections of clients", int)
    append_s_max: float = _setting(10.0, "an append that takes longer is answered with: unknown", float)
    fetch_bytes_max: int = _setting(16 << 20, "the largest answer to a fetch", parse_size)
    wait_ms_max: int = _setting(30_000, "how long a fetch may wait for records", int)
    ready_lag_max: int = _setting(10_000, "entries that a replica may be behind on a broker that is ready", int)
    log_level: str = _setting("info", "debug, info, warning or error")
    secret: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("port", "peer_port"):
            _require(0 <= getattr(self, name) <= _PORT_MAX, name, f"from 0 to {_PORT_MAX}")
        _require(self.body_bytes_max >= BATCH_BYTES_MAX, "body_bytes_max", f"at least {BATCH_BYTES_MAX}, a batch")
        least = self.body_bytes_max
        _require(self.in_flight_bytes_max >= least, "in_flight_bytes_max", "at least body_bytes_max")
        _require(self.fetch_bytes_max >= 1, "fetch_bytes_max", "at least 1")
        _require(self.connections_max >= _CONNECTIONS_MIN, "connections_max", f"at least {_CONNECTIONS_MIN}")
        for name in ("append_s_max", "heartbeat_s", "election_s_min", "election_s_max"):
            _require(_S_MIN <= getattr(self, name) <= _S_MAX, name, f"from {_S_MIN} to {_S_MAX} seconds")
        _require(0 <= self.wait_ms_max <= _S_MAX * 1000, "wait_ms_max", f"from 0 to {_S_MAX * 1000}")
        _require(self.ready_lag_max >= 0, "ready_lag_max", "at least 0")
        _require(self.log_level in {"debug", "info", "warning", "error"}, "log_level", "debug, info, warning or error")
        if self.secret is not None:
            _require(len(self.secret) >= _SECRET_BYTES_MIN, "secret", f"at least {_SECRET_BYTES_MIN} bytes long")
        elif not _is_loopback(self.peer_host):
            raise SettingsInvalid(
                "secret is missing, and peer_host is not the loopback: set FLOTILLA_SECRET, or secret_file"
            )
        given = [path for path in (self.peer_cert, self.peer_key, self.peer_ca) if path is not None]
        _require(len(given) in {0, 3}, "peer_cert, peer_key and peer_ca", "given together or not at all")

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
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.peer_ca)
        server.verify_mode = ssl.CERT_REQUIRED
        client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.peer_ca)
        for context in (server, client):
            context.load_cert_chain(self.peer_cert, self.peer_key)
        return PeerTls(server, client)


def load_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read flags and environment; raises SettingsInvalid. `--help` ends the process."""
    parser = make_parser()
    given: dict[str, Any] = {}
    flags = vars(parser.parse_args(arguments))
    for setting in _settings():
        text = flags[setting.name]
        where = _flag(setting.name)
        if text is None:
            text, where = environment.get(_variable(setting.name)), _variable(setting.name)
        if text is not None:
            given[setting.name] = _parse(setting, text, where)
    given["secret"] = _load_secret(environment, given.get("secret_file"))
    try:
        settings = Settings(**given)
        _ = settings.log_config, settings.raft_config  # they have rules of their own
    except ValueError as error:
        raise SettingsInvalid(str(error)) from error
    return settings


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m flotilla_broker",
        description="A broker of Flotilla: keeps replicas of partitions, takes appends, answers fetches.",
        epilog="The secret that brokers share comes from FLOTILLA_SECRET or from --secret-file, never from a flag.",
    )
    for setting in _settings():
        default = "none" if setting.default is None else setting.default
        parser.add_argument(
            _flag(setting.name),
            metavar=setting.name.rsplit("_", 1)[-1].upper(),
            help=f"{setting.metadata['help']} (default: {default}; {_variable(setting.name)})",
        )
    return parser


def _settings() -> list[Field[Any]]:
    return [setting for setting in fields(Settings) if "help" in setting.metadata and setting.default is not MISSING]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


def _parse(setting: Field[Any], text: str, where: str) -> Any:  # noqa: ANN401 - any type of setting
    try:
        return setting.metadata["parse"](text)
    except ValueError as error:
        raise SettingsInvalid(f"{where}: {error}") from error


def _load_secret(environment: Mapping[str, str], file: Path | None) -> bytes | None:
    if file is not None:
        try:
            return file.read_bytes().strip()
        except OSError as error:
            raise SettingsInvalid(f"secret_file {file} cannot be read: {error.strerror}") from error
    text = environment.get(_PREFIX + "SECRET")
    return None if text is None else text.encode()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _require(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise SettingsInvalid(f"{name} must be {rule}")
