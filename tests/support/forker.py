"""Import the module of a server once, then fork a process for each line of standard input.

Usage: forker.py MODULE

A line is JSON: `{"start": {...}}` starts a server and returns `{"pid": ...}`; `{"poll": PID}` returns `{"code": ...}`,
null while it runs. Only this process reaps servers, so a pid is not reused before it is polled. Servers are started as
in `flotilla up`, and end with this process, which ends at the end of its input.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flotilla.up import launch
from flotilla.up.plan import Child, Role

_NOTHING_FD = 0  # a server inherits only the standard streams


@dataclass(frozen=True)
class Given(launch.ChildContext):
    """What a server gets is what the test says, and nothing besides."""

    def open_log(self, child: Child) -> int:  # noqa: ARG002 - each server has its own log
        """Open the log for append."""
        return os.open(self.logs, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def child_environment(self, child: Child) -> dict[str, str]:  # noqa: ARG002 - each has one of its own
        """Make the environment."""
        return dict(self.environment)


def main(module: str) -> None:
    """Handle requests line by line until the end of input."""
    launch.preload([module])
    servers: dict[int, launch.Process] = {}
    for line in sys.stdin:
        print(json.dumps(answer(module, json.loads(line), servers)), flush=True)  # noqa: T201 - the response


def answer(module: str, asked: Mapping[str, Any], servers: dict[int, launch.Process]) -> dict[str, int | None]:
    """Handle a request."""
    if "poll" in asked:
        return {"code": servers[asked["poll"]].poll()}
    server = start(module, **asked["start"])
    servers[server.pid] = server
    return {"pid": server.pid}


def start(module: str, arguments: list[str], environment: dict[str, str], log: str) -> launch.Process:
    """Fork a server."""
    child = Child(module, Role.BROKER, module, tuple(arguments), port=0, address="")
    return launch.fork(child, Given(Path(log), environment, _NOTHING_FD, _NOTHING_FD))


if __name__ == "__main__":
    main(sys.argv[1])
