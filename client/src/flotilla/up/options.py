"""Options of `flotilla up`: one frozen object, validated before anything starts. `flotilla.command.up` parses them."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from flotilla.up.errors import OptionInvalid

DURABILITIES = ("fsync", "os", "memory")
AUTHS = ("on", "off", "auto")
LOG_LEVELS = ("debug", "info", "warning", "error")
BROKERS_MAX = 16
READERS_MAX = 16
PORT_MAX = 65535


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `flotilla up`."""

    port: int = 8080
    host: str = "127.0.0.1"
    data_dir: Path = Path(".flotilla")
    brokers: int = 3
    readers: int = 2
    durability: str = "fsync"
    auth: str = "auto"
    database: str | None = None
    log_level: str = "info"
    no_color: bool = False

    def __post_init__(self) -> None:
        _require(0 <= self.port <= PORT_MAX, "--port", f"from 0 to {PORT_MAX}; 0 takes any free port")
        _require(1 <= self.brokers <= BROKERS_MAX, "--brokers", f"from 1 to {BROKERS_MAX}")
        _require(1 <= self.readers <= READERS_MAX, "--readers", f"from 1 to {READERS_MAX}")
        _require(self.durability in DURABILITIES, "--durability", ", ".join(DURABILITIES))
        _require(self.auth in AUTHS, "--auth (or FLOTILLA_AUTH)", ", ".join(AUTHS))
        _require(self.log_level in LOG_LEVELS, "--log-level", ", ".join(LOG_LEVELS))
        _require(_is_host(self.host), "--host", "an IP address of this machine, or localhost")
        _require(
            self.database is None or "://" in self.database, "--database", "a URL, as in postgresql://user@host/name"
        )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the API."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    @property
    def is_auth_on(self) -> bool:
        """Whether callers need a token."""
        return self.auth == "on" or (self.auth == "auto" and not self.is_local)


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return True


def _require(holds: bool, option: str, rule: str) -> None:
    if not holds:
        raise OptionInvalid(f"{option} must be {rule}")
