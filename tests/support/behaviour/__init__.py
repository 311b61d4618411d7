"""Behaviour that programs can rely on, as bodies of tests: each runs against a real cluster and against the fake.

A body gets the URL of a cluster, and a unique name for its topic and its group.
"""

from collections.abc import Callable

from support.behaviour import admin, groups, records, retries, simple_api

Body = Callable[[str, str], None]

BODIES: list[Body] = [*records.BODIES, *retries.BODIES, *groups.BODIES, *admin.BODIES, *simple_api.BODIES]


def name_of(body: Body) -> str:
    """Return a unique name for a body."""
    return body.__name__.replace("_", "-")
