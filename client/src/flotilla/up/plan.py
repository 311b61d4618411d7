"""The processes of a system and their arguments, from options and ports. Pure.

Each process has a loopback address of its own. Readers also share the API port, so probes of one reader use its own
address.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from flotilla.up.options import Options

LOOPBACK = "127.0.0.1"
BROKER_PREFIX = "broker-"
DATABASE_FILE = "metadata.sqlite"


class Role(Enum):
    """Role of a process."""

    BROKER = "broker"
    WRITER = "writer"
    READER = "reader"


@dataclass(frozen=True)
class Programs:
    """The modules to run; tests replace them."""

    broker: str = "flotilla_broker"
    manager: str = "flotilla_manager"
    fork: bool | None = None  # import once and fork, or start new interpreters; None: fork on Linux


@dataclass(frozen=True)
class Child:
    """One process of the system."""

    name: str
    role: Role
    module: str
    arguments: tuple[str, ...]
    port: int  # on the loopback
    address: str  # for display
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def broker_names(count: int) -> list[str]:
    """Return the names of brokers, which are also the names of their folders."""
    return [f"{BROKER_PREFIX}{number}" for number in range(1, count + 1)]


def reader_names(count: int) -> list[str]:
    """Return the names of readers."""
    return [f"reader-{number}" for number in range(1, count + 1)]


def port_names(options: Options) -> list[str]:
    """Return the names of all internal ports."""
    brokers = broker_names(options.brokers)
    return [*brokers, *(f"{name} peers" for name in brokers), "writer", *reader_names(options.readers)]


def make_plan(
    options: Options,
    folder: Path,
    port: int,
    ports: Mapping[str, int],
    secret: str,
    programs: Programs = Programs(),  # noqa: B008 - it is frozen
) -> list[Child]:
    """Return the processes to run. `folder` is absolute; `port` is the API port."""
    brokers = [_broker(name, options, folder, ports, programs) for name in broker_names(options.brokers)]
    children = [
        *brokers,
        _manager("writer", Role.WRITER, options, folder, ports["writer"], programs),
        *(_reader(name, options, folder, ports[name], port, programs) for name in reader_names(options.readers)),
    ]
    # Decided once for all: internal processes are on the loopback, where `auto` would mean off.
    variables = {"FLOTILLA_AUTH": "on" if options.is_auth_on else "off", "FLOTILLA_SECRET": secret}
    return [replace(child, variables=variables) for child in children]


def _broker(name: str, options: Options, folder: Path, ports: Mapping[str, int], programs: Programs) -> Child:
    port = ports[name]
    arguments = [
        *("--name", name, "--data", str(folder / name)),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--peer-host", LOOPBACK, "--peer-port", str(ports[f"{name} peers"])),
        *("--managers", url(LOOPBACK, ports["writer"])),
        *("--durability", options.durability, "--log-level", options.log_level),
    ]
    return Child(name, Role.BROKER, programs.broker, tuple(arguments), port, url(LOOPBACK, port))


def _reader(name: str, options: Options, folder: Path, own_port: int, port: int, programs: Programs) -> Child:
    shared = ("--host", options.host, "--port", str(port), "--reuse-port", "true", "--own-port", str(own_port))
    reader = _manager(name, Role.READER, options, folder, own_port, programs, shared)
    address = f"{api_url(options.host, port)} and {LOOPBACK}:{own_port}"
    return Child(name, Role.READER, reader.module, reader.arguments, own_port, address)


def _manager(
    name: str,
    role: Role,
    options: Options,
    folder: Path,
    port: int,
    programs: Programs,
    listen: Sequence[str] | None = None,
) -> Child:
    arguments = [
        *("--role", role.value, "--name", name),
        *(listen or ("--host", LOOPBACK, "--port", str(port))),
        *("--url", url(LOOPBACK, port)),
        *("--database", options.database or f"sqlite:///{folder / DATABASE_FILE}"),
        *("--brokers-min", str(options.brokers), "--log-level", options.log_level),
    ]
    return Child(name, role, programs.manager, tuple(arguments), port, url(LOOPBACK, port))


def url(host: str, port: int) -> str:
    """Return a base URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def api_url(host: str, port: int) -> str:
    """Return the URL of the API for this machine: 0.0.0.0 becomes the loopback."""
    return url({"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host), port)  # noqa: S104 - compared, not bound
