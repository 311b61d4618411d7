"""`flotilla admin`: recovery from lost metadata. The work is done by modules of the servers."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import click

from flotilla.command.options import Group
from flotilla.up.errors import ServersMissing

_REBUILD_MODULE = "flotilla_manager.rebuild_command"


@click.group(cls=Group)
def admin() -> None:
    """Recover from lost metadata."""


@admin.command(
    "rebuild-metadata",
    add_help_option=False,  # the module parses its own arguments, --help included
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def rebuild_metadata(arguments: tuple[str, ...]) -> int:
    """Rebuild the metadata database from broker data."""
    return exec_module(_REBUILD_MODULE, arguments)


def exec_module(
    module: str,
    arguments: Sequence[str],
    find: Callable[[str], object] = find_spec,
    execute: Callable[[str, list[str]], object] = os.execv,
) -> int:
    """Replace this process by a module of the servers; raises ServersMissing if they are not installed."""
    package = module.partition(".")[0]
    if find(package) is None:
        raise ServersMissing([package])
    sys.stdout.flush()
    execute(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
    return 0
