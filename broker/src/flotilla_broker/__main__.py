"""`python -m flotilla_broker`: run a broker until SIGTERM or SIGINT."""

import asyncio
import logging
import os
import sys

import uvloop

from flotilla_broker.api.app import make_app
from flotilla_broker.engine import ReplicaMetaInvalid
from flotilla_broker.heartbeats import HeartbeatSender
from flotilla_broker.identity import IdentityInvalid
from flotilla_broker.log import LogError
from flotilla_broker.peer_names import show_names
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings, load_settings
from flotilla_server import logs, open_files
from flotilla_server.server import EXIT_PORT, EXIT_SETTINGS, Stop, listen, make_server, run
from flotilla_server.settings import SettingsInvalid
from flotilla_server.tls import Tls

logger = logging.getLogger("flotilla_broker")

_EXIT_LOG = 3


def main() -> int:
    """Read the settings, and run a broker; return the exit code."""
    try:
        settings = load_settings(sys.argv[1:], os.environ)
        tls = Tls(settings)
        logs.set_up(settings.log_level, settings.name or "broker")
        open_files.raise_limit(required=settings.files_required, wanted=settings.files_wanted)
    except SettingsInvalid as error:
        print(f"flotilla_broker: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    return uvloop.run(serve(settings, tls))


async def serve(settings: Settings, tls: Tls) -> int:
    """Run a broker until a signal, or until its log fails; return the exit code."""
    stop = Stop()
    try:
        broker = Broker.open(settings, on_failure=lambda _: stop(_EXIT_LOG))
    except (LogError, IdentityInvalid, OSError) as error:
        logger.critical("cannot open data folder path=%s error=%r", str(settings.data), str(error))
        return _EXIT_LOG
    show_names(broker.identity)
    stop.on_signals()
    try:
        sock = listen(settings.host, settings.port)
        await broker.start(sock.getsockname()[1])
    except ReplicaMetaInvalid as error:
        logger.critical("cannot start replicas path=%s error=%r", str(settings.data), str(error))
        await broker.close()
        return _EXIT_LOG
    except OSError as error:
        logger.critical("cannot listen error=%r", str(error))
        await broker.close()
        return EXIT_PORT
    logger.info(
        "broker started id=%s listen=%s:%d peer_port=%d",
        broker.identity.id,
        *sock.getsockname()[:2],
        broker.peers.port,
    )
    server = make_server(make_app(broker), connections_max=settings.connections_max, tls=tls.server)

    async def before_close(code: int) -> None:
        if code == 0:
            await broker.transfer_all_leaderships()
        broker.stop_serving()

    heartbeats = asyncio.create_task(HeartbeatSender.of(broker, tls.client).run()) if settings.managers else None
    code = await run(server, [sock], stop, before_close, tls)
    if heartbeats is not None:
        heartbeats.cancel()
    await broker.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
