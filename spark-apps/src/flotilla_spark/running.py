"""A job from its start to its end: by itself, by a failure, or because somebody asked for it.

SIGINT and SIGTERM stop it, and the exit code is 130 or 143: an application that was stopped is not done, which is what
Kubernetes wants to know. A second signal does not wait. What was being done then is done by the next run.
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
from flotilla_spark.explaining import explain
from flotilla_spark.sessions import make_session

_LOOK_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BASE = 128  # shells add the signal to it


class Work(Protocol):
    """What runs."""

    def wait(self, seconds: float) -> bool:
        """Wait for the end, for so long; tell whether it came. Raises what it failed with."""

    def stop(self) -> None:
        """Have it end."""

    def summary(self) -> str:
        """Tell what was done."""


class StreamWork:
    """A streaming query."""

    def __init__(self, query: StreamingQuery, on_late: Callable[[], None] | None = None) -> None:
        self._query = query
        self._on_late = on_late
        self._seen = -1
        self._has_late = False
        self.records = 0

    def wait(self, seconds: float) -> bool:
        """Wait, and see how far it is."""
        is_over = bool(self._query.awaitTermination(max(seconds, 0.001)))  # type: ignore[arg-type]
        for one in self._query.recentProgress:
            if one["batchId"] > self._seen or (one["batchId"] == self._seen and one["numInputRows"] > 0):
                self.records += 0 if one["batchId"] == self._seen else one["numInputRows"]
                self._seen = one["batchId"]
                self._has_late |= any(state["numRowsDroppedByWatermark"] > 0 for state in one["stateOperators"])
        if self._has_late and self._on_late is not None:
            self._on_late()
        return is_over

    def stop(self) -> None:
        """Have it end: what it has begun is done again by the next run."""
        self._query.stop()

    def summary(self) -> str:
        """Tell how many records were read."""
        late = "; some came later than --late, and are not counted" if self._has_late else ""
        return f"{self.records:,} records were read{late}"


class Stopping:
    """Notes signals."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def listen(self) -> None:
        """Be the one who is told. Spark wants to be that itself, whenever a session begins."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._note)

    def leave(self) -> None:
        """Leave it to others again."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.caught is not None:
            os._exit(_BASE + number)
        self.caught = number


def run(name: str, options: argparse.Namespace, start: Callable[[SparkSession, argparse.Namespace], Work]) -> int:
    """Run a job, and tell what came of it on standard error; return the exit code. Raises ApplicationError."""
    stopping = Stopping()
    stopping.listen()
    session = None
    began_s = time.monotonic()
    if sys.stderr.isatty():
        print(f"flotilla-spark {name}: Spark is starting, which takes some seconds", file=sys.stderr, flush=True)  # noqa: T201
    try:
        session = make_session(name, is_verbose=options.verbose)
        stopping.listen()
        work = start(session, options)
        while not work.wait(_LOOK_S) and stopping.caught is None:
            pass
        if stopping.caught is not None:
            work.stop()
        took_s = time.monotonic() - began_s
        how = f" in {took_s:.1f} s" if stopping.caught is None else f" in {took_s:.1f} s, until it was stopped"
        print(f"flotilla-spark {name}: {work.summary()}{how}", file=sys.stderr, flush=True)  # noqa: T201 - for people
    except ApplicationError:
        raise
    except Exception as error:  # whatever Spark raises, of which there is much
        if stopping.caught is None:
            raise JobFailed(explain(str(error))) from error
    finally:
        _close(session)
        stopping.leave()
    return 0 if stopping.caught is None else _BASE + stopping.caught


def _close(session: SparkSession | None) -> None:
    """End the session. Java may be gone before us, when a signal went to it as well."""
    if session is not None:
        with contextlib.suppress(Exception):
            session.stop()
