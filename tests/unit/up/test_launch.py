"""Start of child processes by fork and spawn, with small modules instead of servers."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, os, signal, sys, time
from pathlib import Path
from flotilla.up import launch
from flotilla.up.plan import Child, Role

folder = Path(sys.argv[1])
child = Child("writer", Role.WRITER, "server", ("--x", "a b"), 1, "", {"FLOTILLA_SECRET": "s"})
environment = {**os.environ, "READ_ONLY": "true", "FLOTILLA_SECRET_FILE": "/x"}
life, ours = os.pipe()
context = launch.ChildContext(folder, environment, os.open(folder, os.O_RDONLY), life)

async def main():
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGCHLD):
        loop.add_signal_handler(number, lambda: None)
    process = (launch.fork if sys.argv[2] == "fork" else launch.spawn)(child, context)
    while (code := process.poll()) is None:
        await asyncio.sleep(0.01)
    process.kill()  # no effect on an ended process
    return code

if sys.argv[2] == "fork":
    launch.preload(["server", "no_such_module"])
sys.stdout.write(f"{asyncio.run(main())}\\n")
"""


@pytest.fixture(params=["fork", "execute"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(folder: Path, way: str, server: str) -> tuple[int, str]:
    """Run a module as a child of a process with a running loop; return its exit code and its log."""
    (folder / "server.py").write_text('if __name__ == "__main__":\n' + textwrap.indent(textwrap.dedent(server), "    "))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", SCRIPT, str(folder), way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return int(done.stdout), (folder / "writer.log").read_text()


def test_child_gets_arguments_and_filtered_environment(tmp_path: Path, way: str) -> None:
    server = """
        import os, sys
        print(sys.argv[1:], os.environ["FLOTILLA_SECRET"], "READ_ONLY" in os.environ)
        print("FLOTILLA_SECRET_FILE" in os.environ, sys.stdin.read() == "", os.getsid(0) == os.getpid())
    """
    assert run(tmp_path, way, server) == (0, "['--x', 'a b'] s False\nFalse True True\n")


@pytest.mark.parametrize(
    ("server", "code", "log"),
    [
        ("raise SystemExit(5)", 5, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('no such thing')", 1, "no such thing\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
    ],
)
def test_exit_code_of_child_is_that_of_a_program(tmp_path: Path, way: str, server: str, code: int, log: str) -> None:
    assert run(tmp_path, way, server) == (code, log)


def test_traceback_of_child_goes_to_the_log(tmp_path: Path, way: str) -> None:
    code, log = run(tmp_path, way, "1 / 0")
    assert code == 1
    assert log.endswith("ZeroDivisionError: division by zero\n")


def test_child_can_run_its_own_event_loop(tmp_path: Path, way: str) -> None:
    server = """
        import asyncio, os, signal, sys
        async def main():
            stop = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            os.kill(os.getpid(), signal.SIGTERM)
            await stop.wait()
            return 7
        sys.exit(asyncio.run(main()))
    """
    assert run(tmp_path, way, server) == (7, "")


def test_forked_children_have_different_random_numbers(tmp_path: Path) -> None:
    drawn = [run(tmp_path, "fork", "import random; print(random.random())")[1].splitlines()[-1] for _ in range(2)]
    assert drawn[0] != drawn[1]
