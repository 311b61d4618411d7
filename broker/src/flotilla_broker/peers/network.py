"""The connections of this broker to all other brokers.

The network follows the address book: it keeps one connection to each broker in it. Frames of a connection arrive whole,
in order, and at most once. Frames in flight may be lost when a connection closes, and the sender does not learn which;
Raft handles that with its replies.

Everything runs on the event loop of `start`.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Sequence

from flotilla_broker.peers.addresses import AddressBook, check_broker_id
from flotilla_broker.peers.config import PeerConfig, PeerTls
from flotilla_broker.peers.connection import Connection
from flotilla_broker.peers.dialer import Dialer
from flotilla_broker.peers.errors import PeersMisuse
from flotilla_broker.peers.framing import Buffer
from flotilla_broker.peers.handshake import NONCE_BYTES, Accepting, Dialing, Handshake
from flotilla_broker.peers.listener import Listener
from flotilla_broker.peers.pacing import Backoff
from flotilla_broker.peers.sessions import PeerCallbacks, Sessions

_CLOSE_S_MAX = 2.0  # aborted sockets close within a few iterations of the event loop


class PeerNetwork:
    """One broker's end of all its connections.

    `secret` is shared by all brokers; with None, any peer is accepted. `start` is the token of this start.
    Callbacks run on the event loop, for each peer in the order connected, frames, disconnected. A body passed to
    `on_frame` may be kept. A callback that raises closes its connection.
    """

    def __init__(
        self,
        me: str,
        secret: bytes | None,
        book: AddressBook,
        *,
        on_connected: Callable[[str], None],
        on_disconnected: Callable[[str], None],
        on_frame: Callable[[str, memoryview], None],
        on_writable: Callable[[str], None],
        start: bytes = b"",
        config: PeerConfig | None = None,
        tls: PeerTls | None = None,
        rng: random.Random | None = None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        if secret is not None and not secret:
            raise PeersMisuse("secret must not be empty; pass None for no secret")
        self._me = check_broker_id(me)
        self._secret = secret or b""
        self._own_start = start
        self._book = book
        self._config = config or PeerConfig()
        self._tls = tls
        self._rng = rng or random.Random()  # noqa: S311 - for delays, not for secrets
        self._random_bytes = random_bytes
        callbacks = PeerCallbacks(
            on_connected=on_connected, on_disconnected=on_disconnected, on_frame=on_frame, on_writable=on_writable
        )
        self._sessions = Sessions(callbacks, self._is_known)
        self._listener: Listener | None = None
        self._dialers: dict[str, Dialer] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()  # in any state, while the socket is open
        self._running = False
        self.port = 0  # the port it listens on, after `start`

    async def start(self, host: str, port: int) -> None:
        """Listen (port 0 selects a free port), and dial; raises OSError."""
        if self._listener is not None:
            raise PeersMisuse("the network is already started")
        self._listener = Listener(self._make_accepting, config=self._config, tls=self._tls)
        self.port = await self._listener.start(host, port)
        self._running = True
        self._book.subscribe(self._follow_book)
        self._follow_book()

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        if not self._running:
            return
        self._running = False
        self._book.unsubscribe(self._follow_book)
        for dialer in self._dialers.values():
            dialer.stop("broker is shutting down")
        for connection in tuple(self._connections):
            connection.close("broker is shutting down")
        if self._listener is not None:
            await self._listener.close()
        rest = {*self._dials, *(connection.lost for connection in self._connections)}
        if rest:
            await asyncio.wait(rest, timeout=_CLOSE_S_MAX)

    @property
    def connected(self) -> set[str]:
        """The connected peers."""
        return set(self._sessions.current)

    def send(self, peer: str, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame with these buffers as body; they must not be changed afterwards. Never waits.

        Return False if it was not queued: there is no connection, or `write_bytes_max` is reached. Raises PeersMisuse
        for an empty or too large frame.
        """
        connection = self._sessions.current.get(peer)
        return connection is not None and connection.send(buffers)

    def writable(self, peer: str) -> bool:
        """Whether to send more now. If not, `on_writable` is called later."""
        connection = self._sessions.current.get(peer)
        return connection is not None and connection.writable

    def version(self, peer: str) -> int | None:
        """Return the protocol version of a connection, or None."""
        connection = self._sessions.current.get(peer)
        return None if connection is None else connection.version

    def _is_known(self, peer: str) -> bool:
        return self._running and peer != self._me and peer in self._book

    def _follow_book(self) -> None:
        """Update connections to match the book.

        It reads the current book in each step, because a callback of a disconnect may change it.
        """
        for peer in (*self._dialers, *self._sessions.current):
            if peer not in self._book:
                self._drop(peer)
        for peer in self._book:
            if self._running and self._me < peer:
                self._dial(peer)

    def _drop(self, peer: str) -> None:
        reason = "removed from the address book"
        dialer = self._dialers.pop(peer, None)
        if dialer is not None:
            dialer.stop(reason)
        connection = self._sessions.current.get(peer)
        if connection is not None:
            connection.close(reason)

    def _dial(self, peer: str) -> None:
        address = self._book.get(peer)
        if address is None:
            return
        dialer = self._dialers.get(peer)
        if dialer is not None:
            dialer.follow(address)
            return
        backoff = Backoff(self._config.backoff_s_min, self._config.backoff_s_max, self._rng.random)
        self._dialers[peer] = Dialer(
            peer,
            address,
            lambda address: self._make_connection(self._dialing(peer), address),
            config=self._config,
            tls=self._tls,
            backoff=backoff,
            tasks=self._dials,
        )

    def _dialing(self, peer: str) -> Handshake:
        return Dialing(self._me, peer, self._secret, self._random_bytes(NONCE_BYTES), own_start=self._own_start)

    def _make_accepting(self, address: str) -> Connection:
        nonce = self._random_bytes(NONCE_BYTES)
        handshake = Accepting(self._me, self._secret, nonce, self._is_known, own_start=self._own_start)
        return self._make_connection(handshake, address)

    def _make_connection(self, handshake: Handshake, address: str) -> Connection:
        connection = Connection(handshake, address, self._config, self._sessions)
        self._connections.add(connection)
        connection.lost.add_done_callback(lambda _: self._connections.discard(connection))
        return connection
