"""`flotilla up`: the command line of `flotilla.up`."""

from typing import Any

import click

from flotilla.command.options import FILE, Command, examples
from flotilla.up.options import AUTHS, DURABILITIES, LOG_LEVELS, Options
from flotilla.up.plan import Programs
from flotilla.up.run import run

_DEFAULT = Options()
_EXAMPLES = examples(
    "flotilla up                                    3 brokers, 1 writer, 2 readers; API on http://127.0.0.1:8080",
    "flotilla up --port 9000 --data-dir /tmp/try    a second one beside it",
    "flotilla up --brokers 1 --durability os        small and fast, for tests of your own code",
    "flotilla up --host 0.0.0.0                     for others, too: they need tokens, and are told how to get one",
    "flotilla up --database postgresql://me@db/flotilla",
)


@click.command(cls=Command, epilog=_EXAMPLES)
@click.option(
    "--port",
    type=int,
    default=_DEFAULT.port,
    metavar="PORT",
    help=f"where the API is served; 0 takes any free port ({_DEFAULT.port})",
)
@click.option("--host", default=_DEFAULT.host, metavar="HOST", help=f"where the API is served ({_DEFAULT.host})")
@click.option(
    "--data-dir",
    type=FILE,
    default=_DEFAULT.data_dir,
    metavar="DIR",
    help=f"the folder for everything that must survive ({_DEFAULT.data_dir}/ in the current folder)",
)
@click.option(
    "--brokers", type=int, default=_DEFAULT.brokers, metavar="N", help=f"how many brokers ({_DEFAULT.brokers})"
)
@click.option(
    "--readers",
    type=int,
    default=_DEFAULT.readers,
    metavar="N",
    help=f"how many readers share the port ({_DEFAULT.readers})",
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    default=_DEFAULT.durability,
    help=f"fsync: acknowledged is on disk; os: in the page cache; memory: nowhere ({_DEFAULT.durability})",
)
@click.option(
    "--auth",
    type=click.Choice(AUTHS),
    envvar="FLOTILLA_AUTH",
    show_envvar=True,
    default=_DEFAULT.auth,
    help="on: callers need a token; off: anybody who reaches the API may do anything; auto: on unless the host is "
    f"the loopback ({_DEFAULT.auth})",
)
@click.option("--database", metavar="URL", help="where metadata is kept (SQLite in the data folder)")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default=_DEFAULT.log_level,
    help=f"of all processes ({_DEFAULT.log_level})",
)
@click.option("--no-color", is_flag=True, help="plain text, also on a terminal; so does the variable NO_COLOR")
@click.pass_obj
def up(programs: Programs | None, /, **found: Any) -> None:  # noqa: ANN401 - as Options has them
    """Start the whole system on this machine: brokers, one writer, readers.

    What dies or hangs is started again. Ctrl-C ends everything; the data stays, and the next start goes on with it.

    Any other setting of brokers and managers can be given as a variable, as in FLOTILLA_SEGMENT_BYTES=16MiB.
    """
    run(Options(**found), programs or Programs())
