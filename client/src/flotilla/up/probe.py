"""Asks a process on the loopback how it is: a GET over a fresh connection, with a limit on time and on size."""

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
    """How a process is."""

    alive: bool
    ready: bool = False
    reason: str = ""


async def ask(port: int, timeout_s: float = PROBE_S_MAX) -> Health:
    """Ask whether it lives and, if so, whether it is ready."""
    if await get(port, "/healthz", timeout_s) is None:
        return Health(alive=False)
    found = await get(port, "/readyz", timeout_s)
    if found is None:
        return Health(alive=True, reason="no answer to /readyz")
    status, body = found
    return Health(alive=True, ready=True) if status == _OK else Health(alive=True, reason=read_reason(status, body))


async def get(port: int, path: str, timeout_s: float) -> tuple[int, bytes] | None:
    """Get a path; None if there is no answer in time, or none that is HTTP."""
    try:
        async with asyncio.timeout(timeout_s):
            return parse(await _exchange(port, path))
    except (OSError, ValueError):  # a TimeoutError is an OSError
        return None


def parse(answer: bytes) -> tuple[int, bytes]:
    """Split an answer into status and body; raises ValueError."""
    head, _, body = answer.partition(b"\r\n\r\n")
    protocol, status = head.split(b"\r\n")[0].split()[:2]
    if not protocol.startswith(b"HTTP/1."):
        raise ValueError(f"this is not HTTP: {protocol[:20]!r}")
    return int(status), body


def read_reason(status: int, body: bytes) -> str:
    """Find out from an answer why the process is not ready."""
    try:
        found = json.loads(body)
    except ValueError:
        return f"/readyz answers {status}"
    if not isinstance(found, dict):
        return f"/readyz answers {status}"
    reasons = found.get("reasons") or found.get("message") or f"/readyz answers {status}"
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
