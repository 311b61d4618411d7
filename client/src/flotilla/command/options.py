"""What commands have in common on the command line: who is asked, `--json`, `--yes`, and values as people write them.

    @click.command(cls=Command, epilog=examples("flotilla shout orders --for 5m"))
    @topic_argument
    @click.option("--for", "seconds", type=DURATION, metavar="TIME", help="for how long")
    @answers_json
    @asks_servers
    def shout(server: asking.Server, topic: str, seconds: int | None, as_json: bool) -> None:

A command that returns a number ends with it as its exit code. The client library is loaded when a command runs and not
before, so that help and completion are quick.
"""

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from flotilla.command import completing, units
from flotilla.command.flags import Flags
from flotilla.command.speaking import tell

T = TypeVar("T")
Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

_SERVERS = "Servers"
_WIDTH_MAX = 120
_WHO = (
    "Who asks is told by a token, in FLOTILLA_TOKEN or --token-file, or by the secret that all servers share, in "
    "FLOTILLA_SECRET or --secret-file. Files win over variables, and a token over a secret. --context stands for a "
    "URL, a CA and a token file that have a name (`flotilla contexts`); variables do not count then."
)


class Command(click.Command):
    """A command whose help tells the options that are about servers apart from its own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in two sections."""
        own: list[tuple[str, str]] = []
        servers: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                (servers if isinstance(parameter, _ServerOption) else own).append(record)
        with formatter.section("Options"):
            formatter.write_dl(own)
        if servers:
            with formatter.section(_SERVERS):
                formatter.write_dl(servers)
                formatter.write_paragraph()
                formatter.write_text(_WHO)


class Group(click.Group):
    """A command that has tasks, in the order in which they are declared."""

    command_class = Command

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as click.Group has them
        super().__init__(*arguments, **{"subcommand_metavar": "TASK ...", **options})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the tasks."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each task does."""
        del ctx
        with formatter.section("Tasks"):
            formatter.write_dl([(name, task.get_short_help_str(_WIDTH_MAX)) for name, task in self.commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the task; who misspelt it is told the nearest."""
        check_name(ctx, args[0], self.commands, "task")
        return super().resolve_command(ctx, args)


class _ServerOption(click.Option):
    """An option that is about servers."""


class Parsed(click.ParamType[T, Any]):
    """A value that one of our own functions reads; it raises ValueError with a text for people."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:  # noqa: ANN401 - as click has it
        """Read a text; defaults are values already."""
        if not isinstance(value, str):
            parsed: T = value
            return parsed
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = Parsed("size", units.parse_size)  # in bytes
DURATION = Parsed("time", units.parse_duration_s)  # in seconds
COUNT = Parsed("n", units.parse_count)  # above 0
FILE = click.Path(path_type=Path)


def asks_servers(function: Function) -> Function:
    """Declare where servers are and who asks; call it with `server`, an `asking.Server`."""

    @functools.wraps(function)
    def ask(*args: Any, **given: Any) -> Any:  # noqa: ANN401 - whatever the command has
        from flotilla.command import asking  # noqa: PLC0415 - it loads the client, which help does not need

        server = asking.find_server(take_flags(given), os.environ)
        if server.is_exposed:
            tell(f"others on the way to {server.url} can read what is sent; better use https://")
        return function(*args, server=server, **given)

    for option in reversed(_SERVER_OPTIONS):
        option(ask)
    return ask


def take_flags(given: dict[str, Any]) -> Flags:
    """Take out what was said about servers."""
    return Flags(**{name: given.pop(name, None) for name in Flags.__dataclass_fields__})


def answers_json(function: Function) -> Function:
    """Declare `--json`; the function is called with `as_json`."""
    text = "print the answer as JSON, for scripts"
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


def confirms(function: Function) -> Function:
    """Declare `--yes`; the function is called with `is_sure`, which `speaking.confirm` wants."""
    text = "do not ask whether one is sure (on a terminal one is asked)"
    return click.option("--yes", "is_sure", is_flag=True, help=text)(function)


def check_name(ctx: click.Context, name: str, known: Iterable[str], kind: str) -> None:
    """Check that there is a command or task; raises click.NoSuchCommand, with the nearest."""
    if name in (names := list(known)) or name.startswith("-") or ctx.resilient_parsing:
        return
    text = f"There is no {kind} '{name}'."
    for same in (one for one in names if one.lower() == name.lower()):  # which click does not find to be near
        raise click.NoSuchCommand(name, f"{text} Did you mean '{same}'?", ctx=ctx)
    raise click.NoSuchCommand(name, text, possibilities=names, ctx=ctx)


def topic_argument(function: Function) -> Function:
    """Declare the argument `topic`, which the shell completes."""
    argument = click.argument("topic", metavar="TOPIC", shell_complete=completing.topics, help="the topic's name")
    return argument(function)


def group_argument(function: Function) -> Function:
    """Declare the argument `group`, which the shell completes."""
    argument = click.argument("group", metavar="GROUP", shell_complete=completing.groups, help="the group's name")
    return argument(function)


def examples(*lines: str) -> str:
    """Make the end of a help text: lines that stay as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _server_option(*names: str, **settings: Any) -> Decorator:  # noqa: ANN401 - as click.option has them
    return click.option(*names, cls=_ServerOption, **settings)


_SERVER_OPTIONS = (
    _server_option(
        "--context",
        metavar="NAME",
        shell_complete=completing.contexts,
        help="a context of `flotilla contexts` (FLOTILLA_CONTEXT; the current one)",
    ),
    _server_option(
        "--url",
        metavar="URL",
        help="where a manager is, or several with commas (FLOTILLA_URL; http://127.0.0.1:8080)",
    ),
    _server_option(
        "--ca",
        type=FILE,
        metavar="FILE",
        help="who signs its certificate (FLOTILLA_TLS_CA; whom this machine trusts)",
    ),
    _server_option("--token-file", type=FILE, metavar="FILE", help="a file with a token (or FLOTILLA_TOKEN)"),
    _server_option(
        "--secret-file", type=FILE, metavar="FILE", help="a file with the servers' secret (or FLOTILLA_SECRET)"
    ),
)
