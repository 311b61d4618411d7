"""The options of `flotilla up`: one frozen object, checked before anything starts."""

import argparse
import ipaddress
import os
from dataclasses import dataclass, fields
from pathlib import Path

from flotilla.up.errors import OptionInvalid

DURABILITIES = ("fsync", "os", "memory")
AUTHS = ("on", "off", "auto")
LOG_LEVELS = ("debug", "info", "warning", "error")
BROKERS_MAX = 16
READERS_MAX = 16
PORT_MAX = 65535

DESCRIPTION = """\
Start the whole system on this machine: brokers, one writer, readers. What dies or hangs is started again.
Ctrl-C ends everything; the data stays, and the next start goes on with it.
"""

EXAMPLES = """\
examples:
  flotilla up                                    3 brokers, 1 writer, 2 readers; API on http://127.0.0.1:8080
  flotilla up --port 9000 --data-dir /tmp/try    a second one beside it
  flotilla up --brokers 1 --durability os        small and fast, for tests of your own code
  flotilla up --host 0.0.0.0                     for others to use, too: they need tokens, and are told how to get one
  flotilla up --database postgresql://me@db/flotilla

Any other setting of brokers and managers can be given as a variable, as in FLOTILLA_SEGMENT_BYTES=16MiB.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `flotilla up` can be told."""

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
        """Tell whether only this machine reaches the API."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback

    @property
    def is_auth_on(self) -> bool:
        """Tell whether callers need a token."""
        return self.auth == "on" or (self.auth == "auto" and not self.is_local)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on a parser."""
    add, default = parser.add_argument, Options()
    add("--port", type=int, default=default.port, help="where the API is served; 0 takes any free port (%(default)s)")
    add("--host", default=default.host, help="where the API is served (%(default)s)")
    add(
        "--data-dir",
        type=Path,
        default=default.data_dir,
        metavar="DIR",
        help="the folder for everything that must survive (%(default)s/ in the current folder)",
    )
    add("--brokers", type=int, default=default.brokers, metavar="N", help="how many brokers (%(default)s)")
    add(
        "--readers",
        type=int,
        default=default.readers,
        metavar="N",
        help="how many readers share the port (%(default)s)",
    )
    add(
        "--durability",
        choices=DURABILITIES,
        default=default.durability,
        help="fsync: acknowledged is on disk; os: in the page cache; memory: nowhere (%(default)s)",
    )
    add(
        "--auth",
        choices=AUTHS,
        default=os.environ.get("FLOTILLA_AUTH") or default.auth,
        help="on: callers need a token; off: anybody who reaches the API may do anything; auto: on unless the host is "
        "the loopback (FLOTILLA_AUTH; auto)",
    )
    add("--database", metavar="URL", help="where metadata is kept (SQLite in the data folder)")
    add("--log-level", choices=LOG_LEVELS, default=default.log_level, help="of all processes (%(default)s)")
    add("--no-color", action="store_true", help="plain text, also on a terminal; so does the variable NO_COLOR")


def from_arguments(found: argparse.Namespace) -> Options:
    """Take the options from parsed arguments; raises OptionInvalid."""
    return Options(**{field.name: getattr(found, field.name) for field in fields(Options)})


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return True


def _require(holds: bool, option: str, rule: str) -> None:
    if not holds:
        raise OptionInvalid(f"{option} must be {rule}")
