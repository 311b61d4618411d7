"""Run the commands of a page of the docs against a cluster, and compare their output."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from support.cluster import free_port
from support.scripts import run_script
from support.upprocess import UpProcess

ROOT = Path(__file__).resolve().parents[2]
_URL = "http://127.0.0.1:8080"
_PROMPT = "$ "
_DATA = ".flotilla"
_PORTS = ("8443", "8444", "8445")  # of servers that a page starts
_RULE = "===="
_TOUR_S = 240

Step = tuple[str, str]  # a command and its output


def steps(page: str) -> list[Step]:
    """Return the console blocks of a page, and its Python blocks, each with the text block that follows."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Step] = []
    before = ""
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if kind == "python":
            found.append((f"python - <<'END'\n{block}END", ""))
        elif kind == "text" and before == "python":
            found[-1] = found[-1][0], block
        elif kind == "console":
            for line in block.splitlines():
                if line.startswith(_PROMPT):
                    found.append((line.removeprefix(_PROMPT), ""))
                else:
                    command, printed = found[-1]
                    found[-1] = command, f"{printed}{line}\n"
        before = kind
    return found


def follow(up: UpProcess, tour: Iterable[Step], folder: Path) -> tuple[list[Step], str]:
    """Run the commands of a page in one shell; return each with its output, and all error output.

    `folder` is for files of the page. Commands are changed to use the given cluster: its broker and its port.
    """
    commands = [command for command, _ in tour]
    ports = {port: str(free_port()) for port in _PORTS}
    script = "".join(f"{_adapt(command, up, ports)}\nprintf '\\n{_RULE}\\n'\n" for command in commands)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # for the command `flotilla`
        "FLOTILLA_URL": up.url,
        "FLOTILLA_CONFIG": str(folder / "config.toml"),
    }
    done = run_script(script, environment, _TOUR_S)
    printed = [part.strip("\n") for part in done.stdout.split(f"\n{_RULE}\n")]
    return list(zip(commands, printed, strict=False)), done.stderr


def _adapt(command: str, up: UpProcess, ports: Mapping[str, str]) -> str:
    mine = re.sub(r"pkill -9 -x (\S+)", lambda match: f"kill -9 {up.pids()[match[1]]}", command)
    mine = re.sub("|".join(ports), lambda match: ports[match[0]], mine)
    return mine.replace(_URL, up.url).replace(_DATA, str(up.data))


def expected(tour: Iterable[Step]) -> list[Step]:
    """Return the documented output, in the form of `follow`."""
    return [(command, printed.strip("\n")) for command, printed in tour]
