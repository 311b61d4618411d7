"""A TCP proxy that a test can cut, freeze and slow down."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

_CHUNK_BYTES = 1 << 16


class Proxy:
    """Forwards connections to a local port, in threads, until it is closed."""

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._flowing = threading.Event()
        self._open.set()
        self._flowing.set()
        self._bytes_per_s: float | None = None
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        """Close all connections, and reject new ones."""
        with self._lock:
            self._open.clear()
            sockets, self._sockets = self._sockets, set()
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Forward nothing, without closing connections, as if packets were lost."""
        self._flowing.clear()

    def throttle(self, bytes_per_s: float | None) -> None:
        """Limit the rate; None removes the limit."""
        self._bytes_per_s = bytes_per_s

    def heal(self) -> None:
        """Forward normally again."""
        self._flowing.set()
        self._open.set()
        self._bytes_per_s = None

    def close(self) -> None:
        """Stop everything."""
        self.cut()
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if not self._open.is_set():
                return
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                with self._lock:
                    if not self._open.is_set():  # cut meanwhile: nothing else would end this connection
                        return
                    self._sockets |= {client, server}
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server)
                back.join()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._flowing.wait()
                if self._bytes_per_s is not None:
                    time.sleep(len(data) / self._bytes_per_s)  # limits the rate
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
