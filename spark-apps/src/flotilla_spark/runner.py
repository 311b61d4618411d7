"""Runs a job until it ends, fails, or is stopped by a signal.

SIGINT and SIGTERM stop it with exit code 130 or 143, so that Kubernetes sees that it has not finished. A second signal
exits at once. The next run repeats unfinished micro-batches.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from flotilla_spark.errors import ApplicationError, JobFailed
from flotilla_spark.failures import summarize_failure
from flotilla_spark.sessions import disable_logging, make_session

_POLL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BASE = 128  # shells add the signal number


class Job(Protocol):
    """A running application."""

    def wait(self, seconds: float) -> bool:
        """Wait for the end, up to `seconds`; return whether it ended. Raises the error of a failed job."""

    def stop(self) -> None:
        """Stop it."""

    def summary(self) -> str:
        """Describe the result."""


class StreamJob:
    """A streaming query."""

    def __init__(self, query: StreamingQuery, on_late: Callable[[], None] | None = None) -> None:
        self._query = query
        self._on_late = on_late
        self._last_batch = -1
        self._has_late = False
        self.records = 0

    def wait(self, seconds: float) -> bool:
        """Wait, and count the records of new micro-batches."""
        is_over = bool(self._query.awaitTermination(max(seconds, 0.001)))  # type: ignore[arg-type]
        for one in self._query.recentProgress:
            if one["batchId"] > self._last_batch or (one["batchId"] == self._last_batch and one["numInputRows"] > 0):
                self.records += 0 if one["batchId"] == self._last_batch else one["numInputRows"]
                self._last_batch = one["batchId"]
                self._has_late |= any(state["numRowsDroppedByWatermark"] > 0 for state in one["stateOperators"])
        if self._has_late and self._on_late is not None:
            self._on_late()
        return is_over

    def stop(self) -> None:
        """Stop the query. The next run repeats an unfinished micro-batch."""
        self._query.stop()

    def summary(self) -> str:
        """Return the number of records."""
        late = "; some lines arrived later than --late and were not counted" if self._has_late else ""
        return f"{self.records:,} records read{late}"


class SignalWatch:
    """Records SIGINT and SIGTERM."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def install(self) -> None:
        """Install the handlers. Spark replaces them when a session starts, so call this again afterwards."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._handle)

    def restore(self) -> None:
        """Restore the previous handlers."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.caught is not None:
            os._exit(_BASE + number)
        self.caught = number


def run(name: str, options: argparse.Namespace, start: Callable[[SparkSession, argparse.Namespace], Job]) -> int:
    """Run a job and print its summary to standard error; return the exit code. Raises ApplicationError."""
    signals = SignalWatch()
    signals.install()
    session = None
    began_s = time.monotonic()
    if sys.stderr.isatty():
        print(f"flotilla-spark {name}: starting Spark, this takes a few seconds", file=sys.stderr, flush=True)  # noqa: T201
    try:
        session = make_session(name, is_verbose=options.verbose)
        signals.install()
        job = start(session, options)
        while not job.wait(_POLL_S) and signals.caught is None:
            pass
        if signals.caught is not None:
            disable_logging(session, is_verbose=options.verbose)
            job.stop()
        took_s = time.monotonic() - began_s
        how = f" in {took_s:.1f} s" if signals.caught is None else f" in {took_s:.1f} s (stopped)"
        print(f"flotilla-spark {name}: {job.summary()}{how}", file=sys.stderr, flush=True)  # noqa: T201 - summary
    except ApplicationError:
        raise
    except Exception as error:  # Spark raises many kinds
        if signals.caught is None:
            raise JobFailed(summarize_failure(str(error))) from error
    finally:
        _close(session)
        signals.restore()
    return 0 if signals.caught is None else _BASE + signals.caught


def _close(session: SparkSession | None) -> None:
    """Stop the session. The JVM may have exited, if it received the signal as well."""
    if session is not None:
        with contextlib.suppress(Exception):
            session.stop()
