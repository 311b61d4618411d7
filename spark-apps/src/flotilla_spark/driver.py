"""Entry point of driver pods: `python3 -m flotilla_spark.driver APPLICATION ARGUMENT …`.

APPLICATION is a module such as flotilla_spark.archive, or a Python file. The driver configures Spark from environment
variables, so that `SparkSession.builder.getOrCreate()` of the application returns the configured session. It serves the
progress of queries (see `progress`), and writes the reason of a failure to the termination log of the pod.
"""

import contextlib
import json
import os
import runpy
import signal
import sys
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

_FOLDER = Path("/tmp/spark")  # noqa: S108 - a volume of the pod
_MESSAGE_BYTES_MAX = 4000  # Kubernetes keeps 4096 bytes
_FAILURE_MAX = 1500
_USAGE = (
    "usage: driver APPLICATION [ARGUMENT ...]\n\n"
    "Run a Spark application: a module such as flotilla_spark.archive, or a Python file.\n"
)
_STOPPED = 128 + signal.SIGTERM
_SIGTERM_REASON = "The driver was stopped by SIGTERM"


class TeeStream:
    """Forwards writes to a stream, and keeps the last lines."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._lines: deque[str] = deque(maxlen=5)

    def write(self, text: str) -> int:
        """Write text."""
        self._lines.extend(line for line in text.splitlines() if line.strip())
        return self._to.write(text)

    def last(self) -> str:
        """Return the last line that was not empty."""
        return self._lines[-1] if self._lines else ""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a stream in all other respects
        return getattr(self._to, name)


def write_settings(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write Spark's configuration files; return the environment variables that point to them."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = json.loads(environment.get("SPARK_PROPERTIES", "{}"))
    lines = (f"{name} {_escape(str(value))}\n" for name, value in sorted(properties.items()))
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    (folder / "executor.json").write_text(environment.get("SPARK_EXECUTOR_TEMPLATE", "{}"), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder)}


def _escape(value: str) -> str:
    """Escape a value for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def termination_message(failure: str | None, progress: dict[str, Any] | None) -> bytes:
    """Return failure and progress as JSON, within the size limit of Kubernetes."""
    shown = failure[:_FAILURE_MAX] if failure is not None else None
    for shown_progress in (progress, {**progress, "offsets": {}} if progress is not None else None, None):
        found = json.dumps({"failure": shown, "progress": shown_progress}).encode()
        if len(found) <= _MESSAGE_BYTES_MAX:
            return found
    return json.dumps({"failure": (shown or "")[:200], "progress": None}).encode()


def run(target: str, arguments: Sequence[str]) -> int:
    """Run an application as `python` does; return its exit code."""
    sys.argv = [target, *arguments]
    try:
        if target.endswith(".py"):
            sys.path.insert(0, str(Path(target).parent))
            runpy.run_path(target, run_name="__main__")
        else:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)  # noqa: T201 - as Python does
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


def failure_reason(code: int, last: str) -> str | None:
    """Return why an application failed: its last line on standard error, or the exit code; None if it succeeded."""
    if code == _STOPPED:
        return _SIGTERM_REASON
    return None if code == 0 else last or f"The application exited with code {code}"


def _stop(_: int, __: FrameType | None) -> None:
    raise SystemExit(_STOPPED)


def main(arguments: Sequence[str]) -> int:
    """Configure Spark, run the application, and write the termination message."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_USAGE, end="")  # noqa: T201 - help output
        return 0 if arguments else 2
    stderr = TeeStream(sys.stderr)
    sys.stderr = stderr
    os.environ.update(write_settings(os.environ, _FOLDER))
    from pyspark.sql import SparkSession  # noqa: PLC0415 - reads the configuration at import

    from flotilla_spark.failures import summarize_failure  # noqa: PLC0415
    from flotilla_spark.progress import ProgressListener, ProgressReport, ProgressServer  # noqa: PLC0415

    report = ProgressReport()
    failure: str | None = None
    with ProgressServer(report, int(os.environ.get("FLOTILLA_PROGRESS_PORT", "4041"))):
        try:
            session = SparkSession.builder.getOrCreate()
            session.streams.addListener(ProgressListener(report))
            signal.signal(signal.SIGTERM, _stop)
            code = run(arguments[0], arguments[1:])
            failure = failure_reason(code, stderr.last())
        except SystemExit:
            code, failure = _STOPPED, _SIGTERM_REASON
        except Exception as error:  # noqa: BLE001 - an application can raise anything
            traceback.print_exc()
            code, failure = 1, summarize_failure(str(error)) or type(error).__name__
        finally:
            _stop_session()
    log = Path(os.environ.get("TERMINATION_LOG", "/dev/termination-log"))
    with contextlib.suppress(OSError):  # exists only in pods
        log.write_bytes(termination_message(failure, report.snapshot()))
    return code


def _stop_session() -> None:
    """Stop the session if the application has not, so that executors exit at once."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session = SparkSession.getActiveSession()
    if session is not None:
        with contextlib.suppress(Exception):  # the JVM may have exited
            session.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
