"""The limit on open files of a server process. Each connection takes one file, and so does each open log segment.

Many systems start processes with a soft limit of 1,024 and a far higher hard limit, for the sake of old programs that
use `select()`. Servers here do not, so they raise the soft limit themselves.
"""

import logging
import resource

from flotilla_server.settings import SettingsInvalid

logger = logging.getLogger(__name__)

LIMIT_MAX = 65_536  # more would only make a leak harder to notice
OVERHEAD = 64  # standard streams, listening sockets, libraries, database connections
_ADVICE = "raise the hard limit (`ulimit -Hn`, systemd's LimitNOFILE, or the container runtime's limit)"


def choose_soft_limit(soft: int, hard: int) -> int:
    """Return the soft limit to set: never lower than it is, never above the hard limit."""
    allowed = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    return soft if soft == resource.RLIM_INFINITY else max(soft, allowed)


def raise_limit(*, required: int, wanted: int) -> None:
    """Raise this process's soft limit.

    `required` files are needed to work at all; with fewer, raises SettingsInvalid. `wanted` are needed when every limit
    of the settings is reached; with fewer, logs a warning.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = choose_soft_limit(soft, hard)
    if limit != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit == resource.RLIM_INFINITY:
        return
    if limit < required:
        raise SettingsInvalid(f"the limit on open files is {limit}, but at least {required} are required: {_ADVICE}")
    if limit < wanted:
        logger.warning(
            "open file limit may be too low limit=%d wanted=%d: lower connections_max, or %s", limit, wanted, _ADVICE
        )
