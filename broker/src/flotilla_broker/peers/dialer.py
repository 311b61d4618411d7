"""Keeps a connection to one peer: dials, waits until it is closed, and dials again after a backoff.

The name is resolved for each dial. If the address changes, a dialer without a connection dials the new address at once;
an open connection is kept.
"""

import asyncio
import logging
from collections.abc import Callable

from flotilla_broker.peers.addresses import Address
from flotilla_broker.peers.config import PeerConfig, PeerTls
from flotilla_broker.peers.connection import Connection, establish
from flotilla_broker.peers.pacing import Backoff

_logger = logging.getLogger("flotilla_broker.peers")


class Dialer:
    """Dials one peer until it is stopped."""

    def __init__(
        self,
        peer: str,
        address: Address,
        make_connection: Callable[[str], Connection],
        *,
        config: PeerConfig,
        tls: PeerTls | None,
        backoff: Backoff,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._peer = peer
        self._address = address
        self._make_connection = make_connection
        self._config = config
        self._tls = tls
        self._backoff = backoff
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._logged = ""  # the last failure
        self._tasks = tasks  # of all dialers: a cancelled task may still have to close a socket
        self._task = self._start()

    def follow(self, address: Address) -> None:
        """Use this address from now on; an open connection is kept."""
        if address == self._address:
            return
        self._address = address
        if self._connection is None or not self._connection.is_open:
            self.stop(f"address changed to {address}")
            self._backoff.reset()
            self._task = self._start()

    def stop(self, reason: str) -> None:
        """Close the connection, and stop dialing."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close(reason)

    def _start(self) -> asyncio.Task[None]:
        task = self._loop.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self) -> None:
        while True:
            connection = self._connection = self._make_connection(str(self._address))
            await self._dial(connection)
            await asyncio.sleep(self._backoff.next_s())

    async def _dial(self, connection: Connection) -> None:
        """Dial once, and return when the connection is closed."""
        await establish(connection, self._connect(connection), self._config.handshake_s)
        if not connection.is_open:
            self._note_failure(connection)
            return
        self._logged = ""
        since = self._loop.time()
        await asyncio.wait({connection.lost})  # wait, not await: a cancelled task would cancel the future
        if self._loop.time() - since >= self._config.settled_s:
            self._backoff.reset()

    async def _connect(self, connection: Connection) -> None:
        ssl = self._tls.client if self._tls else None
        handshake_s = self._config.handshake_s if ssl else None
        host, port = self._address
        await self._loop.create_connection(lambda: connection, host, port, ssl=ssl, ssl_handshake_timeout=handshake_s)

    def _note_failure(self, connection: Connection) -> None:
        """Log a failure; repetitions at debug level."""
        failure = f"address={connection.address} error={connection.reason!r}"
        level = logging.DEBUG if failure == self._logged else logging.WARNING
        self._logged = failure
        _logger.log(level, "cannot connect to peer peer=%s %s", self._peer, failure)
