"""Shared options of the commands of `flotilla experiment`."""

import functools
from collections.abc import Callable
from typing import Any

import click

from flotilla.client.errors import ConfigInvalid
from flotilla.command import completers
from flotilla.command.errors import InputInvalid
from flotilla.command.options import COUNT, FILE, Command, Function, connection_options
from flotilla.experiments.samples import STEPS
from flotilla.myqueue.texts import parse_broker

TOPICS = "--topics"


class StepCommand(Command):
    """A command whose `--topics` takes several values, as in `--topics T1 T2 T3`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each value, as click expects it."""
        return super().parse_args(ctx, repeat_flag(args, TOPICS))


def repeat_flag(arguments: list[str], flag: str) -> list[str]:
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


def address_options(name: str) -> Callable[[Function], Function]:
    """Add the connection options, with a parameter `name` that replaces `--url`.

    It is applied before credentials are resolved, so that a token is sent only to the cluster that it belongs to.
    """

    def declare(function: Function) -> Function:
        call_with_connection = connection_options(function)

        @functools.wraps(call_with_connection)
        def call_with_address(*args: object, **given: Any) -> Any:  # noqa: ANN401 - whatever the command has
            where = given.pop(name)
            try:
                here = {} if where is None else {"url": parse_broker(where)}
            except ConfigInvalid as error:
                raise InputInvalid(str(error)) from error
            return call_with_connection(*args, **(given | here))

        return call_with_address

    return declare


def broker_option(function: Function) -> Function:
    """Add `--broker`, the address of a manager; `address_options("broker")` reads it."""
    text = "Address or URL of a manager, instead of --url; named --broker for compatibility."
    return click.option("--broker", metavar="HOST:PORT", help=text)(function)


def prefix_option(function: Function) -> Function:
    """Add `--prefix`."""
    text = "Text added before topic names on the servers, e.g. demo. for demo.T1; the files have the names without it."
    return click.option("--prefix", default="", show_default=False, metavar="TEXT", help=text)(function)


def sample_options(function: Function) -> Function:
    """Add the options of generated files."""
    seed = click.option("--seed", type=int, default=1, metavar="N", help="Seed of generated producer files.")
    steps = click.option(
        "--steps",
        type=COUNT,
        default=STEPS,
        metavar="N",
        help="Steps per producer in generated files: the lines of a step (P1-1, P1-2, …) are sent concurrently.",
    )
    return seed(steps(function))


def step_options(function: Function) -> Function:
    """Add the options of single steps."""
    for option in (
        prefix_option,
        click.option(
            "--log-loc", "--log_loc", "folder", type=FILE, required=True, metavar="DIR", help="Folder of the files."
        ),
        broker_option,
        click.option(
            TOPICS,
            multiple=True,
            required=True,
            metavar="TOPIC...",
            shell_complete=completers.topics,
            help="One or more topics, e.g. --topics T1 T2.",
        ),
        click.option(
            "--id",
            "id_",
            type=click.IntRange(0),
            required=True,
            metavar="N",
            help="Number of the producer or consumer: the N of producer_N.txt or consumer_N.txt.",
        ),
    ):
        option(function)
    return function
