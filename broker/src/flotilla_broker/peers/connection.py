"""One connection to another broker: the handshake, then frames, until somebody closes it.

The thin shell around `handshake.py`, `framing.py` and `pacing.Silence`. It tells its owner what happens, in this
order: `authenticated` at most once, then `received` and `drained`, then `closed` exactly once. `closed` is told at
once, from within `close`; the socket follows a little later, which `lost` tells.
"""

import asyncio
import socket
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Protocol, cast

from flotilla_broker.peers.config import PeerConfig
from flotilla_broker.peers.errors import FrameRefused, HandshakeRefused, PeersMisuse
from flotilla_broker.peers.framing import PING, Buffer, FrameReader, encode_head
from flotilla_broker.peers.handshake import MESSAGE_BYTES_MAX, Handshake
from flotilla_broker.peers.pacing import Due, Silence

_JOINED_BYTES_MAX = 16 << 10  # a copy this small costs less than a vectored write, and less than a TLS record


class ConnectionOwner(Protocol):
    """Who wants to know what happens on a connection. It may close the connection from within any of these."""

    def authenticated(self, connection: "Connection") -> None:
        """Take note that the handshake is done."""

    def received(self, connection: "Connection", body: memoryview) -> None:
        """Take a frame; the body may be kept."""

    def drained(self, connection: "Connection") -> None:
        """Take note that the connection is writable again."""

    def closed(self, connection: "Connection") -> None:
        """Take note that the connection is over; `connection.reason` says why."""


class Connection(asyncio.BufferedProtocol):
    """A protocol for one asyncio transport, with or without TLS."""

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
        self.settled: asyncio.Future[None] = self._loop.create_future()  # authenticated, or closed before
        self.lost: asyncio.Future[None] = self._loop.create_future()  # the socket is gone

    @property
    def peer(self) -> str:
        """The broker at the other end; believed only once it is authenticated."""
        return self._handshake.peer

    @property
    def version(self) -> int:
        """The protocol version that both sides agreed on."""
        return self._handshake.version

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done and nobody has closed the connection."""
        return self._authenticated and not self._closed

    def send(self, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame; False if it was not queued. The buffers must not be changed any more."""
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
            raise PeersMisuse(f"a frame of {size} bytes; from 1 to {self._config.frame_bytes_max} can be sent")

    def close(self, reason: str) -> None:
        """End the connection at once, without sending what still waits."""
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
        self._transport = cast("asyncio.Transport", transport)  # uvloop's only behave like one
        if self._closed:  # somebody gave up meanwhile
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._config.write_bytes_high)
        with suppress(OSError):  # if it is broken already, the next read says so
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # an answer must not wait for more to say
        self._say(self._handshake.start())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - frames know better what is to come
        """Return where to put what arrives."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what arrived."""
        if self._closed:
            return
        self._silence.heard = True
        try:
            for body in self._reader.received(nbytes):
                self._take(body)
                if self._closed:
                    return
        except (FrameRefused, HandshakeRefused) as error:
            self.close(str(error))

    def pause_writing(self) -> None:
        """Take note that a lot is waiting to be sent."""
        self.writable = False

    def resume_writing(self) -> None:
        """Take note that little is waiting to be sent."""
        self.writable = True
        if self.is_open:
            self._owner.drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the socket is gone."""
        when = "" if self._authenticated else " during the handshake"
        self.close(f"the other side closed the connection{when}" if exc is None else f"it broke{when}: {describe(exc)}")
        _finish(self.lost)

    # -----------------------------------------------------------------------------------------------------

    def _take(self, body: memoryview) -> None:
        if not self._authenticated:
            self._say(self._handshake.receive(body))
            if self._handshake.done:
                self._begin()
        elif body:
            self._owner.received(self, body)

    def _say(self, message: bytes | None) -> None:
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
            self.close(f"nothing was heard for {self._config.silence_s} s")
            return
        self._timer = self._loop.call_later(self._config.ping_s, self._tick)
        transport = self._transport
        if transport is not None and self.writable and not transport.is_closing():  # else more than a ping waits
            transport.write(PING)


async def establish(connection: Connection, connecting: Awaitable[object], s_max: float) -> None:
    """See a connection through to the end of its handshake. Then it is open, or it is closed and has a reason."""
    attached = False
    try:
        async with asyncio.timeout(s_max):
            await connecting
            attached = True
            await connection.settled
    except TimeoutError:
        connection.close(f"no handshake within {s_max} s")
    except Exception as error:  # noqa: BLE001 - names, sockets and certificates can be wrong in many ways
        connection.close(f"it could not be set up: {describe(error)}")
    except asyncio.CancelledError:
        connection.close("this broker gave it up")
        raise
    finally:
        if not attached:
            _finish(connection.lost)  # the loop has closed the socket, and uvloop does not always say so


def describe(error: BaseException) -> str:
    """Say what an error is, even if it has no text."""
    return str(error) or type(error).__name__


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
