"""Reads the command line and hands over to what it names."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec

from flotilla.command import brokers, groups, tokens, topics
from flotilla.command.errors import CommandError
from flotilla.up import options as up_options
from flotilla.up.errors import ServersMissing, UpError
from flotilla.up.plan import Programs
from flotilla.up.run import run as run_up

_EXIT_INTERRUPTED = 130
_EXIT_UNREAD = 141  # as a shell says of a program that a closed pipe ended
_REBUILD = ("admin", "rebuild-metadata")
_REBUILD_MODULE = "flotilla_manager.rebuild"


def main(arguments: Sequence[str] | None = None, programs: Programs = Programs()) -> int:  # noqa: B008 - it is frozen
    """Run the command; return its exit code. `programs` are the servers that `up` starts."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if tuple(given[:2]) == _REBUILD:
            return hand_over(_REBUILD_MODULE, given[2:])
        found = make_parser(programs).parse_args(given)
        action: Callable[[argparse.Namespace], int] = found.action
        code = action(found)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, as in `flotilla topics list | head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_UNREAD
    except (UpError, CommandError) as error:
        print(f"flotilla {' '.join(given[:1])}: {error}", file=sys.stderr)  # noqa: T201 - a command speaks
        return error.exit_code
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    return code


def make_parser(programs: Programs = Programs()) -> argparse.ArgumentParser:  # noqa: B008 - it is frozen
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="flotilla",
        description="Flotilla, a partitioned, replicated log queue.",
        epilog="`flotilla COMMAND --help` says more.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"flotilla {version('flotilla')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_up(commands, programs)
    for command in (topics, groups, brokers, tokens):
        command.add_command(commands)
    _add_admin(commands)
    return parser


def _add_up(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", programs: Programs) -> None:
    up = commands.add_parser(
        "up",
        help="start the whole system on this machine",
        description=up_options.DESCRIPTION,
        epilog=up_options.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    up_options.add_arguments(up)
    up.set_defaults(action=partial(_up, programs))


def _up(programs: Programs, found: argparse.Namespace) -> int:
    run_up(up_options.from_arguments(found), programs)
    return 0


def _add_admin(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    admin = commands.add_parser("admin", help="for emergencies", allow_abbrev=False)
    tasks = admin.add_subparsers(title="tasks", metavar="TASK", required=True)
    # Only for the help: its arguments belong to another program, which reads them itself.
    tasks.add_parser("rebuild-metadata", help="make the metadata anew from what the brokers hold", add_help=False)


def hand_over(
    module: str,
    arguments: Sequence[str],
    find: Callable[[str], object] = find_spec,
    execute: Callable[[str, list[str]], object] = os.execv,
) -> int:
    """Become a module of the servers; raises ServersMissing if they are not installed."""
    package = module.partition(".")[0]
    if find(package) is None:
        raise ServersMissing([package])
    sys.stdout.flush()
    execute(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
    return 0
