"""Reads the command line and hands over to what it names.

Commands are loaded when they are named and not before: `flotilla --help` and completion need a table alone.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.shell_completion import CompletionItem, shell_complete

from flotilla import __version__
from flotilla.command.errors import CommandError
from flotilla.command.options import check_name
from flotilla.up.errors import UpError

if TYPE_CHECKING:
    from flotilla.up.plan import Programs

NAME = "flotilla"
COMPLETE = "_FLOTILLA_COMPLETE"  # in the environment: a shell wants to know how a line could go on
_WIDTH_MAX = 120
_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130
_EXIT_UNREAD = 141  # as a shell says of a program that a closed pipe ended


class Entry(NamedTuple):
    """A command: where it is, as `module:name`, and what it is for."""

    home: str
    text: str


COMMANDS = {
    "up": Entry("flotilla.command.up:up", "start the whole system on this machine"),
    "topics": Entry("flotilla.command.topics:topics", "what records are kept in"),
    "produce": Entry("flotilla.command.produce:produce", "send lines of files or of standard input"),
    "consume": Entry("flotilla.command.consume:consume", "print records, and wait for more"),
    "groups": Entry("flotilla.command.groups:groups", "who reads together, and how far they are"),
    "brokers": Entry("flotilla.command.brokers:brokers", "who holds the records"),
    "tokens": Entry("flotilla.command.tokens:tokens", "who may call: make, list and revoke tokens"),
    "bench": Entry("flotilla.command.bench:bench", "measure how fast it is"),
    "experiment": Entry("flotilla.command.experiment:experiment", "producers and consumers that are checked"),
    "contexts": Entry("flotilla.command.contexts:contexts", "systems that have a name, for --context"),
    "completion": Entry("flotilla.command.completion:completion", "have a shell complete commands and names"),
    "admin": Entry("flotilla.command.admin:admin", "for emergencies"),
}


class Commands(click.Group):
    """All commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands, the most used first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].home.partition(":")
        found = getattr(import_module(module), name)
        if not isinstance(found, click.Command):
            raise TypeError(f"{module}:{name} is no command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find what is named; who misspelt it is told the nearest."""
        check_name(ctx, args[0], COMMANDS, "command")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each is for."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.text) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Name the commands that begin so."""
        fitting = [CompletionItem(name, help=entry.text) for name, entry in COMMANDS.items()]
        return [item for item in fitting if item.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )


@click.command(
    NAME,
    cls=Commands,
    subcommand_metavar="COMMAND ...",
    epilog="`flotilla COMMAND --help` says more.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH_MAX},
)
@click.version_option(__version__, message="flotilla %(version)s", help="Show the version.")
def flotilla() -> None:
    """Flotilla, a partitioned, replicated log queue."""


def main(arguments: Sequence[str] | None = None, programs: "Programs | None" = None) -> int:
    """Run the command; return its exit code. `programs` are the servers that `up` starts, if others than usual."""
    _fill_gaps()
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = " ".join([NAME, *(one for one in given[:1] if one in COMMANDS)])
    try:
        code = _run(given, programs)
        if sys.stdout is not None:  # as it is for those who closed it
            sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, as in `flotilla topics list | head`, has enough
        _print_no_more()
        return _EXIT_UNREAD
    except OSError as error:  # as where the disk is full that its output goes to
        _print_no_more()
        _tell(f"{name}: {error.filename or 'cannot go on'}: {error.strerror or error}")
        return _EXIT_FAILED
    except click.ClickException as error:
        _tell(_explain(error, name))
        return error.exit_code
    except (UpError, CommandError) as error:
        _tell(f"{name}: {error}")
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _EXIT_INTERRUPTED
    return code


def _run(given: list[str], programs: "Programs | None") -> int:
    """Do what is said, or complete what a shell has so far."""
    if COMPLETE in os.environ:
        import_module("flotilla.command.completion")  # it knows how bash is spoken to
        return shell_complete(flotilla, {}, NAME, COMPLETE, os.environ[COMPLETE])
    try:
        with flotilla.make_context(NAME, given, obj=programs) as context:
            return int(flotilla.invoke(context) or 0)
    except click.exceptions.Exit as end:  # the help was shown, or the version
        return end.exit_code


def _explain(error: click.ClickException, name: str) -> str:
    """Say what is not understood, how it would be, and where to read more."""
    text = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return text
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return f"{name}: {text}"
    return f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n\n{name}: {text}"


def _fill_gaps() -> None:
    """Have something stand where a standard stream was closed, as by `2>&-`.

    What is opened next would get its number: a socket would be taken for standard input, and libuv ends a process that
    closes one. What is read there fails, and what is said there goes nowhere.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY)  # it gets the lowest number that is free
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the end


def _print_no_more() -> None:
    """Drop what was not printed yet: Python would try once more at its end, and complain."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - a command speaks
