"""The PostgreSQL of the tests leaves nothing behind."""

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

from support import postgres
from support.cluster import wait_until

HOLDER = """
import sys
from support.postgres import running_postgres
with running_postgres() as server:
    print(server.port, server.folder, flush=True)
    sys.stdin.read()
"""


def test_server_stops_and_its_folder_is_deleted_when_its_user_is_killed() -> None:
    command = [sys.executable, "-c", HOLDER]
    environment = {"PYTHONPATH": str(Path(postgres.__file__).parent.parent)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        port, folder = holder.stdout.readline().split()
        assert answers(int(port))
        holder.kill()
    wait_until("the server to end", lambda: not answers(int(port)))
    wait_until("its folder to go", lambda: not Path(folder).exists())


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
