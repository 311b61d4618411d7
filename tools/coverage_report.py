"""Run tests under coverage.py and print the share of executed statements of each package.

Usage: coverage_report.py [PATH ...]     (default: tests/unit, tests/sim and tests/smoke)

The exit code is that of pytest. build/coverage/report.json has the figures of each file, and the lines that no test
executed.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
DATA = ROOT / "build" / "coverage"
REPORT = DATA / "report.json"
DEFAULT = ("tests/unit", "tests/sim", "tests/smoke")
PROCESSES_MAX = 4
PACKAGES = {
    "flotilla": "client/src/flotilla",
    "flotilla_server": "server/src/flotilla_server",
    "flotilla_broker": "broker/src/flotilla_broker",
    "flotilla_manager": "manager/src/flotilla_manager",
    "flotilla_operator": "operator/src/flotilla_operator",
    "flotilla_spark": "spark-apps/src/flotilla_spark",
    "pyspark_flotilla": "spark-apps/src/pyspark_flotilla",
}


def run_tests(paths: Sequence[str]) -> int:
    """Run tests, and collect the data of all processes into one report; return the exit code of pytest."""
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    in_parallel = ("--numprocesses=auto", f"--maxprocesses={PROCESSES_MAX}", "--dist=worksteal")
    code = _coverage("run", "-m", "pytest", "-q", *in_parallel, *paths)
    _coverage("combine", "--quiet", check=True)
    _coverage("json", "--quiet", "-o", str(REPORT), check=True)
    return code


def make_table(files: Mapping[str, Any]) -> str:
    """Make a table with one line per package from the files of a JSON report of coverage.py."""
    lines = [f"{'package':<20}{'statements':>12}{'executed':>12}{'coverage':>10}"]
    for name, folder in PACKAGES.items():
        found = [file["summary"] for path, file in files.items() if Path(path).is_relative_to(folder)]
        statements = sum(summary["num_statements"] for summary in found)
        executed = sum(summary["covered_lines"] for summary in found)
        share = executed / statements if statements else 0
        lines.append(f"{name:<20}{statements:>12}{executed:>12}{share:>10.1%}")
    return "\n".join(lines)


def _coverage(*arguments: str, check: bool = False) -> int:
    return subprocess.run([str(BIN / "coverage"), *arguments], cwd=ROOT, check=check).returncode


def main(arguments: Sequence[str]) -> int:
    """Run the tests and print the table."""
    paths = list(arguments) or [path for path in DEFAULT if (ROOT / path).exists()]
    code = run_tests(paths)
    print(make_table(json.loads(REPORT.read_text(encoding="utf-8"))["files"]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
