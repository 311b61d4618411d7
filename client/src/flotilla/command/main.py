"""Entry point of the command `flotilla`: parses the command line and runs a command.

Commands are imported lazily: `flotilla --help` and completion only need the table of commands.
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
from flotilla.command.options import HelpContext, check_name
from flotilla.streams import discard_buffered
from flotilla.up.errors import UpError

if TYPE_CHECKING:
    from flotilla.up.plan import Programs

NAME = "flotilla"
COMPLETE = "_FLOTILLA_COMPLETE"  # environment variable that a shell sets to request completions
_WIDTH_MAX = 120
_EXIT_FAILED = 1
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class CommandEntry(NamedTuple):
    """A command: its location, as `module:name`, and its short help."""

    target: str
    help: str


COMMANDS = {
    "up": CommandEntry("flotilla.command.up:up", "Start a Flotilla cluster on this machine."),
    "topics": CommandEntry(
        "flotilla.command.topics:topics", "Manage topics: create, list, describe, configure, grow, delete."
    ),
    "produce": CommandEntry("flotilla.command.produce:produce", "Send lines of files or standard input as records."),
    "consume": CommandEntry("flotilla.command.consume:consume", "Print records to standard output."),
    "groups": CommandEntry(
        "flotilla.command.groups:groups", "Manage consumer groups: list, describe, reset offsets, delete."
    ),
    "brokers": CommandEntry("flotilla.command.brokers:brokers", "List and describe brokers."),
    "tokens": CommandEntry("flotilla.command.tokens:tokens", "Manage access tokens: create, list, revoke."),
    "bench": CommandEntry("flotilla.command.bench:bench", "Measure throughput and latency."),
    "experiment": CommandEntry(
        "flotilla.command.experiment:experiment", "Run producers and consumers, and check what was received."
    ),
    "contexts": CommandEntry("flotilla.command.contexts:contexts", "Manage named connections for --context."),
    "completion": CommandEntry("flotilla.command.completion:completion", "Print a shell completion script."),
    "admin": CommandEntry("flotilla.command.admin:admin", "Recover from lost metadata."),
}


class Commands(click.Group):
    """The top-level group, with lazily imported commands."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands, the most used first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].target.partition(":")
        found = getattr(import_module(module), name)
        if not isinstance(found, click.Command):
            raise TypeError(f"{module}:{name} is not a command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the closest one if the name is misspelt."""
        check_name(ctx, args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the short help of each command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """List the commands that start with the incomplete word."""
        fitting = [CompletionItem(name, help=entry.help) for name, entry in COMMANDS.items()]
        return [item for item in fitting if item.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )


@click.command(
    NAME,
    cls=Commands,
    subcommand_metavar="COMMAND ...",
    epilog="Run `flotilla COMMAND --help` for options and examples.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDTH_MAX, "show_default": True},
)
@click.version_option(__version__, message="flotilla %(version)s", help="Show the version and exit.")
def flotilla() -> None:
    """Use and administer Flotilla, a partitioned, replicated message log (like Kafka)."""


def main(arguments: Sequence[str] | None = None, programs: "Programs | None" = None) -> int:
    """Run the command; return its exit code. `programs` replaces the servers that `up` starts, for tests."""
    _replace_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = " ".join([NAME, *(one for one in given[:1] if one in COMMANDS)])
    try:
        code = _run(given, programs)
        if sys.stdout is not None:  # None if standard output is closed
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `flotilla topics list | head`
        _discard_output()
        return _EXIT_BROKEN_PIPE
    except OSError as error:  # for example: no space left for the output
        _discard_output()
        _print_error(f"{name}: {error.filename or 'I/O error'}: {error.strerror or error}")
        return _EXIT_FAILED
    except click.ClickException as error:
        _print_error(_format_error(error, name))
        return error.exit_code
    except (UpError, CommandError) as error:
        _print_error(f"{name}: {error}")
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _EXIT_INTERRUPTED
    return code


def _run(given: list[str], programs: "Programs | None") -> int:
    """Run a command, or print completions for a shell."""
    if COMPLETE in os.environ:
        import_module("flotilla.command.completion")  # registers the completion of bash
        return shell_complete(flotilla, {}, NAME, COMPLETE, os.environ[COMPLETE])
    try:
        with flotilla.make_context(NAME, given, obj=programs) as context:
            return int(flotilla.invoke(context) or 0)
    except click.exceptions.Exit as end:  # after --help or --version
        return end.exit_code


def _format_error(error: click.ClickException, name: str) -> str:
    """Format a usage error: usage, pointer to the help, and the error."""
    text = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return text
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return f"{name}: {text}"
    return f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n\n{name}: {text}"


def _replace_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as by `2>&-`.

    Otherwise the next file or socket would get its descriptor: a socket would be used as standard input, and libuv
    aborts a process that closes one. Reads from the replacement fail, and writes are discarded.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY)  # returns the lowest free descriptor
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process ends


def _discard_output() -> None:
    if sys.stdout is not None:
        discard_buffered(sys.stdout)


def _print_error(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - output of a command
