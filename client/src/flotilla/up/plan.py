"""Which processes run, with which arguments: from options and ports. Pure.

Each process has an address of its own on the loopback. The readers share the port of the API besides: whoever asks
there gets any one of them, so whether this one lives can only be asked at its own address.
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
    """What a process does."""

    BROKER = "broker"
    WRITER = "writer"
    READER = "reader"


@dataclass(frozen=True)
class Programs:
    """The modules that are run: tests put others in their place, with the same arguments."""

    broker: str = "flotilla_broker"
    manager: str = "flotilla_manager"
    fork: bool | None = None  # import them once and fork, or start each anew; by default what the system does well


@dataclass(frozen=True)
class Child:
    """One process of the system."""

    name: str
    role: Role
    module: str
    arguments: tuple[str, ...]
    port: int  # its own, on the loopback
    address: str  # what people are shown
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


def broker_names(count: int) -> list[str]:
    """Name the brokers, which are their folders too."""
    return [f"{BROKER_PREFIX}{number}" for number in range(1, count + 1)]


def reader_names(count: int) -> list[str]:
    """Name the readers."""
    return [f"reader-{number}" for number in range(1, count + 1)]


def wanted_ports(options: Options) -> list[str]:
    """Name every port that is needed inside."""
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
    """Decide which processes run. `folder` is absolute; `port` is the one that the readers share."""
    brokers = [_broker(name, options, folder, ports, programs) for name in broker_names(options.brokers)]
    children = [
        *brokers,
        _manager("writer", Role.WRITER, options, folder, ports["writer"], programs),
        *(_reader(name, options, folder, ports[name], port, programs) for name in reader_names(options.readers)),
    ]
    # All of them on this one decision: those inside are on the loopback, and would decide otherwise by themselves.
    variables = {"FLOTILLA_AUTH": "on" if options.is_auth_on else "off", "FLOTILLA_SECRET": secret}
    return [replace(child, variables=variables) for child in children]


def _broker(name: str, options: Options, folder: Path, ports: Mapping[str, int], programs: Programs) -> Child:
    port = ports[name]
    arguments = [
        *("--data", str(folder / name)),
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
    """Write a base URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def api_url(host: str, port: int) -> str:
    """Write the URL of the API as somebody on this machine can use it: nobody connects to 0.0.0.0."""
    return url({"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host), port)  # noqa: S104 - compared, not bound
