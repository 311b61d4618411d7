"""The tours of the README and the docs, word for word, against what `make run` starts."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.cluster import free_port
from support.upprocess import UpProcess

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:8080"
PROMPT = "$ "
DATA = ".flotilla"
PORTS = ("8443", "8444", "8445")  # of servers that a page starts by itself


def steps(name: str) -> list[tuple[str, str]]:
    """Read the console blocks, each command with what it prints; and programs, with the text block behind them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found: list[tuple[str, str]] = []
    before = ""
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if kind == "python":
            found.append((f"python - <<'END'\n{block}END", ""))
        elif kind == "text" and before == "python":
            found[-1] = found[-1][0], block
        elif kind == "console":
            for line in block.splitlines():
                if line.startswith(PROMPT):
                    found.append((line.removeprefix(PROMPT), ""))
                else:
                    command, printed = found[-1]
                    found[-1] = command, f"{printed}{line}\n"
        before = kind
    return found


@pytest.mark.parametrize(
    ("names", "flags"),
    [
        ("README.md", ()),
        ("docs/api.md", ()),
        ("docs/groups.md", ()),
        ("docs/client.md", ()),
        ("docs/coming-from.md", ()),
        ("docs/myqueue.md docs/experiments.md", ()),
        ("docs/access.md", ("--auth", "on")),
    ],
)
def test_the_tour_prints_what_is_said_of_it(tmp_path: Path, names: str, flags: tuple[str, ...]) -> None:
    """Pages that do not mind what another one left share a system, since to start one takes longer than most tours."""
    tour = [step for name in names.split() for step in steps(name)]
    assert len(tour) > 5
    data = tmp_path / "data"
    ports = {port: str(free_port()) for port in PORTS}
    with UpProcess(data, *flags) as up:
        up.wait_ready()
        script = ""
        for command, _ in tour:
            # A test may run beside somebody's own system: it kills its own broker, and asks its own port.
            mine = re.sub(r"pkill -9 (\S+)", lambda match: f"kill -9 {up.pids()[match[1]]}", command)
            mine = re.sub("|".join(PORTS), lambda match: ports[match[0]], mine)
            script += f"{mine.replace(URL, up.url).replace(DATA, str(data))}\nprintf '\\n====\\n'\n"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in a shell that knows `flotilla`
        environment = {
            **os.environ,
            "PATH": path,
            "FLOTILLA_URL": up.url,
            "FLOTILLA_CONFIG": str(tmp_path / "config.toml"),
        }
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=240, env=environment
        )
        printed = [part.strip("\n") for part in done.stdout.split("\n====\n")]
        assert list(zip((command for command, _ in tour), printed, strict=False)) == [
            (command, said.strip("\n")) for command, said in tour
        ], done.stderr
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
    if names != "README.md":
        return
    with UpProcess(data) as up:  # what was acknowledged is there after the end of everything
        up.wait_ready()
        topics = subprocess.run(["curl", "-s", f"{up.url}/topics"], capture_output=True, text=True, check=True)
        assert "orders" in topics.stdout
