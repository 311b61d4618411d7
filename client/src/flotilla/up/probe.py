"""Health probes of processes on the loopback: a GET on a new connection, with limits of time and size."""

import asyncio
import json
from dataclasses import dataclass

from flotilla.up.plan import LOOPBACK

PROBE_S_MAX = 2.0
_ANSWER_BYTES_MAX = 64 << 10
_REASON_CHARS_MAX = 200
_OK = 200


@dataclass(frozen=True)
class Health:
    """Health of a process."""

    alive: bool
    ready: bool = False
    reason: str = ""


async def check(port: int, timeout_s: float = PROBE_S_MAX) -> Health:
    """Probe liveness and readiness of a process."""
    if await get(port, "/healthz", timeout_s) is None:
        return Health(alive=False)
    found = await get(port, "/readyz", timeout_s)
    if found is None:
        return Health(alive=True, reason="no answer to /readyz")
    status, body = found
    return Health(alive=True, ready=True) if status == _OK else Health(alive=True, reason=read_reason(status, body))


async def get(port: int, path: str, timeout_s: float) -> tuple[int, bytes] | None:
    """Get a path; None without an HTTP response in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return parse(await _exchange(port, path))
    except (OSError, ValueError):  # a TimeoutError is an OSError
        return None


def parse(answer: bytes) -> tuple[int, bytes]:
    """Parse a response into status and body; raises ValueError."""
    head, _, body = answer.partition(b"\r\n\r\n")
    protocol, status = head.split(b"\r\n")[0].split()[:2]
    if not protocol.startswith(b"HTTP/1."):
        raise ValueError(f"not an HTTP response: {protocol[:20]!r}")
    return int(status), body


def read_reason(status: int, body: bytes) -> str:
    """Read from a response why the process is not ready."""
    try:
        found = json.loads(body)
    except ValueError:
        return f"/readyz returned {status}"
    if not isinstance(found, dict):
        return f"/readyz returned {status}"
    reasons = found.get("reasons") or found.get("message") or f"/readyz returned {status}"
    text = "; ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons)
    return " ".join(text.split())[:_REASON_CHARS_MAX]


async def _exchange(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=_ANSWER_BYTES_MAX)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {LOOPBACK}:{port}\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while len(answer) < _ANSWER_BYTES_MAX and (part := await reader.read(_ANSWER_BYTES_MAX)):
            answer += part
        return answer
    finally:
        writer.transport.abort()
