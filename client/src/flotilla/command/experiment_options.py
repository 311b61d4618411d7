"""The options of `flotilla experiment`: what single steps and whole experiments have in common."""

import functools
from collections.abc import Callable
from typing import Any

import click

from flotilla.client.errors import ConfigInvalid
from flotilla.command import completing
from flotilla.command.errors import InputInvalid
from flotilla.command.options import COUNT, FILE, Command, Function, asks_servers
from flotilla.experiments.samples import STEPS
from flotilla.myqueue.texts import parse_broker

TOPICS = "--topics"


class Step(Command):
    """A command whose `--topics` takes all values up to the next option, as in `--topics T1 T2 T3`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the option before each value, which click understands."""
        return super().parse_args(ctx, spread(args, TOPICS))


def spread(arguments: list[str], flag: str) -> list[str]:
    """Repeat a flag before each of its values: `--topics a b` becomes `--topics a --topics b`."""
    found: list[str] = []
    is_open = False
    for argument in arguments:
        if argument.startswith("-"):
            is_open = argument == flag or argument.startswith(f"{flag}=")
            found.append(argument)
        else:
            found += [flag, argument] if is_open and found[-1] != flag else [argument]
    return found


def asks_where(name: str) -> Callable[[Function], Function]:
    """Declare what `asks_servers` does, where an argument of that name says where to ask as `--url` does.

    It counts before anybody has looked for a token: so a token goes only where it was meant to go.
    """

    def declare(function: Function) -> Function:
        asks = asks_servers(function)

        @functools.wraps(asks)
        def ask(*args: object, **given: Any) -> Any:  # noqa: ANN401 - whatever the command has
            where = given.pop(name)
            try:
                here = {} if where is None else {"url": parse_broker(where)}
            except ConfigInvalid as error:
                raise InputInvalid(str(error)) from error
            return asks(*args, **(given | here))

        return ask

    return declare


def has_broker(function: Function) -> Function:
    """Declare where a manager is, in fewer letters than a URL; `asks_where("broker")` reads it."""
    text = "where a manager is, or a URL, instead of --url"
    return click.option("--broker", metavar="HOST:PORT", help=text)(function)


def has_prefix(function: Function) -> Function:
    """Declare what names of topics begin with."""
    text = "what names of topics on the servers begin with; files do not have it"
    return click.option("--prefix", default="", metavar="TEXT", help=text)(function)


def has_seed(function: Function) -> Function:
    """Declare what samples are made from."""
    seed = click.option("--seed", type=int, default=1, show_default=True, help="other seeds make up other messages")
    steps = click.option("--steps", type=COUNT, default=STEPS, show_default=True, metavar="N", help="of each producer")
    return seed(steps(function))


def is_single(function: Function) -> Function:
    """Declare what a single step has."""
    for option in (
        has_prefix,
        click.option("--log-loc", "--log_loc", "folder", type=FILE, required=True, metavar="DIR", help="the folder"),
        has_broker,
        click.option(
            TOPICS,
            multiple=True,
            required=True,
            metavar="TOPIC...",
            shell_complete=completing.topics,
            help="one or several, as in --topics T1 T2",
        ),
        click.option("--id", "id_", type=click.IntRange(0), required=True, metavar="N", help="its number"),
    ):
        option(function)
    return function
