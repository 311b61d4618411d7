"""Accepts TLS connections, with a limit on concurrent handshakes.

asyncio's server reports a connection only after its handshake. Clients that connect and send nothing would not be
counted, and could use all file descriptors. Here each connection counts from the accept on.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

logger = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
_AT_ONCE_MAX = 64  # connections accepted per iteration of the event loop
_PAUSE_S = 0.1  # when no file descriptor is available


class TlsAcceptor:
    """Accepts connections of a listening socket, with at most `handshakes_max` handshakes: others are closed at once.

    `handshake_s` is the timeout of the TLS handshake, and of the TLS shutdown.
    """

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext,
        *,
        handshakes_max: int,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """Start to accept. Create it on the event loop."""
        self._listening = listening
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshakes_max = handshakes_max
        self._handshake_s = handshake_s
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    @property
    def handshakes(self) -> int:
        """Number of handshakes in progress."""
        return len(self._handshakes)

    def close(self) -> None:
        """Stop accepting, and cancel handshakes in progress."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all handshakes ended."""
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _resume(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE_MAX):
            try:
                sock, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.warning("accept failed error=%r", str(error))
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE_S, self._resume)
                return
            self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        if len(self._handshakes) >= self._handshakes_max:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._shake_hands(sock))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._handshake_s,  # a client that is gone does not respond
            )
        except OSError as error:  # includes SSLError and TimeoutError
            logger.debug("TLS handshake failed error=%r", str(error))
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise
