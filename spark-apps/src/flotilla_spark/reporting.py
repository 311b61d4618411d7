"""How far the queries of this driver are, for whoever asks: `GET /progress`. The operator does, and shows it."""

import json
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

Offsets = dict[str, dict[str, int]]


def merge(found: Iterable[Offsets]) -> Offsets:
    """Take the offsets of several queries together: what all of them have read counts."""
    merged: Offsets = {}
    for offsets in found:
        for topic, partitions in offsets.items():
            kept = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                kept[partition] = min(offset, kept.get(partition, offset))
    return merged


def read_offsets(text: str | None) -> Offsets:
    """Read the offsets of a source; those of others than ours are none."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    is_ours = isinstance(found, dict) and all(
        isinstance(some, dict) and all(isinstance(one, int) for one in some.values()) for some in found.values()
    )
    return found if is_ours else {}


class Report:
    """What is known of all queries. Spark tells it in one thread, and others ask in theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets: dict[str, Offsets] = {}
        self._last: dict[str, Any] | None = None

    def hear(self, query: str, progress: Mapping[str, Any], offsets: Iterable[Offsets]) -> None:
        """Take in that a micro-batch was committed."""
        with self._lock:
            self._offsets[query] = merge(offsets)
            self._last = dict(progress)

    def look(self) -> dict[str, Any] | None:
        """Tell what is known; None before anything was committed."""
        with self._lock:
            if self._last is None:
                return None
            return {**self._last, "offsets": merge(self._offsets.values())}


class Listener(StreamingQueryListener):
    """Hears of micro-batches."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Hear that a query has begun, which is no progress."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Hear that there is nothing to do, which is no progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Hear that a query has ended; what it has read stays read."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Hear that a micro-batch is done: its offsets are in the checkpoint by then."""
        told = event.progress
        seconds = max(told.batchDuration, 1) / 1000
        shown = {
            "time": f"{told.timestamp[:19]}Z",
            "batch": told.batchId,
            "records": told.numInputRows,
            "records_per_second": int(told.numInputRows / seconds),
        }
        self._report.hear(str(told.id), shown, [read_offsets(one.endOffset) for one in told.sources])


class Server:
    """Answers who asks, until it is closed."""

    def __init__(self, report: Report, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path == "/progress"
                body = json.dumps(report.look()).encode() if is_known else b"there is only /progress\n"
                self.send_response(200 if is_known else 404)
                self.send_header("content-type", "application/json" if is_known else "text/plain")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing: somebody asks every few seconds."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
