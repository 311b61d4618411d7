"""The script of the chart that runs PostgreSQL, with a real PostgreSQL."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg2
import pytest

from cluster.harness.images import CHART
from support import postgres
from support.cluster import free_port, wait_until

SCRIPT = CHART / "files" / "postgresql.sh"
_END_S = 30
_ODD_PASSWORD = r"it's 100% \odd"  # noqa: S105 - of a test


class Pod:
    """The environment of the script in its pod: a volume, and mounted files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "volume" / "postgresql"
        self.port = free_port()
        self.log = folder / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("volume", "sockets"):
            (folder / name).mkdir()
            os.chown(folder / name, postgres._uid(), -1)
        self.set_password("first")
        hba = "local all all trust\nhost flotilla flotilla all scram-sha-256\n"
        (folder / "pg_hba.conf").write_text(hba, encoding="utf-8")

    def set_password(self, password: str) -> None:
        (self.folder / "password").write_text(password + "\n", encoding="utf-8")

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run the script with arguments."""
        environment = {
            "PATH": f"{postgres._bin()}:{os.environ['PATH']}",
            "DATA": str(self.data),
            "SOCKETS": str(self.folder / "sockets"),
            "HBA_FILE": str(self.folder / "pg_hba.conf"),
            "PASSWORD_FILE": str(self.folder / "password"),
            "PGPORT": str(self.port),
        }
        user: dict[str, Any] = {}
        if postgres._uid() != os.geteuid():
            user = {"user": postgres._uid(), "group": postgres._uid(), "extra_groups": []}
        with self.log.open("ab") as log:
            # Passed as text: the user of PostgreSQL may not be able to read a checkout in a home directory.
            command = ["/bin/sh", "-c", SCRIPT.read_text(encoding="utf-8"), str(SCRIPT), *arguments]
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd="/", **user)

    def start(self) -> subprocess.Popen[bytes]:
        self._process = self.run("start", "--max_connections=20", "--fsync=off")
        return self._process

    def is_ready(self) -> bool:
        return self.run("ready").wait(_END_S) == 0

    def await_ready(self) -> None:
        def check() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()[-2000:]
            return self.is_ready()

        wait_until("PostgreSQL to be ready", check)

    def query(self, question: str, password: str = "first") -> Any:  # noqa: ANN401, S107 - of any type; a test's
        where = {"host": "127.0.0.1", "port": self.port, "user": "flotilla", "dbname": "flotilla"}
        connection = psycopg2.connect(**where, password=password, connect_timeout=5)
        with connection, connection.cursor() as cursor:
            cursor.execute(question)
            found = cursor.fetchone() if cursor.description else None
        connection.close()
        return None if found is None else found[0]

    def stop(self) -> int:
        """Terminate the script as Kubernetes does; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_END_S)

    def kill(self) -> None:
        """Kill all processes. The script ends last: it reaps the others, so that their process ids are free."""
        assert self._process is not None
        kill_children(self._process.pid)
        self._process.wait(_END_S)

    def clear(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def kill_children(pid: int) -> None:
    """Kill the descendants of a process. Children of a server that was just killed exit by themselves."""
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@pytest.fixture
def pod() -> Iterator[Pod]:
    with postgres.postgres_folder() as folder:
        made = Pod(folder)
        yield made
        made.clear()


def test_data_survives_a_restart_and_a_kill(pod: Pod) -> None:
    pod.start()
    pod.await_ready()
    pod.query("CREATE TABLE kept AS SELECT 1 AS number")
    assert pod.query("SHOW max_connections") == "20"
    assert pod.stop() == 0
    pod.start()
    pod.await_ready()
    pod.query("INSERT INTO kept VALUES (2)")
    pod.kill()
    pod.start()
    pod.await_ready()
    assert pod.query("SELECT sum(number) FROM kept") == 3


def test_connected_client_does_not_delay_shutdown(pod: Pod) -> None:
    pod.start()
    pod.await_ready()
    client = psycopg2.connect(
        host="127.0.0.1",
        port=pod.port,
        user="flotilla",
        dbname="flotilla",
        password="first",  # noqa: S106 - of a test
    )
    began = time.monotonic()
    assert pod.stop() == 0
    assert time.monotonic() - began < 20
    client.close()
    assert "received fast shutdown request" in pod.log.read_text()


def test_password_follows_the_secret_at_each_start(pod: Pod) -> None:
    pod.start()
    pod.await_ready()
    pod.stop()
    pod.set_password(_ODD_PASSWORD)
    pod.start()
    pod.await_ready()
    assert pod.query("SELECT current_user", _ODD_PASSWORD) == "flotilla"
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        pod.query("SELECT 1", "first")


def test_killed_initdb_leaves_no_partial_data(pod: Pod) -> None:
    pod.start()
    half = pod.data.with_name("postgresql.new")
    wait_until("initdb to begin", half.exists)
    pod.kill()
    assert not pod.data.exists()
    pod.start()
    pod.await_ready()
    assert pod.query("SELECT current_database()") == "flotilla"
    assert not half.exists()


def test_data_of_another_version_is_rejected_and_kept(pod: Pod) -> None:
    pod.start()
    pod.await_ready()
    pod.stop()
    (pod.data / "PG_VERSION").write_text("9\n")
    assert pod.start().wait(_END_S) == 1
    assert "has data of PostgreSQL 9, but the image contains PostgreSQL 18" in pod.log.read_text()
    (pod.data / "PG_VERSION").write_text("18\n")
    pod.start()
    pod.await_ready()


def test_group_access_to_the_data_folder_is_accepted(pod: Pod) -> None:
    pod.start()
    pod.await_ready()
    pod.stop()
    pod.data.chmod(0o2770)
    pod.start()
    pod.await_ready()


def test_second_server_waits_for_the_first_to_stop(pod: Pod) -> None:
    """A pod that was deleted by force still runs when the next one starts. Two servers would corrupt the data."""
    first = pod.start()
    pod.await_ready()
    pod.query("CREATE TABLE kept AS SELECT 1 AS number")
    (pod.data / "postmaster.pid").write_text(
        "999999\n", encoding="utf-8"
    )  # as in another container: an unknown process id
    second = pod.run("start", "--max_connections=20", "--fsync=off")
    wait_until("the second to wait", lambda: "is locked by another server; waiting" in pod.log.read_text())
    assert pod.query("SELECT number FROM kept") == 1
    kill_children(first.pid)
    first.wait(_END_S)
    pod._process = second
    pod.await_ready()
    assert pod.query("SELECT number FROM kept") == 1
    assert pod.stop() == 0
