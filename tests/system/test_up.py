"""`flotilla up`: start, supervision and shutdown."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flotilla.up import logs, shutdown
from support.cluster import wait_until
from support.upprocess import UpProcess, wait_gone

NAMES = ["broker-1", "broker-2", "broker-3", "writer", "reader-1", "reader-2"]
SMALL = ("--brokers", "1", "--readers", "1")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[UpProcess]:
    with UpProcess(tmp_path / "data", *SMALL) as up:
        yield up.wait_ready()


def test_up_starts_all_processes_and_prints_a_table(tmp_path: Path) -> None:
    with UpProcess(tmp_path / "data") as up:
        rows = up.wait_ready().rows()
        assert list(rows) == NAMES
        assert {name: pid for name, (_, _, pid) in rows.items()} == up.pids()
        assert httpx.get(f"{up.url}/readyz").status_code == 200
        assert rows["reader-1"][1] == rows["reader-2"][1] == up.url
        assert sum(line.startswith(("curl ", "p=$(curl", "c=$(curl")) for line in up.output) == 3
        for name in NAMES:
            assert up.ask(name, "/healthz")["status"] in {"alive", "success"}
            assert (tmp_path / "data" / "logs" / f"{name}.log").exists()
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
        wait_gone([pid for _, _, pid in rows.values()])


def test_killed_processes_restart_at_the_same_address(tmp_path: Path) -> None:
    """Any process can be killed at any time."""
    with UpProcess(tmp_path / "data") as up:
        before = up.wait_ready().pids()
        ids = {name: up.ask(name, "/v1/broker")["id"] for name in NAMES[:3]}
        for name in NAMES:
            os.kill(before[name], signal.SIGKILL)
            up.wait_line(rf"{name} was killed \(SIGKILL\); restarting in 0\.2 s")
        for name in NAMES:
            line = up.wait_line(f"{name} recovered after .* s, pid")
            assert up.pids()[name] == int(line.rsplit(" ", 1)[1]) != before[name]
        assert {name: up.ask(name, "/v1/broker")["id"] for name in NAMES[:3]} == ids
        assert httpx.get(f"{up.url}/readyz").status_code == 200


def test_hanging_processes_are_killed_and_restarted(tmp_path: Path) -> None:
    """A stopped process keeps its port and does not end: only probes detect it."""
    with UpProcess(tmp_path / "data", "--brokers", "1") as up:
        before = up.wait_ready().pids()
        for name in ("broker-1", "reader-2"):
            os.kill(before[name], signal.SIGSTOP)
        for name in ("broker-1", "reader-2"):
            up.wait_line(rf"{name} did not answer for 1\d s; killing it")
            up.wait_line(f"{name} recovered after")
        assert up.pids()["reader-1"] == before["reader-1"]


def test_killed_up_leaves_no_process_and_can_restart(tmp_path: Path) -> None:
    """Not even a stopped process is left. The next start has the same ports and brokers."""
    with UpProcess(tmp_path / "data", *SMALL) as first:
        pids = first.wait_ready().pids()
        broker = first.ask("broker-1", "/v1/broker")
        ports = (tmp_path / "data" / "ports.json").read_text()
        os.kill(pids["writer"], signal.SIGSTOP)
        first.signal(signal.SIGKILL)
        first.wait()
        with UpProcess(tmp_path / "data", *SMALL) as second:  # at once: what was left has to be waited for
            second.wait_ready()
            wait_gone(list(pids.values()))
            assert (tmp_path / "data" / "ports.json").read_text() == ports
            again = second.ask("broker-1", "/v1/broker")
            assert (again["id"], again["starts"]) == (broker["id"], broker["starts"] + 1)


def test_up_works_without_fork(tmp_path: Path) -> None:
    """Systems other than Linux start each process as a new interpreter."""
    with UpProcess(tmp_path / "data", *SMALL, fork=False) as up:
        before = up.wait_ready().pids()
        os.kill(before["broker-1"], signal.SIGKILL)
        up.wait_line("broker-1 recovered after")
        pids = up.pids()
        assert set(pids) == set(before)
        up.signal(signal.SIGKILL)
        up.wait()
        wait_gone(list(pids.values()))


def test_forked_process_inherits_no_sockets_or_handlers(small: UpProcess) -> None:
    """It has its own session, signal handlers and variables."""
    parent = _sockets(small.pid)
    assert parent
    for pid in small.pids().values():
        assert not parent & _sockets(pid)
        assert os.getpgid(pid) == os.getsid(pid) == pid
    broker = small.pids()["broker-1"]
    os.kill(broker, signal.SIGTERM)  # a broker ends by itself; its parent starts it again and does not end
    small.wait_line(r"broker-1 exited with code 0; restarting in 0\.2 s")
    small.wait_line("broker-1 recovered after")


def _sockets(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed just now
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


def test_signal_during_start_stops_cleanly(tmp_path: Path) -> None:
    with UpProcess(tmp_path / "data") as up:
        wait_until("all processes", lambda: len(up.pids()) == len(NAMES))
        pids = up.pids()
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
        assert "all processes ready" not in up.text()
        wait_gone(list(pids.values()))


def test_shutdown_is_bounded_with_a_stopped_process(small: UpProcess) -> None:
    os.kill(small.pids()["reader-1"], signal.SIGSTOP)
    began = time.monotonic()
    small.signal(signal.SIGINT)
    assert small.wait() == 0
    assert shutdown.SHUTDOWN_S_MAX - 1 < time.monotonic() - began < shutdown.SHUTDOWN_S_MAX + 5


def test_second_ctrl_c_kills_all_processes(small: UpProcess) -> None:
    pids = small.pids()
    os.kill(pids["writer"], signal.SIGSTOP)
    began = time.monotonic()
    small.signal(signal.SIGINT)
    small.signal(signal.SIGINT)  # right after the first: counted as one
    wait_gone([pids["reader-1"]])
    wait_until("a second to pass", lambda: time.monotonic() - began > 1)
    small.signal(signal.SIGINT)
    assert small.wait() == 0
    assert time.monotonic() - began < shutdown.SHUTDOWN_S_MAX / 2
    wait_gone(list(pids.values()))


def test_port_in_use_names_the_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with UpProcess(tmp_path / "data", port=port) as up:
            assert up.wait() == 4
    assert f"port {port} on 127.0.0.1 is in use by process {os.getpid()} (" in up.text()
    assert "--port" in up.text()
    assert len(up.output) == 1


def test_two_systems_never_share_a_port(small: UpProcess, tmp_path: Path) -> None:
    """Also while no reader runs."""
    port = int(small.url.rpartition(":")[2])
    with UpProcess(tmp_path / "other", port=port) as second:
        assert second.wait() == 4


def test_data_folder_in_use_names_the_owner(small: UpProcess) -> None:
    with UpProcess(small.data) as second:
        assert second.wait() == 3
    assert f"{small.data} is in use by process {small.pid}." in second.text()
    assert httpx.get(f"{small.url}/readyz").status_code == 200


def test_brokers_can_be_added_but_not_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for count, code in ((1, 0), (2, 0), (1, 3)):
        with UpProcess(data, "--readers", "1", "--brokers", str(count)) as up:
            if code == 0:
                assert len(up.wait_ready().rows()) == count + 2
                up.signal(signal.SIGTERM)
            assert up.wait() == code
    assert "holds 2 brokers, but --brokers is 1" in up.text()


def test_internal_port_in_use_is_replaced(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with UpProcess(data, *SMALL) as up:
        port = int(up.wait_ready().rows()["broker-1"][1].rpartition(":")[2])
        up.signal(signal.SIGTERM)
        up.wait()
    with socket.create_server(("127.0.0.1", port)), UpProcess(data, *SMALL) as up:
        assert up.wait_ready().rows()["broker-1"][1] != f"http://127.0.0.1:{port}"


def test_permanent_failure_shows_the_log_and_backs_off(tmp_path: Path) -> None:
    """Here: a writer whose database is older than the state of the brokers."""
    data = tmp_path / "data"
    database, old = data / "metadata.sqlite", tmp_path / "old"
    for step in ("before", "after"):
        with UpProcess(data, *SMALL) as up:
            up.wait_ready()
            if step == "after":
                httpx.post(f"{up.url}/topics", json={"name": "t"}, timeout=30).raise_for_status()
            up.signal(signal.SIGTERM)
            assert up.wait() == 0
        if step == "before":
            shutil.copy(database, old)
    shutil.copy(old, database)
    with UpProcess(data, *SMALL) as up:
        up.wait_line(r"writer exited with code 5: database is behind the brokers; restarting in 10\.0 s")
        up.wait_line(r"writer \| .*flotilla admin rebuild-metadata")


def test_unready_process_is_reported_with_reason(small: UpProcess) -> None:
    os.kill(small.pids()["broker-1"], signal.SIGSTOP)
    small.wait_line("reader-1 is not ready: 0 of 1 brokers respond")
    small.wait_line("broker-1 recovered after")
    small.wait_line("reader-1 is ready again")


def test_logs_are_rotated(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "logs"
    folder.mkdir(parents=True)
    noise = b"x" * logs.LOG_BYTES_MAX + b"\n"
    log, aside = folder / "writer.log", folder / "writer.log.1"
    log.write_bytes(noise)
    with UpProcess(tmp_path / "data", *SMALL) as up:
        for turn in range(2):
            wait_until("the log to be put aside", lambda: aside.exists() and logs.size_of(log) < len(noise))
            aside.unlink()
            if turn == 0:
                up.wait_ready()
                with log.open("ab") as file:
                    file.write(noise)
    assert sum(path.stat().st_size for path in folder.glob("writer.log*")) < logs.LOG_BYTES_MAX


def test_current_folder_may_be_read_only(tmp_path: Path) -> None:
    with UpProcess(tmp_path / "data", *SMALL, cwd=Path("/proc")) as up:
        up.wait_ready()
    with UpProcess(Path(".flotilla"), *SMALL, cwd=Path("/proc")) as up:
        assert up.wait() == 3
    assert "data folder /proc/.flotilla cannot be written" in up.text()


def test_up_continues_without_a_reader_of_its_output(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with UpProcess(data, *SMALL) as up:
        up.wait_ready()
        pids = up.pids()
    wait_gone(list(pids.values()))
    command = [sys.executable, "-m", "support.uprun", "--data-dir", str(data), "--port", "0", *SMALL]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert process.stdout is not None
    process.stdout.close()
    try:
        port = re.search(r'"writer": (\d+)', (data / "ports.json").read_text())
        assert port is not None
        wait_until("the writer", lambda: _answers(int(port[1])))
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def test_process_ends_with_its_parent_without_pdeathsig(tmp_path: Path) -> None:
    """Without PR_SET_PDEATHSIG, a pipe that only the parent holds reports its end."""
    life, ours = os.pipe()
    script = "import sys, time; from flotilla.up.child import watch; watch(int(sys.argv[1])); print(); time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", script, str(life)], stdout=subprocess.PIPE, pass_fds=[life], cwd=tmp_path
    )
    os.close(life)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        os.close(ours)
        assert child.wait(10) == -signal.SIGKILL


def test_child_of_a_dead_parent_does_not_start() -> None:
    command = [sys.executable, "-m", "flotilla.up.child", "1", "0", "name", "this"]
    assert subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 1
