"""Ports: kept where they can be, chosen where not, and a taken one is named with who has it."""

import itertools
import os
import socket

import pytest

from flotilla.up import ports
from flotilla.up.errors import PortTaken


def test_kept_ports_are_used_again_and_only_what_is_missing_is_drawn() -> None:
    kept = {"a": 20_001, "b": 20_002, "gone": 20_003}
    chosen = ports.choose(["new", "a", "b"], kept, lambda _: True, itertools.count(20_001).__next__)
    assert chosen == {"new": 20_003, "a": 20_001, "b": 20_002}


def test_a_kept_port_that_somebody_took_is_replaced() -> None:
    chosen = ports.choose(["a", "b"], {"a": 1, "b": 2}, lambda port: port != 1, itertools.count(1).__next__)
    assert chosen == {"a": 3, "b": 2}


def test_the_same_port_kept_for_two_is_given_to_one() -> None:
    chosen = ports.choose(["a", "b"], {"a": 5, "b": 5}, lambda _: True, itertools.count(5).__next__)
    assert chosen == {"a": 5, "b": 6}


def test_a_machine_without_any_free_port_is_told_so() -> None:
    with pytest.raises(PortTaken, match="no free port for a between"):
        ports.choose(["a"], {}, lambda _: False, lambda: 20_000)


def test_a_port_that_is_served_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_a_taken_port_is_named_with_who_has_it_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            ports.hold("127.0.0.1", port)
    text = str(caught.value)
    assert f"port {port} on 127.0.0.1 is taken by process {os.getpid()} (" in text
    assert text.endswith("or choose another port with --port")


def test_a_port_that_others_share_is_taken_too() -> None:
    """Readers of two systems on one port would answer each other's clients."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server, pytest.raises(PortTaken):
        ports.hold("127.0.0.1", server.getsockname()[1])


def test_a_held_port_is_free_for_readers_and_taken_for_a_second_system() -> None:
    """Also while no reader is up."""
    with ports.hold("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(PortTaken):
            ports.hold("127.0.0.1", port)
        with socket.create_server(("127.0.0.1", port), reuse_port=True) as one:
            with socket.create_server(("127.0.0.1", port), reuse_port=True):
                pass
            with socket.create_connection(("127.0.0.1", port)):
                one.accept()[0].close()  # the connection came to the reader, not to the one who holds the port
    ports.hold("127.0.0.1", port).close()


def test_an_address_of_another_machine_is_refused_with_a_hint() -> None:
    with pytest.raises(PortTaken, match=r"no address 192\.0\.2\.1.*--host"):
        ports.hold("192.0.2.1", 8080)


def test_nobody_is_found_on_a_free_port() -> None:
    assert ports.find_owner(1) is None
