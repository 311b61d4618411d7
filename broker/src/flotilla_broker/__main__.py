"""`python -m flotilla_broker`: run a broker until it is told to stop."""

import asyncio
import logging
import os
import signal
import socket
import sys
from functools import partial

import uvicorn
import uvloop

from flotilla_broker.api.app import App
from flotilla_broker.api.protocol import REFUSED_CONNECTIONS_MAX, LimitedProtocol
from flotilla_broker.identity import IdentityUnreadable
from flotilla_broker.log import LogError
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings, SettingsInvalid, load_settings

logger = logging.getLogger("flotilla_broker")

_EXIT_SETTINGS = 2
_EXIT_LOG = 3
_EXIT_PORT = 4
_BACKLOG = 2048


def main() -> int:
    """Read the settings, and run."""
    try:
        settings = load_settings(sys.argv[1:], os.environ)
    except SettingsInvalid as error:
        print(f"flotilla_broker: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return _EXIT_SETTINGS
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    return uvloop.run(serve(settings))


async def serve(settings: Settings) -> int:
    """Run a broker until a signal comes, or until its log fails."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not stop.done():
            stop.set_result(code)

    try:
        broker = Broker.open(settings, on_failure=lambda _: end(_EXIT_LOG))
    except (LogError, IdentityUnreadable, OSError) as error:
        logger.critical("the data folder %s cannot be opened: %s", settings.data, error)
        return _EXIT_LOG
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, 0)
    try:
        sock = listen(settings)
        await broker.start()
    except OSError as error:
        logger.critical("a port cannot be served: %s", error)
        await broker.close()
        return _EXIT_PORT
    server = make_server(broker)
    serving = loop.create_task(server._serve([sock]))  # noqa: SLF001 - `serve` would take the signals for itself
    logger.info(
        "broker %s serves clients on %s, brokers on port %d", broker.identity.id, sock.getsockname(), broker.peers.port
    )
    await asyncio.wait((stop, serving), return_when=asyncio.FIRST_COMPLETED)
    code = stop.result() if stop.done() else 1
    if code == 0:
        await broker.hand_over_all()
    broker.stop_serving()
    server.should_exit = True
    await serving
    await broker.close()
    return code


def listen(settings: Settings) -> socket.socket:
    """Bind the port for clients."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)


def make_server(broker: Broker) -> uvicorn.Server:
    """Make the HTTP server."""
    settings = broker.settings
    app = App(broker)
    config = uvicorn.Config(
        app,
        http=partial(LimitedProtocol, connections_max=settings.connections_max + REFUSED_CONNECTIONS_MAX),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        server_header=False,
        date_header=False,
    )
    server = uvicorn.Server(config)
    app.count_connections = lambda: len(server.server_state.connections)
    return server


if __name__ == "__main__":
    sys.exit(main())
