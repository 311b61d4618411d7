"""Servers of tests: as forks, which start faster, and as programs, as in pods."""

import signal
from pathlib import Path

import pytest

from support.cluster import free_port
from support.fleet import Fleet
from support.forks import Forker
from support.process import ServerProcess
from support.upprocess import wait_gone


@pytest.mark.parametrize("forked", [True, False])
def test_forked_and_executed_servers_behave_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: bool
) -> None:
    monkeypatch.setattr(ServerProcess, "forked", forked)
    with Fleet(tmp_path, brokers=1, readers=1) as fleet:
        fleet.create("orders", partitions=1)
        assert [process.exit_code for process in fleet.processes] == [None] * 3
        assert [process.terminate() for process in fleet.processes] == [0] * 3
        fleet.start()
        fleet.wait_ready()
        assert fleet.get("/topics")["topics"] == ["orders"]
        fleet.kill_all()
        assert [process.exit_code for process in fleet.processes] == [-signal.SIGKILL] * 3


def test_forks_do_not_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    forker = Forker("flotilla_broker", "")
    ports = ("--port", str(free_port()), "--peer-port", str(free_port()))
    wanted = {"arguments": ["--data", str(tmp_path / "data"), *ports], "environment": {}, "log": str(tmp_path / "log")}
    pid = forker.ask(start=wanted)["pid"]
    assert forker.ask(poll=pid) == {"code": None}
    forker.close()
    wait_gone([pid])
