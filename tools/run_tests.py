"""Run the stages of `make test` and close with a table: what ran, what was skipped, why, and how to enable it.

Usage: run_tests.py [STAGE ...]     (default: all stages)

With CI=true a skipped test or stage is a failure: there, everything that can run must run.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
JAVA = 17
WORKERS_MAX = 4


@dataclass(frozen=True)
class Result:
    """What one stage came to."""

    stage: str
    passed: int
    failed: int
    skipped: tuple[str, ...]
    seconds: float


def lint() -> Result:
    """Run all linters at once, and show what each says, one after the other: one run shows everything."""
    commands = (["ruff", "format", "--check", "--diff"], ["ruff", "check"], ["mypy"], ["lint-imports"])
    started = time.monotonic()
    with ThreadPoolExecutor(len(commands)) as pool:
        done = pool.map(_capture, ([str(BIN / name), *arguments] for name, *arguments in commands))
        failed = sum(_show(each) != 0 for each in done)
    return Result("lint", len(commands) - failed, failed, (), time.monotonic() - started)


def side_by_side(dist: str) -> tuple[str, ...]:
    """Say how tests run at the same time: one process for each core, to which files go whole or test by test."""
    workers = min(WORKERS_MAX, os.cpu_count() or 1)
    return (f"--numprocesses={workers}", f"--dist={dist}") if workers > 1 else ()


def pytest_stage(folder: str, *options: str) -> Callable[[], Result]:
    """Make a stage of the tests in tests/`folder`."""

    def run() -> Result:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch) / "report.json"
            code = _call([str(BIN / "pytest"), f"tests/{folder}", f"--report-file={report}", *options])
            found: dict[str, Any] = {"passed": 0, "failed": 0, "skipped": []}
            if report.exists():
                found = json.loads(report.read_text())
        failed = found["failed"] or int(code != 0)
        return Result(folder, found["passed"], failed, tuple(found["skipped"]), time.monotonic() - started)

    return run


def system() -> Result:
    """Run tests on real processes side by side, and then, one by one, those that have to be alone."""
    first = pytest_stage("system", *side_by_side("loadfile"), "-m", "not alone")()
    then = pytest_stage("system", "-m", "alone")()
    passed, failed = first.passed + then.passed, first.failed + then.failed
    return Result("system", passed, failed, (*first.skipped, *then.skipped), first.seconds + then.seconds)


def spark() -> Result:
    """Run the tests of what runs in Spark, where the Java is that Spark needs."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        told = ""
    found = re.search(r'version "(\d+)', told)
    if found is not None and int(found[1]) >= JAVA:
        return pytest_stage("spark")()
    reason = f"Spark needs Java {JAVA} or newer; on Debian, as root: apt-get install openjdk-{JAVA}-jre-headless"
    return Result("spark", 0, 0, (reason,), 0.0)


def cluster() -> Result:
    """Run the tests on a real Kubernetes, where that was asked for: it takes a while, and root."""
    if os.environ.get("CI") == "true" or os.environ.get("CLUSTER") == "1":
        return pytest_stage("cluster")()
    reason = "a real Kubernetes takes root and minutes; as root: make test-cluster, or CLUSTER=1 make test"
    return Result("cluster", 0, 0, (reason,), 0.0)


STAGES: dict[str, Callable[[], Result]] = {
    "lint": lint,
    "unit": pytest_stage("unit", *side_by_side("worksteal")),
    "sim": pytest_stage("sim", *side_by_side("worksteal")),
    "system": system,
    "browser": pytest_stage("browser"),
    "spark": spark,
    "cluster": cluster,
}


def _call(command: Sequence[str]) -> int:
    _announce(command)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _capture(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _show(done: "subprocess.CompletedProcess[str]") -> int:
    _announce(done.args)
    print(done.stdout, end="", flush=True)
    return done.returncode


def _announce(command: Sequence[str]) -> None:
    print(f"\n== {Path(command[0]).name} {' '.join(command[1:])}", flush=True)


def print_table(results: Sequence[Result]) -> None:
    """Print one line per stage, then the reasons of what was skipped, then the sum."""
    print(f"\n{'stage':<10}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for r in results:
        print(f"{r.stage:<10}{r.passed:>8}{r.failed:>8}{len(r.skipped):>9}{r.seconds:>9.1f}")
    for r in results:
        for reason in r.skipped:
            print(f"skipped in {r.stage}: {reason}")
    passed, failed = sum(r.passed for r in results), sum(r.failed for r in results)
    print(f"{passed} passed, {failed} failed, {sum(len(r.skipped) for r in results)} skipped")


def main(names: Sequence[str]) -> int:
    """Run the named stages, or all; the exit code says whether everything is well."""
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"unknown stage {unknown[0]!r}; there are: {', '.join(STAGES)}", file=sys.stderr)
        return 2
    results = [STAGES[name]() for name in names or STAGES]
    print_table(results)
    skipped = any(r.skipped for r in results)
    if skipped and os.environ.get("CI") == "true":
        print("CI=true: a skip is a failure", file=sys.stderr)
        return 1
    return int(any(r.failed for r in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
