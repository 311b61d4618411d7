"""The operator, with a crash right after each change: `python -m support.crashing_operator`.

It is the real operator in its own process. It exits as soon as Kubernetes or the managers have answered, before it can
remember the result. Calls that change nothing, such as applying an unchanged object, do not count: otherwise the
operator would never make progress.

This process imports the operator once, and forks a process for each run. It prints `crashed CHANGE` after a crash, and
ends with `exited CODE` after any other end of a run.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from flotilla_operator import __main__ as operator
from flotilla_operator.control_client import ControlClient
from flotilla_operator.kubernetes_client import KubernetesClient

CRASHED_AFTER, EXITED = "crashed", "exited"
_CRASHED = 86


def crash(change: str) -> None:
    """Exit without cleanup, as after SIGKILL; print the change."""
    os.write(sys.stdout.fileno(), f"{CRASHED_AFTER} {change}\n".encode())
    os._exit(_CRASHED)


def crash_after(kind: type, name: str, has_changed: Callable[[Any], bool] = lambda _: True) -> None:
    """Make the operator crash when a method has returned a changed result."""
    method: Callable[..., Awaitable[Any]] = getattr(kind, name)

    async def crashing(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - any signature
        found = await method(*arguments, **options)
        if has_changed(found):
            crash(name)
        return found

    setattr(kind, name, crashing)


def crash_after_changes(name: str, find: Callable[..., tuple[str, str]]) -> None:
    """Make the operator crash when a method has changed the resourceVersion of an object."""
    method: Callable[..., Awaitable[Any]] = getattr(KubernetesClient, name)

    async def crashing(kube: KubernetesClient, *arguments: Any) -> Any:  # noqa: ANN401
        kind, resource = find(*arguments)
        before = await kube.get(kind, resource)
        found = await method(kube, *arguments)
        if before is None or before["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            crash(f"{name} {kind}")
        return found

    setattr(KubernetesClient, name, crashing)


def main() -> None:
    """Run operators one after another, until one ends without a crash."""
    crash_after_changes("apply", lambda manifest: (manifest["kind"], manifest["metadata"]["name"]))
    crash_after_changes("set_status", lambda kind, name, *_: (kind, name))
    crash_after(KubernetesClient, "create", bool)
    crash_after(KubernetesClient, "evict", bool)
    for name in ("delete", "label", "set_finalizers"):
        crash_after(KubernetesClient, name)
    for name in ("put_topic", "delete_topic", "release_topic", "put_broker", "remove_broker"):
        crash_after(ControlClient, name)
    code = _CRASHED
    while code == _CRASHED:
        process = os.fork()
        if process == 0:
            os._exit(operator.main())
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    print(EXITED, code, flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main()
