"""Completion of names of topics, groups and brokers, from the server, and of contexts.

Errors are not shown, and after 1 s completion gives up: then there are no suggestions.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from flotilla.command.errors import CommandError
from flotilla.command.flags import ConnectionFlags

if TYPE_CHECKING:
    from flotilla.command.connection import Admin

TIMEOUT_S = 0.8
LIMIT_S = 1.0  # in total: a DNS lookup runs in a thread that cannot be cancelled


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a topic."""
    del param

    async def ask(admin: "Admin") -> list[str]:
        return [topic.name for topic in await admin.topics.list()]

    return _ask(ctx, ask, incomplete)


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a group."""
    del param

    async def ask(admin: "Admin") -> list[str]:
        return [group.name for group in await admin.groups.list()]

    return _ask(ctx, ask, incomplete)


def brokers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a broker, or its id if it has no name."""
    del param

    async def ask(admin: "Admin") -> list[str]:
        return [broker.name or broker.id for broker in await admin.brokers.list()]

    return _ask(ctx, ask, incomplete)


def contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a context."""
    from flotilla.command import config  # noqa: PLC0415 - only needed here

    del ctx, param
    try:
        known = config.load(config.find_path(os.environ)).contexts
    except CommandError:
        return []
    return [name for name in known if name.startswith(incomplete)]


def _ask(ctx: click.Context, work: "Callable[[Admin], Awaitable[list[str]]]", incomplete: str) -> list[str]:
    # These import the client, which other completions do not need.
    from flotilla.client.errors import ConfigInvalid  # noqa: PLC0415
    from flotilla.command import connection  # noqa: PLC0415

    before = signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        found = connection.run(connection.resolve_server(_flags(ctx), os.environ), work, timeout_s=TIMEOUT_S)
    except (CommandError, ConfigInvalid):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return sorted(name for name in found if name.startswith(incomplete))


def _flags(ctx: click.Context) -> ConnectionFlags:
    """Read the connection options of the line; raises ConfigInvalid."""
    given = {name: ctx.params.get(name) for name in ConnectionFlags.__dataclass_fields__}
    broker = ctx.params.get("broker")  # option of `experiment`, instead of --url
    if broker is not None:
        from flotilla.myqueue.texts import parse_broker  # noqa: PLC0415 - as above

        given["url"] = parse_broker(broker)
    return ConnectionFlags(**given)
