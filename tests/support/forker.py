"""Import a server's module once, then fork a process of it for each line of standard input: a script.

Usage: forker.py MODULE

A line is JSON: `{"start": {...}}` has a server started and is answered with `{"pid": ...}`; `{"poll": PID}` is answered
with `{"code": ...}`, null while it runs. Nobody else collects servers, so their ids are theirs until they are polled.
They are made as `flotilla up` makes them, and end with this process, which ends when its input does.
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

_NOTHING_FD = 0  # a server keeps no file of this process but for the standard ones


@dataclass(frozen=True)
class Given(launch.Surroundings):
    """What a server gets is what the test says, and nothing besides."""

    def open_log(self, child: Child) -> int:  # noqa: ARG002 - each has one of its own
        """Open the log for append."""
        return os.open(self.logs, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def environment_of(self, child: Child) -> dict[str, str]:  # noqa: ARG002 - each has one of its own
        """Make the environment."""
        return dict(self.environment)


def main(module: str) -> None:
    """Answer line by line until there are no more."""
    launch.preload([module])
    servers: dict[int, launch.Process] = {}
    for line in sys.stdin:
        print(json.dumps(answer(module, json.loads(line), servers)), flush=True)  # noqa: T201 - whoever asked reads it


def answer(module: str, asked: Mapping[str, Any], servers: dict[int, launch.Process]) -> dict[str, int | None]:
    """Do what a line asks for."""
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
