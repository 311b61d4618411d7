"""What a program may rely on, as bodies of tests: each is run against a real system, and against the fake.

A body gets the URL of a system, and a name that nobody else uses there: for its topic, and for its group.
"""

from collections.abc import Callable

from support.behaviour import admin, groups, people, records, retries

Body = Callable[[str, str], None]

BODIES: list[Body] = [*records.BODIES, *retries.BODIES, *groups.BODIES, *admin.BODIES, *people.BODIES]


def name_of(body: Body) -> str:
    """Make a name for what a body makes."""
    return body.__name__.replace("_", "-")
