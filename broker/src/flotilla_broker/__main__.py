"""`python -m flotilla_broker`: run a broker until it is told to stop."""

import asyncio
import logging
import os
import signal
import sys

import uvicorn
import uvloop

from flotilla_broker.api.app import App
from flotilla_broker.log import LogError
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings, SettingsInvalid, load_settings

logger = logging.getLogger("flotilla_broker")

_EXIT_SETTINGS = 2
_EXIT_LOG = 3


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
    except (LogError, OSError) as error:
        logger.critical("the data folder %s cannot be opened: %s", settings.data, error)
        return _EXIT_LOG
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, 0)
    await broker.start()
    server = make_server(broker)
    sock = server.config.bind_socket()
    serving = loop.create_task(server._serve([sock]))  # noqa: SLF001 - `serve` would take the signals for itself
    logger.info(
        "broker %s serves clients on %s, brokers on port %d", broker.identity.id, sock.getsockname(), broker.peers.port
    )
    await asyncio.wait((stop, serving), return_when=asyncio.FIRST_COMPLETED)
    code = stop.result() if stop.done() else 1
    if code == 0:
        await broker.hand_over_all()
    server.should_exit = True
    await serving
    await broker.close()
    return code


def make_server(broker: Broker) -> uvicorn.Server:
    """Make the HTTP server."""
    settings = broker.settings
    config = uvicorn.Config(
        App(broker),
        host=settings.host,
        port=settings.port,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        limit_concurrency=settings.connections_max,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        server_header=False,
        date_header=False,
    )
    return uvicorn.Server(config)


if __name__ == "__main__":
    sys.exit(main())
