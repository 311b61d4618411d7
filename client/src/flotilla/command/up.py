"""`flotilla up`: the options. `flotilla.up` runs the cluster."""

from typing import Any

import click

from flotilla.command.options import FILE, Command, examples
from flotilla.up.options import AUTHS, BROKERS_MAX, DURABILITIES, LOG_LEVELS, READERS_MAX, Options
from flotilla.up.plan import Programs
from flotilla.up.run import run

_DEFAULT = Options()
_EXAMPLES = examples(
    "flotilla up                                    # 3 brokers, 1 writer, 2 readers; API on http://127.0.0.1:8080",
    "flotilla up --port 9000 --data-dir /tmp/try    # a second cluster on the same machine",
    "flotilla up --brokers 1 --durability os        # small and fast, for tests of your own code",
    "flotilla up --host 0.0.0.0                     # reachable from other machines; clients need tokens",
    "flotilla up --database postgresql://me@db/flotilla",
)


@click.command(cls=Command, epilog=_EXAMPLES)
@click.option(
    "--port",
    type=int,
    default=_DEFAULT.port,
    metavar="PORT",
    help="Port of the API; 0 chooses a free port.",
)
@click.option("--host", default=_DEFAULT.host, metavar="HOST", help="IP address to listen on, or localhost.")
@click.option(
    "--data-dir",
    type=FILE,
    default=_DEFAULT.data_dir,
    metavar="DIR",
    help="Folder for data and logs.",
)
@click.option(
    "--brokers",
    type=int,
    default=_DEFAULT.brokers,
    metavar="N",
    help=f"Number of brokers, 1 to {BROKERS_MAX}; cannot be decreased later.",
)
@click.option(
    "--readers",
    type=int,
    default=_DEFAULT.readers,
    metavar="N",
    help=f"Number of readers, which share the API port, 1 to {READERS_MAX}.",
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default=_DEFAULT.durability,
    help="Durability of an acknowledged record. fsync: on disk. os: in the page cache; after a crash or power failure "
    "of the machine, all brokers start empty, and topics are unusable. memory: in process memory; a broker that "
    "restarts starts empty.",
)
@click.option(
    "--auth",
    type=click.Choice(AUTHS),
    envvar="FLOTILLA_AUTH",
    show_envvar=True,
    default=_DEFAULT.auth,
    help="Authentication: on (clients need a token), off, or auto (on unless the host is a loopback address).",
)
@click.option("--database", metavar="URL", help="Metadata database.  [default: SQLite in the data folder]")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default=_DEFAULT.log_level,
    help="Log level of all processes.",
)
@click.option("--no-color", is_flag=True, help="Print without colors. The variable NO_COLOR does the same.")
@click.pass_obj
def up(programs: Programs | None, /, **found: Any) -> None:  # noqa: ANN401 - fields of Options
    """Start a Flotilla cluster on this machine: brokers, one writer, readers.

    A process that ends or hangs is restarted. Ctrl-C stops the cluster. The data is kept, and the next start continues
    with it, except with --durability memory.

    Set other settings of brokers and managers with environment variables, e.g. FLOTILLA_SEGMENT_BYTES=32MiB.
    """
    run(Options(**found), programs or Programs())
