"""Acquires the data folder and the ports, makes the plan, and runs the supervisor."""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from flotilla.up import folder as folders
from flotilla.up import launch, ports
from flotilla.up import plan as plans
from flotilla.up.display import Display, QuickStart, wants_color
from flotilla.up.errors import FolderUnusable, OptionInvalid, ServersMissing
from flotilla.up.folder import DataFolder
from flotilla.up.options import Options
from flotilla.up.plan import Child, Programs
from flotilla.up.supervision import Severity
from flotilla.up.supervisor import Supervisor


def run(options: Options, programs: Programs = Programs()) -> None:  # noqa: B008 - it is frozen
    """Run the system until a signal; raises UpError if it cannot start."""
    _exit_on_signal()
    check_variables(os.environ)
    check_installed(programs)
    folder = folders.acquire(options.data_dir)
    try:
        folder.check_brokers(options.brokers)
        with ports.reserve(options.host, options.port) as held:
            _run_in(folder, options, held.getsockname()[1], programs)
    finally:
        folder.close()


def check_variables(environment: Mapping[str, str]) -> None:
    """Reject certificates: the servers would not use TLS."""
    given = [name for name in ("FLOTILLA_TLS_CERT", "FLOTILLA_TLS_KEY") if environment.get(name)]
    if given:
        raise OptionInvalid(
            f"{' and '.join(given)} cannot be used: `flotilla up` serves plain HTTP. Unset it, or start the servers "
            "separately"
        )


def check_installed(programs: Programs, find: Callable[[str], object] = find_spec) -> None:
    """Check that the servers are installed; raises ServersMissing."""
    missing = [name for name in (programs.broker, programs.manager) if find(name.partition(".")[0]) is None]
    if missing:
        raise ServersMissing(missing)


def _run_in(folder: DataFolder, options: Options, port: int, programs: Programs) -> None:
    began = time.monotonic()
    display = Display(sys.stdout, color=wants_color(sys.stdout, os.environ, options.no_color))
    _announce(display, options, folder)
    children = _plan(folder, options, port, programs)
    fork = sys.platform == "linux" if programs.fork is None else programs.fork
    if fork:
        launch.preload((programs.broker, programs.manager))
    life, ours = os.pipe()  # only this process holds `ours`, until it ends
    try:
        context = launch.ChildContext(folder.logs, dict(os.environ), folder.lock_fd, life)
        base = plans.api_url(options.host, port)
        quick_start = QuickStart(base, folder.secret_path if options.is_auth_on else None)

        async def supervise() -> None:
            launcher = launch.fork if fork else launch.spawn
            await Supervisor(children, launcher, context, display, quick_start=quick_start, began=began).run()

        asyncio.run(supervise())
    finally:
        os.close(life)
        os.close(ours)


def _plan(folder: DataFolder, options: Options, port: int, programs: Programs) -> list[Child]:
    try:
        inside = ports.choose(
            plans.port_names(options),
            folder.load_ports(),
            lambda found: found != port and ports.is_free(found),
            lambda: ports.INTERNAL_FIRST + secrets.randbelow(ports.INTERNAL_LAST - ports.INTERNAL_FIRST + 1),
        )
        folder.save_ports(inside)
        secret = folder.load_secret()
    except OSError as error:
        raise FolderUnusable(f"{error.filename} cannot be used: {error.strerror}") from error
    return plans.make_plan(options, folder.path, port, inside, secret, programs)


def _exit_on_signal() -> None:
    """Exit with 0 on a signal, as long as no process has been started."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by `nohup` and background jobs
            signal.signal(number, end)


def _announce(display: Display, options: Options, folder: DataFolder) -> None:
    parts = [_count(options.brokers, "broker"), "1 writer", _count(options.readers, "reader")]
    display.event(f"starting {', '.join(parts)}; data and logs in {folder.path}")
    if options.is_local:
        return
    if options.is_auth_on:
        display.event(f"warning: tokens are sent unencrypted on the network of {options.host}", Severity.ERROR)
    else:
        display.event(
            f"warning: no authentication: all clients that can reach {options.host} can use the API", Severity.ERROR
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
