"""Blocking versions of the administration classes: each method runs its asynchronous counterpart."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from flotilla.client.admin.brokers import AsyncBrokers
from flotilla.client.admin.groups import AsyncGroups
from flotilla.client.admin.tokens import AsyncTokens
from flotilla.client.admin.topics import AsyncTopics
from flotilla.client.runner import Runner

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class _BlockingFacade(Generic[A]):
    """An asynchronous object and its event loop. Thread-safe."""

    def __init__(self, runner: Runner, work: A) -> None:
        self._runner = runner
        self._work = work


def _blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_BlockingFacade[A], P], T]:
    """Create a method that waits for the result of the asynchronous one."""

    @functools.wraps(method)
    def wait(self: _BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._runner.run(method(self._work, *args, **kwargs))

    return wait


class Topics(_BlockingFacade[AsyncTopics]):
    """Manages topics: `client.topics`.

    ```python
    client.topics.create("orders", partitions=4, retention_ms=86_400_000)
    print([topic.name for topic in client.topics.list()])
    client.topics.grow("orders", 8)
    client.topics.delete_records("orders", {0: 100})
    ```

    Every method raises Refused (also as TopicMissing, TopicExists, NotAllowed) or ServerUnreachable.
    """

    create = _blocking(AsyncTopics.create)
    list = _blocking(AsyncTopics.list)
    describe = _blocking(AsyncTopics.describe)
    partitions = _blocking(AsyncTopics.partitions)
    configure = _blocking(AsyncTopics.configure)
    grow = _blocking(AsyncTopics.grow)
    delete = _blocking(AsyncTopics.delete)
    offsets = _blocking(AsyncTopics.offsets)
    delete_records = _blocking(AsyncTopics.delete_records)


class Brokers(_BlockingFacade[AsyncBrokers]):
    """Lists and describes brokers: `client.brokers`.

    ```python
    for broker in client.brokers.list():
        print(broker.id, broker.url, broker.active, len(broker.partitions), broker.leads)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    list = _blocking(AsyncBrokers.list)
    describe = _blocking(AsyncBrokers.describe)


class Groups(_BlockingFacade[AsyncGroups]):
    """Manages consumer groups: `client.groups`.

    ```python
    print(client.groups.describe("billing").lag)
    client.groups.reset("billing", to="earliest")
    client.groups.reset("billing", shift=-10, dry_run=True)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    list = _blocking(AsyncGroups.list)
    describe = _blocking(AsyncGroups.describe)
    offsets = _blocking(AsyncGroups.offsets)
    reset = _blocking(AsyncGroups.reset)
    delete = _blocking(AsyncGroups.delete)


class Tokens(_BlockingFacade[AsyncTokens]):
    """Manages tokens: `client.tokens`. Needs `admin` on all topics.

    ```python
    made = client.tokens.create("shop", ["produce:orders*"], expires_in=timedelta(days=30))
    print(made.token)       # cannot be read again later
    client.tokens.revoke(made.id)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    create = _blocking(AsyncTokens.create)
    list = _blocking(AsyncTokens.list)
    revoke = _blocking(AsyncTokens.revoke)
