"""`flotilla admin`: for emergencies. What is done is done by the servers' own programs."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import click

from flotilla.command.options import Group
from flotilla.up.errors import ServersMissing

_REBUILD_MODULE = "flotilla_manager.rebuild"


@click.group(cls=Group)
def admin() -> None:
    """For emergencies."""


@admin.command(
    "rebuild-metadata",
    add_help_option=False,  # its arguments belong to another program, which reads them itself
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def rebuild_metadata(arguments: tuple[str, ...]) -> int:
    """Make the metadata anew from what the brokers hold."""
    return hand_over(_REBUILD_MODULE, arguments)


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
