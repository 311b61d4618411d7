"""`python -m flotilla_manager`: run a manager until a signal stops it."""

import logging
import os
import sys

import uvloop

from flotilla_manager.api.app import make_app
from flotilla_manager.manager import Manager
from flotilla_manager.metadata import InvalidDatabaseUrl, open_store
from flotilla_manager.settings import Settings, load_settings
from flotilla_server import logs, open_files
from flotilla_server.server import EXIT_PORT, EXIT_SETTINGS, Stop, listen, make_server, run
from flotilla_server.settings import SettingsInvalid
from flotilla_server.tls import Tls

logger = logging.getLogger("flotilla_manager")


def main() -> int:
    """Load the settings and run a manager."""
    try:
        settings = load_settings(sys.argv[1:], os.environ)
        tls = Tls(settings)
        logs.set_up(settings.log_level, settings.name or settings.role)
        open_files.raise_limit(required=settings.files_required, wanted=settings.files_wanted)
    except SettingsInvalid as error:
        print(f"flotilla_manager: {error}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        return EXIT_SETTINGS
    return uvloop.run(serve(settings, tls))


async def serve(settings: Settings, tls: Tls) -> int:
    """Run a manager until a signal stops it."""
    stop = Stop()
    stop.on_signals()
    try:
        sock = listen(settings.host, settings.port, reuse_port=settings.reuse_port)
        others = [] if settings.own_port is None else [listen("127.0.0.1", settings.own_port)]
        others += [] if settings.public_port is None else [listen(settings.host, settings.public_port)]
    except OSError as error:
        ports = [port for port in (settings.port, settings.own_port, settings.public_port) if port is not None]
        logger.critical("cannot listen host=%s ports=%s error=%r", settings.host, ports, str(error))
        return EXIT_PORT
    settings = settings.at_port(sock.getsockname()[1])
    try:
        manager = Manager(settings, open_store(settings.database), stop, tls=tls.client)
    except InvalidDatabaseUrl as error:
        logger.critical("invalid setting database: %s", error)
        return EXIT_SETTINGS
    server = make_server(make_app(manager), connections_max=settings.connections_max, tls=tls.server)
    manager.start()
    host, port = sock.getsockname()[:2]
    logger.info("manager started role=%s name=%s host=%s port=%d", settings.role, settings.name, host, port)

    async def leave(_: int) -> None:
        manager.end_tail_streams()

    code = await run(server, [sock, *others], stop, leave, tls)
    await manager.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
