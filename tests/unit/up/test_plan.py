"""Which processes run, with which arguments; and which options are refused."""

from pathlib import Path
from typing import Any

import pytest

from flotilla.up.errors import OptionInvalid
from flotilla.up.options import Options
from flotilla.up.plan import Child, Role, api_url, make_plan, wanted_ports

FOLDER = Path("/data dir/x")


def plan(**options: Any) -> dict[str, Child]:  # noqa: ANN401 - any option
    chosen = Options(**options)
    ports = {name: 20_000 + at for at, name in enumerate(wanted_ports(chosen))}
    return {child.name: child for child in make_plan(chosen, FOLDER, chosen.port, ports, "s" * 64)}


def flags(child: Child) -> dict[str, str]:
    assert len(child.arguments) % 2 == 0
    return dict(zip(child.arguments[::2], child.arguments[1::2], strict=True))


def test_three_brokers_one_writer_and_two_readers_run_by_default() -> None:
    roles = [(child.name, child.role) for child in plan().values()]
    brokers = [(f"broker-{n}", Role.BROKER) for n in (1, 2, 3)]
    assert roles == [*brokers, ("writer", Role.WRITER), ("reader-1", Role.READER), ("reader-2", Role.READER)]


def test_a_broker_gets_its_folder_its_ports_and_the_writer() -> None:
    broker = plan(durability="os", log_level="debug")["broker-2"]
    assert flags(broker) == {
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


def test_the_secret_is_given_to_all_servers_and_never_as_an_argument() -> None:
    """Everybody on the machine can read arguments."""
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
def test_callers_are_checked_by_all_servers_or_by_none(host: str, auth: str, is_on: bool) -> None:
    """By default nobody opens a queue to a network without tokens, and nobody needs one on their own machine."""
    found = {child.variables["FLOTILLA_AUTH"] for child in plan(host=host, auth=auth).values()}
    assert found == {"on" if is_on else "off"}


def test_the_writer_is_served_on_its_own_port_alone() -> None:
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


def test_readers_share_the_port_and_have_one_of_their_own() -> None:
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


def test_no_port_is_given_twice() -> None:
    for options in (Options(), Options(brokers=1, readers=1), Options(brokers=16, readers=16)):
        names = wanted_ports(options)
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
def test_the_api_is_named_as_somebody_on_this_machine_can_use_it(host: str, url: str) -> None:
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
def test_an_option_that_breaks_a_rule_is_named_with_the_rule(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionInvalid, match=text):
        Options(**options)


def test_it_is_known_whether_others_reach_the_api() -> None:
    assert Options().is_local
    assert Options(host="::1").is_local
    assert Options(host="localhost").is_local
    assert not Options(host="0.0.0.0").is_local  # noqa: S104 - an example
