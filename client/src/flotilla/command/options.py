"""Shared options of commands: the connection, `--json`, `--yes`, and types for sizes, durations and counts.

    @click.command(cls=Command, epilog=examples("flotilla shout orders --for 5m"))
    @topic_argument
    @click.option("--for", "seconds", type=DURATION, metavar="TIME", help="Duration.")
    @json_option
    @connection_options
    def shout(server: connection.ConnectionTarget, topic: str, seconds: int | None, as_json: bool) -> None:

An integer that a command returns is the exit code. The client library is imported when a command runs, so that help and
completion are fast.
"""

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from flotilla import units
from flotilla.command import completers
from flotilla.command.flags import ConnectionFlags
from flotilla.command.output import print_message

T = TypeVar("T")
Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

_CONNECTION = "Connection"
_WIDTH_MAX = 120
_NON_BREAKING_HYPHEN = "\u2011"
_AUTHENTICATION = (
    "Authenticate with a token (FLOTILLA_TOKEN or --token-file) or with the secret that all servers share "
    "(FLOTILLA_SECRET or --secret-file). Options take precedence over variables, and tokens over secrets. "
    "--context ignores all FLOTILLA_* connection variables. Without --context, --url or FLOTILLA_URL ignores the "
    "current context, including its token and CA. See `flotilla contexts --help`."
)


class HelpFormatter(click.HelpFormatter):
    """Formats help texts without line breaks at hyphens, which would split `--key-optional`."""

    def write(self, string: str) -> None:
        """Write text, with ordinary hyphens."""
        super().write(string.replace(_NON_BREAKING_HYPHEN, "-"))

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_keep_hyphens(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of names and their help."""
        super().write_dl([(name, _keep_hyphens(text)) for name, text in rows], col_max, col_spacing)


class HelpContext(click.Context):
    """The context of a command whose help has its own format."""

    formatter_class = HelpFormatter


class Command(click.Command):
    """A command whose help shows the connection options in a section of their own."""

    context_class = HelpContext

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in two sections."""
        own: list[tuple[str, str]] = []
        servers: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                name, text = record
                # click calls the value of a range x; its metavar is N.
                one = name, text.replace("x>=0", "N >= 0")
                (servers if isinstance(parameter, _ConnectionOption) else own).append(one)
        with formatter.section("Options"):
            formatter.write_dl(own)
        if servers:
            with formatter.section(_CONNECTION):
                formatter.write_dl(servers)
                formatter.write_paragraph()
                formatter.write_text(_AUTHENTICATION)


class Group(click.Group):
    """A group of commands, listed in the order of their declaration."""

    command_class = Command
    context_class = HelpContext

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as click.Group has them
        super().__init__(*arguments, **{"subcommand_metavar": "COMMAND ...", **options})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the short help of each command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, task.get_short_help_str(_WIDTH_MAX)) for name, task in self.commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the closest one if the name is misspelt."""
        check_name(ctx, args[0], self.commands)
        return super().resolve_command(ctx, args)


class _ConnectionOption(click.Option):
    """An option of the connection."""


class ParsedType(click.ParamType[T, Any]):
    """A parameter type from a parser function, which raises ValueError with the message to show."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:  # noqa: ANN401 - as click has it
        """Parse a string; other values are returned unchanged."""
        if not isinstance(value, str):
            parsed: T = value
            return parsed
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = ParsedType("size", units.parse_size)  # in bytes
DURATION = ParsedType("time", units.parse_duration_s)  # in seconds
COUNT = ParsedType("n", units.parse_count)  # at least 1
FILE = click.Path(path_type=Path)


def connection_options(function: Function) -> Function:
    """Add the connection options; the function is called with `server`, a `connection.ConnectionTarget`."""

    @functools.wraps(function)
    def call_with_connection(*args: Any, **given: Any) -> Any:  # noqa: ANN401 - parameters of the command
        from flotilla.command import connection  # noqa: PLC0415 - imports the client, which help does not need

        server = connection.resolve_server(pop_flags(given), os.environ)
        if server.is_token_exposed:
            print_message(f"warning: the token is sent unencrypted to {server.url}; use https://")
        return function(*args, server=server, **given)

    for option in reversed(_CONNECTION_OPTIONS):
        option(call_with_connection)
    return call_with_connection


def pop_flags(given: dict[str, Any]) -> ConnectionFlags:
    """Remove the connection options from the parameters, and return them."""
    return ConnectionFlags(**{name: given.pop(name, None) for name in ConnectionFlags.__dataclass_fields__})


def json_option(function: Function) -> Function:
    """Add `--json`; the function is called with `as_json`."""
    text = "Print the result as JSON."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


def yes_option(function: Function) -> Function:
    """Add `--yes`; the function is called with `yes`, for `output.confirm`."""
    text = "Do not ask for confirmation. If standard input is not a terminal, the command proceeds without asking."
    return click.option("--yes", "yes", is_flag=True, help=text)(function)


def check_name(ctx: click.Context, name: str, known: Iterable[str]) -> None:
    """Check that a command exists; raises click.NoSuchCommand, which suggests the closest name."""
    if name in (names := list(known)) or name.startswith("-") or ctx.resilient_parsing:
        return
    text = f"No such command '{name}'."
    for same in (
        one for one in names if one.lower() == name.lower()
    ):  # click does not suggest names that differ in case only
        raise click.NoSuchCommand(name, f"{text} Did you mean '{same}'?", ctx=ctx)
    raise click.NoSuchCommand(name, text, possibilities=names, ctx=ctx)


def topic_argument(function: Function) -> Function:
    """Add the argument `topic`, with completion."""
    argument = click.argument("topic", metavar="TOPIC", shell_complete=completers.topics, help="Name of the topic.")
    return argument(function)


def group_argument(function: Function) -> Function:
    """Add the argument `group`, with completion."""
    argument = click.argument(
        "group", metavar="GROUP", shell_complete=completers.groups, help="Name of the consumer group."
    )
    return argument(function)


def examples(*lines: str) -> str:
    """Format the examples at the end of a help text; their lines are not wrapped."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _keep_hyphens(text: str) -> str:
    return text.replace("-", _NON_BREAKING_HYPHEN)


def _connection_option(*names: str, **settings: Any) -> Decorator:  # noqa: ANN401 - as click.option has them
    return click.option(*names, cls=_ConnectionOption, **settings)


_CONNECTION_OPTIONS = (
    _connection_option(
        "--context",
        metavar="NAME",
        shell_complete=completers.contexts,
        help="Named connection; see `flotilla contexts`.  [env var: FLOTILLA_CONTEXT; default: the current context]",
    ),
    _connection_option(
        "--url",
        metavar="URL",
        help="Base URL of a manager; separate several with commas.  "
        "[env var: FLOTILLA_URL; default: URL of the context, or http://127.0.0.1:8080]",
    ),
    _connection_option(
        "--ca",
        type=FILE,
        metavar="FILE",
        help="CA bundle to verify server certificates.  "
        "[env var: FLOTILLA_TLS_CA; default: CA bundle of the context, or system CAs]",
    ),
    _connection_option(
        "--token-file",
        type=FILE,
        metavar="FILE",
        help="File with a token.  [env var with the token: FLOTILLA_TOKEN; default: token file of the context]",
    ),
    _connection_option(
        "--secret-file",
        type=FILE,
        metavar="FILE",
        help="File with the secret that all servers share.  [env var with the secret: FLOTILLA_SECRET]",
    ),
)
