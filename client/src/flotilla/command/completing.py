"""What a shell completes: names of topics, groups and brokers, as servers know them, and of contexts.

Whoever presses a key does not want to wait, nor to read about what went wrong: after a second, or without a server,
there is simply nothing to choose from.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from flotilla.command.errors import CommandError
from flotilla.command.flags import Flags

if TYPE_CHECKING:
    from flotilla.command.asking import Admin

ANSWER_S = 0.8
LIMIT_S = 1.0  # for all of it: the name of a host may be looked up in a thread that nobody can stop


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Name the topics that begin so."""
    del param

    async def ask(admin: "Admin") -> list[str]:
        return [topic.name for topic in await admin.topics.list()]

    return _ask(ctx, ask, incomplete)


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Name the groups that begin so."""
    del param

    async def ask(admin: "Admin") -> list[str]:
        return [group.name for group in await admin.groups.list()]

    return _ask(ctx, ask, incomplete)


def brokers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Name the brokers whose ids begin so."""
    del param

    async def ask(admin: "Admin") -> list[str]:
        return [broker.id for broker in await admin.brokers.list()]

    return _ask(ctx, ask, incomplete)


def contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Name the contexts that begin so."""
    from flotilla.command import config  # noqa: PLC0415 - only who completes a context needs it

    del ctx, param
    try:
        known = config.load(config.find_path(os.environ)).contexts
    except CommandError:
        return []
    return [name for name in known if name.startswith(incomplete)]


def _ask(ctx: click.Context, work: "Callable[[Admin], Awaitable[list[str]]]", incomplete: str) -> list[str]:
    # These load the client, which other completions do not need.
    from flotilla.client.errors import ConfigInvalid  # noqa: PLC0415
    from flotilla.command import asking  # noqa: PLC0415

    before = signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        found = asking.run(asking.find_server(_flags(ctx), os.environ), work, answer_s=ANSWER_S)
    except (CommandError, ConfigInvalid):
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return sorted(name for name in found if name.startswith(incomplete))


def _flags(ctx: click.Context) -> Flags:
    """Find whom the line names; raises ConfigInvalid."""
    said = {name: ctx.params.get(name) for name in Flags.__dataclass_fields__}
    broker = ctx.params.get("broker")  # as some tasks have it instead of a URL
    if broker is not None:
        from flotilla.myqueue.texts import parse_broker  # noqa: PLC0415 - as above

        said["url"] = parse_broker(broker)
    return Flags(**said)
