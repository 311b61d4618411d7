"""One connection to another broker: a handshake, then frames, until it is closed.

A thin shell around `handshake.py`, `framing.py` and `pacing.Silence`. It calls its owner in this order:
`authenticated` at most once, then `received` and `drained`, then `closed` exactly once. `closed` is called within
`close`; the future `lost` completes when the socket is closed.
"""

import asyncio
import socket
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Protocol, cast

from flotilla_broker.peers.config import PeerConfig
from flotilla_broker.peers.errors import FrameInvalid, HandshakeRejected, PeersMisuse
from flotilla_broker.peers.framing import PING, Buffer, FrameReader, encode_head
from flotilla_broker.peers.handshake import MESSAGE_BYTES_MAX, Handshake
from flotilla_broker.peers.pacing import Due, Silence

_JOINED_BYTES_MAX = 16 << 10  # copying less is cheaper than a vectored write or another TLS record


class ConnectionOwner(Protocol):
    """Callbacks of a connection. Each may close the connection."""

    def authenticated(self, connection: "Connection") -> None:
        """The handshake is complete."""

    def received(self, connection: "Connection", body: memoryview) -> None:
        """A frame arrived; the body may be kept."""

    def drained(self, connection: "Connection") -> None:
        """The connection is writable again."""

    def closed(self, connection: "Connection") -> None:
        """The connection is closed; see `connection.reason`."""


class Connection(asyncio.BufferedProtocol):
    """Protocol of one asyncio transport, with or without TLS."""

    def __init__(self, handshake: Handshake, address: str, config: PeerConfig, owner: ConnectionOwner) -> None:
        self.address = address
        self.reason = ""  # why it was closed
        self._handshake = handshake
        self._config = config
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(MESSAGE_BYTES_MAX)
        self._silence = Silence(config.ping_s, config.silence_s)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._authenticated = self._closed = False
        self.writable = True
        self.settled: asyncio.Future[None] = self._loop.create_future()  # authenticated or closed
        self.lost: asyncio.Future[None] = self._loop.create_future()  # the socket is closed

    @property
    def peer(self) -> str:
        """The broker at the other end; verified only after authentication."""
        return self._handshake.peer

    @property
    def peer_start(self) -> bytes:
        """Token of the start of the broker at the other end; empty if it sent none."""
        return self._handshake.peer_start

    @property
    def version(self) -> int:
        """The protocol version that both sides agreed on."""
        return self._handshake.version

    @property
    def is_open(self) -> bool:
        """Whether the handshake is complete and the connection not closed."""
        return self._authenticated and not self._closed

    def send(self, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame; return False if it was not queued. The buffers must not be changed afterwards."""
        head, size = encode_head(buffers)
        self._check_size(size)
        transport = self._transport
        if transport is None or transport.is_closing() or not self.is_open:
            return False
        if not self.writable and transport.get_write_buffer_size() + size > self._config.write_bytes_max:
            return False
        if size <= _JOINED_BYTES_MAX:
            transport.write(b"".join((head, *buffers)))
        else:
            transport.writelines((head, *buffers))
        return True

    def _check_size(self, size: int) -> None:
        if not 1 <= size <= self._config.frame_bytes_max:
            raise PeersMisuse(f"frame has {size} bytes: must be 1 to {self._config.frame_bytes_max}")

    def close(self, reason: str) -> None:
        """Close the connection at once, and drop queued frames."""
        if self._closed:
            return
        self._closed = True
        self.reason = reason
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        else:
            _finish(self.lost)
        _finish(self.settled)
        self._owner.closed(self)

    # -- called by the transport --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports only implement the interface
        if self._closed:  # closed before it was connected
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._config.write_bytes_high)
        with suppress(OSError):  # a broken socket fails at the next read
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send small frames at once
        self._send_message(self._handshake.start())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the frame reader knows the size
        """Return the buffer for the next read."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received data."""
        if self._closed:
            return
        self._silence.heard = True
        try:
            for body in self._reader.received(nbytes):
                self._handle(body)
                if self._closed:
                    return
        except (FrameInvalid, HandshakeRejected) as error:
            self.close(str(error))

    def pause_writing(self) -> None:
        """Record that the write buffer is full."""
        self.writable = False

    def resume_writing(self) -> None:
        """Record that the write buffer has space again."""
        self.writable = True
        if self.is_open:
            self._owner.drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the socket is closed."""
        when = "" if self._authenticated else " during the handshake"
        self.close(f"closed by the peer{when}" if exc is None else f"connection lost{when}: {describe(exc)}")
        _finish(self.lost)

    # -----------------------------------------------------------------------------------------------------

    def _handle(self, body: memoryview) -> None:
        if not self._authenticated:
            self._send_message(self._handshake.receive(body))
            if self._handshake.done:
                self._begin()
        elif body:
            self._owner.received(self, body)

    def _send_message(self, message: bytes | None) -> None:
        if message is not None and self._transport is not None:
            head, _ = encode_head((message,))
            self._transport.write(head + message)

    def _begin(self) -> None:
        self._authenticated = True
        self._reader.frame_bytes_max = self._config.frame_bytes_max
        self._timer = self._loop.call_later(self._config.ping_s, self._tick)
        _finish(self.settled)
        self._owner.authenticated(self)

    def _tick(self) -> None:
        if self._silence.tick() is Due.CLOSE:
            self.close(f"no data received for {self._config.silence_s:g} s")
            return
        self._timer = self._loop.call_later(self._config.ping_s, self._tick)
        transport = self._transport
        if (
            transport is not None and self.writable and not transport.is_closing()
        ):  # otherwise queued frames replace the ping
            transport.write(PING)


async def establish(connection: Connection, connecting: Awaitable[object], s_max: float) -> None:
    """Run a connection until the end of its handshake. Then it is open, or closed with a reason."""
    attached = False
    try:
        async with asyncio.timeout(s_max):
            await connecting
            attached = True
            await connection.settled
    except TimeoutError:
        connection.close(f"handshake timed out after {s_max:g} s")
    except Exception as error:  # noqa: BLE001 - DNS, sockets and TLS raise many types
        connection.close(f"connect failed: {describe(error)}")
    except asyncio.CancelledError:
        connection.close("cancelled")
        raise
    finally:
        if not attached:
            _finish(connection.lost)  # the loop has closed the socket; uvloop does not always report it


def describe(error: BaseException) -> str:
    """Return the text of an error, or its type."""
    return str(error) or type(error).__name__


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
