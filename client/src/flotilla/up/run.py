"""Takes the data folder and the ports, makes the plan, and runs it."""

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
from flotilla.up.display import Display, ToTry, wants_color
from flotilla.up.errors import FolderUnusable, OptionInvalid, ServersMissing
from flotilla.up.folder import DataFolder
from flotilla.up.options import Options
from flotilla.up.plan import Child, Programs
from flotilla.up.shell import Supervisor
from flotilla.up.supervision import Tone


def run(options: Options, programs: Programs = Programs()) -> None:  # noqa: B008 - it is frozen
    """Run the whole system until a signal comes; raises UpError if it cannot be started."""
    _stop_early()
    check_variables(os.environ)
    check_installed(programs)
    folder = folders.take(options.data_dir)
    try:
        folder.check_brokers(options.brokers)
        with ports.hold(options.host, options.port) as held:
            _run_in(folder, options, held.getsockname()[1], programs)
    finally:
        folder.close()


def check_variables(environment: Mapping[str, str]) -> None:
    """Refuse certificates for servers: nobody should believe that there is TLS where there is none."""
    given = [name for name in ("FLOTILLA_TLS_CERT", "FLOTILLA_TLS_KEY") if environment.get(name)]
    if given:
        raise OptionInvalid(
            f"{' and '.join(given)} cannot be used here: what `flotilla up` starts speaks plain HTTP. Leave it out, or "
            "start servers one by one"
        )


def check_installed(programs: Programs, find: Callable[[str], object] = find_spec) -> None:
    """Check that there are servers to run; raises ServersMissing."""
    missing = [name for name in (programs.broker, programs.manager) if find(name.partition(".")[0]) is None]
    if missing:
        raise ServersMissing(missing)


def _run_in(folder: DataFolder, options: Options, port: int, programs: Programs) -> None:
    began = time.monotonic()
    display = Display(sys.stdout, color=wants_color(sys.stdout, os.environ, options.no_color))
    _greet(display, options, folder)
    children = _plan(folder, options, port, programs)
    fork = sys.platform == "linux" if programs.fork is None else programs.fork
    if fork:
        launch.preload((programs.broker, programs.manager))
    life, ours = os.pipe()  # `ours` is open in this process alone, and for as long as it lives
    try:
        around = launch.Surroundings(folder.logs, dict(os.environ), folder.lock_fd, life)
        base = plans.api_url(options.host, port)
        to_try = ToTry(base, folder.secret_path if options.is_auth_on else None)

        async def supervise() -> None:
            launcher = launch.fork if fork else launch.execute
            await Supervisor(children, launcher, around, display, to_try=to_try, began=began).run()

        asyncio.run(supervise())
    finally:
        os.close(life)
        os.close(ours)


def _plan(folder: DataFolder, options: Options, port: int, programs: Programs) -> list[Child]:
    try:
        inside = ports.choose(
            plans.wanted_ports(options),
            folder.load_ports(),
            lambda found: found != port and ports.is_free(found),
            lambda: ports.INSIDE_FIRST + secrets.randbelow(ports.INSIDE_LAST - ports.INSIDE_FIRST + 1),
        )
        folder.save_ports(inside)
        secret = folder.load_secret()
    except OSError as error:
        raise FolderUnusable(f"{error.filename} cannot be used: {error.strerror}") from error
    return plans.make_plan(options, folder.path, port, inside, secret, programs)


def _stop_early() -> None:
    """Let a signal end this process with 0 while nothing is there yet that would have to be ended."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` and background jobs ignore some on purpose
            signal.signal(number, end)


def _greet(display: Display, options: Options, folder: DataFolder) -> None:
    parts = [_count(options.brokers, "broker"), "1 writer", _count(options.readers, "reader")]
    display.event(f"starting {', '.join(parts)}; data and logs are in {folder.path}")
    if options.is_local:
        return
    if options.is_auth_on:
        display.event(f"callers need tokens; whoever can read the network of {options.host} can read them", Tone.BAD)
    else:
        display.event(f"everybody who reaches {options.host} can use the API: it asks for no credentials", Tone.BAD)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
