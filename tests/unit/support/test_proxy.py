import contextlib
import socket

import pytest

from support.proxy import Proxy

real_connect = socket.create_connection


def test_connection_that_is_established_during_a_cut_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nothing would end it, and `close` would wait for its threads for ever."""
    with socket.create_server(("127.0.0.1", 0)) as target, contextlib.closing(Proxy(target.getsockname()[1])) as proxy:

        def connect(address: tuple[str, int]) -> socket.socket:
            made = real_connect(address)
            proxy.cut()
            return made

        monkeypatch.setattr(socket, "create_connection", connect)
        with real_connect(("127.0.0.1", proxy.port), timeout=10) as client:
            assert client.recv(1) == b""
