"""What a driver's pod runs: `python3 -m flotilla_spark.driver APPLICATION ARGUMENT …`.

APPLICATION is a module, as in flotilla_spark.archive, or a Python file. It finds a session of Spark that is set up as
the pod's variables say, by `SparkSession.builder.getOrCreate()`; how far its queries are can be asked meanwhile (see
`reporting`); and what it fails with is left where Kubernetes shows it.
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

_FOLDER = Path("/tmp/spark")  # noqa: S108 - the pod's own
_FAREWELL_MAX = 4000  # Kubernetes keeps 4096 bytes
_FAILURE_MAX = 1500
_USAGE = (
    "usage: driver APPLICATION [ARGUMENT ...]\n\nAPPLICATION is a module, as in flotilla_spark.archive, or a file.\n"
)
_STOPPED = 128 + signal.SIGTERM


class Memory:
    """Passes on what is written, and remembers the last lines."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._lines: deque[str] = deque(maxlen=5)

    def write(self, text: str) -> int:
        """Write."""
        self._lines.extend(line for line in text.splitlines() if line.strip())
        return self._to.write(text)

    def last(self) -> str:
        """Give the last line that was not empty."""
        return self._lines[-1] if self._lines else ""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it is a file in all else
        return getattr(self._to, name)


def write_settings(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write Spark's settings where it reads them; return the variables that say where that is."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = json.loads(environment.get("SPARK_PROPERTIES", "{}"))
    lines = (f"{name} {_escape(str(value))}\n" for name, value in sorted(properties.items()))
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    (folder / "executor.json").write_text(environment.get("SPARK_EXECUTOR_TEMPLATE", "{}"), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder)}


def _escape(value: str) -> str:
    """Write a value as a file of Java's properties has it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def farewell(failure: str | None, progress: dict[str, Any] | None) -> bytes:
    """Write down how it ended, in as many bytes as there may be."""
    shown = failure[:_FAILURE_MAX] if failure is not None else None
    for told in (progress, {**progress, "offsets": {}} if progress is not None else None, None):
        found = json.dumps({"failure": shown, "progress": told}).encode()
        if len(found) <= _FAREWELL_MAX:
            return found
    return json.dumps({"failure": (shown or "")[:200], "progress": None}).encode()


def run(target: str, arguments: Sequence[str]) -> int:
    """Run an application, as Python would; return its exit code."""
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


def explain_code(code: int, last: str) -> str | None:
    """Say why an application failed, which has told so in its last line; None if it has not."""
    if code == _STOPPED:
        return "it was told to end"
    return None if code == 0 else last or f"it ended with code {code}"


def _stop(_: int, __: FrameType | None) -> None:
    raise SystemExit(_STOPPED)


def main(arguments: Sequence[str]) -> int:
    """Set Spark up, run the application, and leave word of how it ended."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_USAGE, end="")  # noqa: T201 - for people
        return 0 if arguments else 2
    memory = Memory(sys.stderr)
    sys.stderr = memory
    os.environ.update(write_settings(os.environ, _FOLDER))
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it reads the settings

    from flotilla_spark.explaining import explain  # noqa: PLC0415
    from flotilla_spark.reporting import Listener, Report, Server  # noqa: PLC0415

    report = Report()
    failure: str | None = None
    with Server(report, int(os.environ.get("FLOTILLA_PROGRESS_PORT", "4041"))):
        try:
            session = SparkSession.builder.getOrCreate()
            session.streams.addListener(Listener(report))
            signal.signal(signal.SIGTERM, _stop)
            code = run(arguments[0], arguments[1:])
            failure = explain_code(code, memory.last())
        except SystemExit:
            code, failure = _STOPPED, "it was told to end"
        except Exception as error:  # noqa: BLE001 - whatever an application raises
            traceback.print_exc()
            code, failure = 1, explain(str(error)) or type(error).__name__
        finally:
            _close()
    log = Path(os.environ.get("TERMINATION_LOG", "/dev/termination-log"))
    with contextlib.suppress(OSError):  # there is one in pods alone
        log.write_bytes(farewell(failure, report.look()))
    return code


def _close() -> None:
    """End the session, if the application has not: so executors go at once."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session = SparkSession.getActiveSession()
    if session is not None:
        with contextlib.suppress(Exception):  # Java may be gone before us
            session.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
