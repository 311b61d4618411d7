"""Stands in for a manager where only processes matter: the same arguments, ports, health and exit codes.

A test tells it how to behave through files in the folder `STANDIN_FOLDER`, each named for the manager: `<name>.exit`
has an exit code, `<name>.unready` has a reason, `<name>.noise` has a number of bytes to log at once.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

FOLDER = Path(os.environ.get("STANDIN_FOLDER", "."))
_EXIT_PORT = 4


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("role", "name", "host", "port", "reuse-port", "own-port", "url", "database", "log-level"):
        parser.add_argument(f"--{name}")
    found = parser.parse_args()
    told = FOLDER / f"{found.name}.exit"
    if told.exists():
        _log(f"{found.name} was told to end")
        return int(told.read_text())
    noise = FOLDER / f"{found.name}.noise"
    if noise.exists():
        _log("x" * int(noise.read_text()))
    try:
        servers = [_serve(found.name, found.host, int(found.port), shared=found.reuse_port == "true")]
        if found.own_port is not None:
            servers.append(_serve(found.name, urlsplit(found.url).hostname or "", int(found.own_port), shared=False))
    except OSError as error:
        _log(f"{found.name}: {error}")
        return _EXIT_PORT
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def _log(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _serve(name: str, host: str, port: int, *, shared: bool) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            unready = FOLDER / f"{name}.unready"
            if self.path == "/readyz" and unready.exists():
                self._answer(503, {"status": "unready", "reasons": [unready.read_text()]})
            else:
                self._answer(200, {"status": "success", "name": name, "pid": os.getpid()})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self._answer(200, {"status": "success"})

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing of each request."""

    server = ThreadingHTTPServer((host, port), Handler, bind_and_activate=False)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.server_bind()
    server.server_activate()
    return server


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
