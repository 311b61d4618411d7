"""Accepts connections that begin with a TLS handshake, and limits those that have not ended it.

A loop's own server tells nobody of a connection before its handshake is over: whoever opens connections and says
nothing would be counted nowhere, until there are no file descriptors left. Here each is counted from the start.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

logger = logging.getLogger(__name__)

HANDSHAKE_S = 10.0
_AT_ONCE_MAX = 64  # connections that are accepted in one turn of the loop
_PAUSE_S = 0.1  # when there are no file descriptors


class Acceptor:
    """Accepts on one socket, which listens already. At most `handshakes_max` at a time: more are closed at once.

    A handshake takes `handshake_s` at most, and so does the leave-taking at the end of a connection.
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
        """Begin to accept. Made on the loop."""
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
        """How many are under way."""
        return len(self._handshakes)

    def close(self) -> None:
        """Accept no more, and end what has not ended its handshake."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until nothing is left."""
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
                logger.warning("no connection can be accepted: %s", error)
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
                ssl_shutdown_timeout=self._handshake_s,  # a client that is gone does not take its leave
            )
        except OSError as error:  # an SSLError and a TimeoutError are some
            logger.debug("a handshake failed: %s", error)
            sock.close()
        except asyncio.CancelledError:
            sock.close()
            raise
