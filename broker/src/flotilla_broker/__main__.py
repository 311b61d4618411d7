"""`python -m flotilla_broker`: run a broker until it is told to stop."""

import asyncio
import logging
import os
import sys

import uvloop

from flotilla.serving import logs
from flotilla.serving.server import EXIT_PORT, EXIT_SETTINGS, Stop, listen, make_server, run
from flotilla.serving.settings import SettingsInvalid
from flotilla.serving.tls import Tls
from flotilla_broker.api.app import make_app
from flotilla_broker.identity import IdentityUnreadable
from flotilla_broker.log import LogError
from flotilla_broker.registration import Registration
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings, load_settings

logger = logging.getLogger("flotilla_broker")

_EXIT_LOG = 3


def main() -> int:
    """Read the settings, and run."""
    try:
        settings = load_settings(sys.argv[1:], os.environ)
        tls = Tls(settings)
        logs.set_up(settings.log_level, "broker")
    except SettingsInvalid as error:
        print(f"flotilla_broker: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    return uvloop.run(serve(settings, tls))


async def serve(settings: Settings, tls: Tls) -> int:
    """Run a broker until a signal comes, or until its log fails."""
    stop = Stop()
    try:
        broker = Broker.open(settings, on_failure=lambda _: stop(_EXIT_LOG))
    except (LogError, IdentityUnreadable, OSError) as error:
        logger.critical("the data folder %s cannot be opened: %s", settings.data, error)
        return _EXIT_LOG
    stop.on_signals()
    try:
        sock = listen(settings.host, settings.port)
        await broker.start(sock.getsockname()[1])
    except OSError as error:
        logger.critical("a port cannot be served: %s", error)
        await broker.close()
        return EXIT_PORT
    logger.info(
        "broker %s serves clients on %s, brokers on port %d", broker.identity.id, sock.getsockname(), broker.peers.port
    )
    server = make_server(make_app(broker), connections_max=settings.connections_max, tls=tls.server)

    async def leave(code: int) -> None:
        if code == 0:
            await broker.hand_over_all()
        broker.stop_serving()

    registering = asyncio.create_task(Registration.of(broker, tls.client).run()) if settings.managers else None
    code = await run(server, [sock], stop, leave, tls)
    if registering is not None:
        registering.cancel()
    await broker.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
