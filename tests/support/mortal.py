"""The operator, which dies right after whatever it changes: `python -m support.mortal`.

It is the real one, in a process of its own, and ends without a word in the moment in which Kubernetes or the managers
have answered, before it has remembered anything. What changes nothing, such as to apply once more what is there, does
not count, or it would never come further.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from flotilla_operator import __main__ as operator
from flotilla_operator.control import Control
from flotilla_operator.kube import Kube

DIED = 86


def die(what: str) -> None:
    """End, as kill -9 does: nothing is closed, and nobody is told."""
    os.write(sys.stdout.fileno(), f"{what}\n".encode())
    os._exit(DIED)


def after(kind: type, name: str, has_changed: Callable[[Any], bool] = lambda _: True) -> None:
    """Have it die when a method has returned."""
    method: Callable[..., Awaitable[Any]] = getattr(kind, name)

    async def mortal(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever the method takes and gives
        found = await method(*arguments, **options)
        if has_changed(found):
            die(name)
        return found

    setattr(kind, name, mortal)


def after_changes(name: str, find: Callable[..., tuple[str, str]]) -> None:
    """Have it die when a method has given a resource another version."""
    method: Callable[..., Awaitable[Any]] = getattr(Kube, name)

    async def mortal(kube: Kube, *arguments: Any) -> Any:  # noqa: ANN401
        kind, resource = find(*arguments)
        before = await kube.get(kind, resource)
        found = await method(kube, *arguments)
        if before is None or before["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            die(f"{name} {kind}")
        return found

    setattr(Kube, name, mortal)


def main() -> int:
    """Run it."""
    after_changes("apply", lambda manifest: (manifest["kind"], manifest["metadata"]["name"]))
    after_changes("set_status", lambda kind, name, *_: (kind, name))
    after(Kube, "create", bool)
    after(Kube, "evict", bool)
    for name in ("remove", "label", "set_finalizers"):
        after(Kube, name)
    for name in ("put_topic", "delete_topic", "release_topic", "put_broker", "remove_broker"):
        after(Control, name)
    return operator.main()


if __name__ == "__main__":
    sys.exit(main())
