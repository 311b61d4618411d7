"""`flotilla completion`, tested in a real bash."""

import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flotilla.command import config, main
from flotilla.command.config import Config, Context
from flotilla.command.main import COMMANDS
from support.cluster import free_port
from support.fakemanager import FakeManager, serving

TOPIC = {"id": "a" * 32, "partitions": [], "replication": 3}
GROUP = {"generation": 0, "state": "empty", "strategy": None, "members": 0, "topics": []}
BROKER = {"id": "1" * 32, "url": "http://b:1"}
ANSWERS: dict[str, object] = {
    "GET /v1/topics": {"topics": [{**TOPIC, "name": name} for name in ("orders", "orders.new", "parcels")]},
    "GET /v1/groups": {"groups": [{**GROUP, "name": "billing"}], "next": None},
    "GET /v1/metadata": {"version": 1, "cluster_id": "c", "topics": [], "brokers": [BROKER]},
}
BASH = """
source <(flotilla completion bash)
[[ $(complete -p flotilla) == *_flotilla_completion* ]] || exit 3
COMP_LINE={line}
COMP_POINT=${{#COMP_LINE}}
_flotilla_completion flotilla
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with serving() as server:
        server.answers = dict(ANSWERS)
        yield server


def complete(*words: str, **variables: str) -> list[str]:
    """Complete the last word in a real bash."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = BASH.format(line=shlex.quote(" ".join(["flotilla", *words])))
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**kept, "FLOTILLA_CONFIG": os.devnull, **variables, "PATH": path},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["to"], ["topics", "tokens"]),
        (["topics", "de"], ["describe", "delete", "delete-records"]),
        (["topics", "create", "x", "--re"], ["--replication", "--retention", "--retention-bytes"]),
        (["topics", "create", "x", "--compression", ""], ["none", "zstd"]),
        (["topics", "create", "x", "--compression=z"], ["zstd"]),
        ([""], list(COMMANDS)),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_completion_offers_commands_options_and_choices(words: list[str], offered: list[str]) -> None:
    assert complete(*words) == offered


def test_completion_offers_names_from_the_server(manager: FakeManager) -> None:
    """From the server of the options, or of the environment."""
    assert complete("topics", "describe", "or", FLOTILLA_URL=manager.url) == ["orders", "orders.new"]
    away = f"http://127.0.0.1:{free_port()}"
    by_flag = ("--url", manager.url)
    assert complete("groups", "reset", *by_flag, "", FLOTILLA_URL=away) == ["billing"]
    assert complete("groups", "reset", "billing", *by_flag, "--topic", "p", FLOTILLA_URL=away) == ["parcels"]
    assert complete("brokers", "describe", "1", FLOTILLA_URL=manager.url) == ["1" * 32]
    by_broker = ("--broker", manager.url.removeprefix("http://"), "--topics")
    assert complete("experiment", "consume", *by_broker, "p", FLOTILLA_URL=away) == ["parcels"]


def test_tab_completes_names_from_the_server_of_the_line(manager: FakeManager) -> None:
    """Bash splits words at colons, and so the URL; completion reads the whole line."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, "HOME": os.devnull, "TERM": "dumb", "FLOTILLA_CONFIG": os.devnull}
    typed = f'eval "$(flotilla completion bash)"\nflotilla topics describe --url {manager.url} par\t'
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], variables)  # noqa: S606 - a real one, at a terminal
    try:
        os.write(terminal, typed.encode())
        shown = b""
        while b" parcels " not in shown:
            assert select.select([terminal], [], [], 30.0)[0], shown
            shown += os.read(terminal, 4096)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_completion_offers_contexts_and_names_from_their_servers(manager: FakeManager, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    config.save(
        path, Config({"prod": Context(manager.url), "prod-eu": Context("http://b"), "test": Context("http://c")})
    )
    assert complete("topics", "list", "--context", "pr", FLOTILLA_CONFIG=str(path)) == ["prod", "prod-eu"]
    assert complete("topics", "grow", "--context", "prod", "pa", FLOTILLA_CONFIG=str(path)) == ["parcels"]


def test_completion_without_a_server_offers_nothing(manager: FakeManager, tmp_path: Path) -> None:
    assert complete("topics", "describe", "", FLOTILLA_URL=f"http://127.0.0.1:{free_port()}") == []
    assert complete("topics", "describe", "", FLOTILLA_URL="nonsense") == []
    assert complete("experiment", "consume", "--broker", "nonsense", "--topics", "") == []
    (tmp_path / "broken").write_text("broken")
    assert complete("topics", "describe", "", FLOTILLA_CONFIG=str(tmp_path / "broken")) == []
    manager.status = 401
    assert complete("topics", "describe", "", FLOTILLA_URL=manager.url) == []


def test_completion_gives_up_on_a_hanging_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        began = time.monotonic()
        assert complete("topics", "describe", "", FLOTILLA_URL="http://127.0.0.1:1") == []
        without_s = time.monotonic() - began
        began = time.monotonic()
        assert complete("topics", "describe", "", FLOTILLA_URL=url) == []
        assert time.monotonic() - began < without_s + 5, "one second, and the delay of a busy machine"


@pytest.mark.parametrize(
    ("shell", "text"), [("bash", "complete -o"), ("zsh", "#compdef flotilla"), ("fish", "--command flotilla")]
)
def test_completion_prints_a_script_for_each_shell(capsys: pytest.CaptureFixture[str], shell: str, text: str) -> None:
    assert main(["completion", shell]) == 0
    captured = capsys.readouterr().out
    assert text in captured
    assert "_FLOTILLA_COMPLETE" in captured


def test_completion_rejects_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err
