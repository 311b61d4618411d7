"""Flotilla: a partitioned, replicated log queue.

`Client` and `AsyncClient` are for programs that produce and consume; they are loaded when they are first used. Besides,
this package holds what every part of the system shares: `flotilla.records`, the one binary shape that messages travel
in; `flotilla.net`, a small HTTP client; `flotilla.access`, who may do what; `flotilla.groups` and `flotilla.producers`,
what becomes of groups and of retries; `flotilla.serving`, what servers share. `flotilla.testing` is a system in memory,
for tests.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flotilla.client.aio import AsyncClient
    from flotilla.client.blocking import Client
    from flotilla.client.errors import FlotillaError

__version__ = "0.2.0"
__all__ = ["AsyncClient", "Client", "FlotillaError", "__version__"]

_HOMES = {
    "AsyncClient": "flotilla.client.aio",
    "Client": "flotilla.client.blocking",
    "FlotillaError": "flotilla.client.errors",
}


def __getattr__(name: str) -> object:
    """Load what is asked for: servers do not need the client, nor does who only packs batches."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'flotilla' has no attribute {name!r}")
    return getattr(import_module(home), name)
