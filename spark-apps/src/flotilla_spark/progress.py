"""Progress of the queries of a driver, served as `GET /progress` for the operator."""

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
    """Merge the offsets of several queries: the lowest offset of each partition."""
    merged: Offsets = {}
    for offsets in found:
        for topic, partitions in offsets.items():
            kept = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                kept[partition] = min(offset, kept.get(partition, offset))
    return merged


def read_offsets(text: str | None) -> Offsets:
    """Parse the offsets of a source; empty for sources of other formats."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    is_ours = isinstance(found, dict) and all(
        isinstance(some, dict) and all(isinstance(one, int) for one in some.values()) for some in found.values()
    )
    return found if is_ours else {}


class ProgressReport:
    """Progress of all queries. Thread-safe: Spark writes in one thread, requests read in others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets: dict[str, Offsets] = {}
        self._last: dict[str, Any] | None = None

    def record(self, query: str, progress: Mapping[str, Any], offsets: Iterable[Offsets]) -> None:
        """Record a committed micro-batch."""
        with self._lock:
            self._offsets[query] = merge(offsets)
            self._last = dict(progress)

    def snapshot(self) -> dict[str, Any] | None:
        """Return the progress; None before the first committed micro-batch."""
        with self._lock:
            if self._last is None:
                return None
            return {**self._last, "offsets": merge(self._offsets.values())}


class ProgressListener(StreamingQueryListener):
    """Records the progress of micro-batches."""

    def __init__(self, report: ProgressReport) -> None:
        super().__init__()
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Ignore the event: no progress."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Ignore the event: no progress."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Ignore the event: the progress of ended queries is kept."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Record a micro-batch, whose offsets are in the checkpoint by now."""
        progress = event.progress
        seconds = max(progress.batchDuration, 1) / 1000
        shown = {
            "time": f"{progress.timestamp[:19]}Z",
            "batch": progress.batchId,
            "records": progress.numInputRows,
            "records_per_second": int(progress.numInputRows / seconds),
        }
        self._report.record(str(progress.id), shown, [read_offsets(one.endOffset) for one in progress.sources])


class ProgressServer:
    """Serves the progress until it is closed."""

    def __init__(self, report: ProgressReport, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path == "/progress"
                body = json.dumps(report.snapshot()).encode() if is_known else b"not found; use /progress\n"
                self.send_response(200 if is_known else 404)
                self.send_header("content-type", "application/json" if is_known else "text/plain")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log no requests: the operator polls every few seconds."""

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
