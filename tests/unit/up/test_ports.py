"""Choice of internal ports, and reservation of the API port."""

import itertools
import os
import socket

import pytest

from flotilla.up import ports
from flotilla.up.errors import PortTaken


def test_saved_ports_are_reused() -> None:
    kept = {"a": 20_001, "b": 20_002, "gone": 20_003}
    chosen = ports.choose(["new", "a", "b"], kept, lambda _: True, itertools.count(20_001).__next__)
    assert chosen == {"new": 20_003, "a": 20_001, "b": 20_002}


def test_saved_port_in_use_is_replaced() -> None:
    chosen = ports.choose(["a", "b"], {"a": 1, "b": 2}, lambda port: port != 1, itertools.count(1).__next__)
    assert chosen == {"a": 3, "b": 2}


def test_duplicate_saved_port_is_used_once() -> None:
    chosen = ports.choose(["a", "b"], {"a": 5, "b": 5}, lambda _: True, itertools.count(5).__next__)
    assert chosen == {"a": 5, "b": 6}


def test_no_free_port_is_an_error() -> None:
    with pytest.raises(PortTaken, match="no free port for a between"):
        ports.choose(["a"], {}, lambda _: False, lambda: 20_000)


def test_listening_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_port_in_use_names_the_process_and_a_hint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            ports.reserve("127.0.0.1", port)
    text = str(caught.value)
    assert f"port {port} on 127.0.0.1 is in use by process {os.getpid()} (" in text
    assert text.endswith("or choose another port with --port")


def test_port_shared_by_others_is_in_use() -> None:
    """Readers of two systems on one port would answer each other's clients."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server, pytest.raises(PortTaken):
        ports.reserve("127.0.0.1", server.getsockname()[1])


def test_reserved_port_is_free_for_readers_only() -> None:
    """Also while no reader runs."""
    with ports.reserve("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(PortTaken):
            ports.reserve("127.0.0.1", port)
        with socket.create_server(("127.0.0.1", port), reuse_port=True) as one:
            with socket.create_server(("127.0.0.1", port), reuse_port=True):
                pass
            with socket.create_connection(("127.0.0.1", port)):
                one.accept()[0].close()  # the reader got the connection, not the socket that reserves the port
    ports.reserve("127.0.0.1", port).close()


def test_foreign_address_is_rejected_with_a_hint() -> None:
    with pytest.raises(PortTaken, match=r"no address 192\.0\.2\.1.*--host"):
        ports.reserve("192.0.2.1", 8080)


def test_free_port_has_no_owner() -> None:
    assert ports.find_owner(1) is None
