"""Processes and arguments of a plan, and validation of options."""

from pathlib import Path
from typing import Any

import pytest

from flotilla.up.errors import OptionInvalid
from flotilla.up.options import Options
from flotilla.up.plan import Child, Role, api_url, make_plan, port_names

FOLDER = Path("/data dir/x")


def plan(**options: Any) -> dict[str, Child]:  # noqa: ANN401 - any option
    chosen = Options(**options)
    ports = {name: 20_000 + at for at, name in enumerate(port_names(chosen))}
    return {child.name: child for child in make_plan(chosen, FOLDER, chosen.port, ports, "s" * 64)}


def flags(child: Child) -> dict[str, str]:
    assert len(child.arguments) % 2 == 0
    return dict(zip(child.arguments[::2], child.arguments[1::2], strict=True))


def test_default_plan_has_three_brokers_one_writer_two_readers() -> None:
    roles = [(child.name, child.role) for child in plan().values()]
    brokers = [(f"broker-{n}", Role.BROKER) for n in (1, 2, 3)]
    assert roles == [*brokers, ("writer", Role.WRITER), ("reader-1", Role.READER), ("reader-2", Role.READER)]


def test_broker_gets_folder_ports_and_writer_url() -> None:
    broker = plan(durability="os", log_level="debug")["broker-2"]
    assert flags(broker) == {
        "--name": "broker-2",
        "--data": "/data dir/x/broker-2",
        "--host": "127.0.0.1",
        "--port": "20001",
        "--peer-host": "127.0.0.1",
        "--peer-port": "20004",
        "--managers": "http://127.0.0.1:20006",
        "--durability": "os",
        "--log-level": "debug",
    }
    assert broker.port == 20_001


def test_secret_is_passed_as_variable_not_as_argument() -> None:
    """All users of the machine can read arguments."""
    for child in plan().values():
        assert not any("s" * 64 in argument for argument in child.arguments)
        assert child.variables == {"FLOTILLA_SECRET": "s" * 64, "FLOTILLA_AUTH": "off"}
        assert "s" * 64 not in repr(child)


@pytest.mark.parametrize(
    ("host", "auth", "is_on"),
    [
        ("127.0.0.1", "auto", False),
        ("localhost", "auto", False),
        ("0.0.0.0", "auto", True),  # noqa: S104 - an example
        ("127.0.0.1", "on", True),
        ("0.0.0.0", "off", False),  # noqa: S104 - an example
    ],
)
def test_auth_is_the_same_for_all_servers(host: str, auth: str, is_on: bool) -> None:
    """By default the API needs tokens on a network, and none on the loopback."""
    found = {child.variables["FLOTILLA_AUTH"] for child in plan(host=host, auth=auth).values()}
    assert found == {"on" if is_on else "off"}


def test_writer_has_only_its_own_port() -> None:
    assert flags(plan(host="0.0.0.0")["writer"]) == {  # noqa: S104 - the writer must not be there
        "--role": "writer",
        "--name": "writer",
        "--host": "127.0.0.1",
        "--port": "20006",
        "--url": "http://127.0.0.1:20006",
        "--database": "sqlite:////data dir/x/metadata.sqlite",
        "--brokers-min": "3",
        "--log-level": "info",
    }


def test_readers_share_the_api_port_and_have_their_own() -> None:
    children = plan(port=9000, database="postgresql://db/x")
    for name, own in (("reader-1", 20_007), ("reader-2", 20_008)):
        found = flags(children[name])
        assert (found["--host"], found["--port"]) == ("127.0.0.1", "9000")
        assert found["--reuse-port"] == "true"
        assert found["--own-port"] == str(own)
        assert found["--url"] == f"http://127.0.0.1:{own}"
        assert found["--database"] == "postgresql://db/x"
        assert children[name].port == own
        assert children[name].address == f"http://127.0.0.1:9000 and 127.0.0.1:{own}"


def test_ports_are_unique() -> None:
    for options in (Options(), Options(brokers=1, readers=1), Options(brokers=16, readers=16)):
        names = port_names(options)
        assert len(set(names)) == len(names) == 2 * options.brokers + 1 + options.readers


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),  # noqa: S104 - an example
        ("::1", "http://[::1]:80"),
        ("::", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_api_url_is_usable_on_this_machine(host: str, url: str) -> None:
    assert api_url(host, 80) == url


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"brokers": 0}, "--brokers must be from 1 to 16"),
        ({"brokers": 17}, "--brokers must be from 1 to 16"),
        ({"readers": 0}, "--readers must be from 1"),
        ({"port": 65536}, "--port must be from 0 to 65535"),
        ({"port": -1}, "--port must be from 0 to 65535"),
        ({"host": "no such host"}, "--host must be an IP address"),
        ({"auth": "perhaps"}, "--auth .or FLOTILLA_AUTH. must be on, off, auto"),
        ({"durability": "hope"}, "--durability must be fsync, os, memory"),
        ({"log_level": "loud"}, "--log-level must be debug, info"),
        ({"database": "here.db"}, "--database must be a URL"),
    ],
)
def test_invalid_option_is_named_with_the_rule(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionInvalid, match=text):
        Options(**options)


def test_is_local_for_loopback_addresses() -> None:
    assert Options().is_local
    assert Options(host="::1").is_local
    assert Options(host="localhost").is_local
    assert not Options(host="0.0.0.0").is_local  # noqa: S104 - an example
