"""Run stages of the tests, and end with a table: what ran, how long it took, what was skipped and how to enable it.

Usage: run_tests.py [quick | slow | all | STAGE ...]     (default: quick)

`make test` runs `quick`: everything a change usually needs, without root, in minutes. `make test-all` runs `all`.
`slow` is `all` without `quick`, so that running both runs each test once.

Two stages that wait share the machine with stages that compute: smoke with lint, and cluster with the rest of the slow
set. With CI=true a skipped test or stage is a failure: there, everything must run.

A stage that exceeds its time limit is interrupted and fails, so that a test that hangs is reported with its name. Tests
that run for 10 minutes print the stacks of their threads (`faulthandler_timeout` in pyproject.toml).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from support import java

BIN = Path(sys.executable).parent
WORKERS_MAX = 4
OUTPUT_GRACE_SECONDS = 5.0
TEARDOWN_SECONDS = 120.0
_SLOWED_BY = "PYTHONDONTWRITEBYTECODE"  # with it, each of some thousand processes compiles all modules that it imports


@dataclass(frozen=True)
class Result:
    """The outcome of one stage."""

    stage: str
    passed: int
    failed: int
    skipped: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Output:
    """Where a stage prints: directly, or line by line behind a prefix where two stages run at the same time."""

    prefix: str = ""

    def run(self, command: Sequence[str], seconds_max: float) -> int:
        """Run a command of the project's environment, and interrupt it at its time limit; return its exit code.

        Processes that the command leaves behind may hold its output open, so the end of the output is not awaited.
        """
        self.announce(command)
        to, errors_to = (subprocess.PIPE, subprocess.STDOUT) if self.prefix else (None, None)
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), text=True, errors="replace", stdout=to, stderr=errors_to
        )
        printer = threading.Thread(target=self._print, args=(process.stdout,), daemon=True)
        printer.start()
        code = self._wait(process, seconds_max)
        printer.join(OUTPUT_GRACE_SECONDS)
        if printer.is_alive() and process.stdout is not None:
            with contextlib.suppress(ValueError):  # the output was closed meanwhile
                self.write([f"left behind, with the output still open: {each}" for each in holders(process.stdout)])
        return code

    def _print(self, output: IO[str] | None) -> None:
        with contextlib.closing(output) if output is not None else contextlib.nullcontext(()) as lines:
            self.write(lines)

    def _wait(self, process: "subprocess.Popen[str]", seconds_max: float) -> int:
        try:
            return process.wait(seconds_max)
        except KeyboardInterrupt:  # the command got it, too
            process.wait(TEARDOWN_SECONDS)
            raise
        except subprocess.TimeoutExpired:
            self.write([f"interrupted: the time limit of {seconds_max:.0f} seconds is exceeded"])
        process.send_signal(signal.SIGINT)  # pytest names the test that runs, and tears fixtures down
        try:
            return process.wait(TEARDOWN_SECONDS) or 1
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait() or 1

    def announce(self, command: Sequence[str]) -> None:
        """Print the command that runs next."""
        self.write(["", f"== {Path(command[0]).name} {' '.join(command[1:])}"])

    def write(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            print(f"{self.prefix}{line.rstrip()}", flush=True)


def holders(output: IO[str]) -> list[str]:
    """Return the command lines of the processes that have the other end of a pipe open."""
    pipe = f"pipe:[{os.fstat(output.fileno()).st_ino}]"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.name != str(os.getpid()) and any(str(each.readlink()) == pipe for each in process.glob("fd/*")):
                words = (process / "cmdline").read_bytes().split(bytes(1))
                found.append(f"{process.name} {b' '.join(words).decode(errors='replace')}")
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found


Stage = Callable[[Output], Result]


def environment() -> dict[str, str]:
    """Return the environment of the tests."""
    return {name: value for name, value in os.environ.items() if name != _SLOWED_BY}


def lint(output: Output) -> Result:
    """Run all linters at once, and print the output of one after the other."""
    commands = (
        ["ruff", "format", "--check", "--diff"],
        ["ruff", "check"],
        ["mypy"],
        ["lint-imports"],
        ["python", "tools/check_wording.py"],
    )
    started = time.monotonic()
    with ThreadPoolExecutor(len(commands)) as pool:
        done = list(pool.map(_capture, ([str(BIN / name), *arguments] for name, *arguments in commands)))
    for each in done:
        output.announce(each.args)
        output.write(each.stdout.splitlines())
    failed = sum(each.returncode != 0 for each in done)
    return Result("lint", len(commands) - failed, failed, (), time.monotonic() - started)


def _capture(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def workers(dist: str) -> tuple[str, ...]:
    """Return pytest-xdist's options: one worker per core, and how tests are distributed to them."""
    count = min(WORKERS_MAX, os.cpu_count() or 1)
    return (f"--numprocesses={count}", f"--dist={dist}") if count > 1 else ()


def pytest_stage(folder: str, *options: str, minutes_max: float = 20) -> Stage:
    """Make a stage of the tests in tests/`folder`."""

    def run(output: Output) -> Result:
        started = time.monotonic()
        found: dict[str, Any] = {"passed": 0, "failed": 0, "skipped": []}
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch) / "report.json"
            command = [str(BIN / "pytest"), f"tests/{folder}", f"--report-file={report}", *options]
            code = output.run(command, minutes_max * 60)
            if report.exists():
                found = json.loads(report.read_text())
        failed = found["failed"] or int(code != 0)
        return Result(folder, found["passed"], failed, tuple(found["skipped"]), time.monotonic() - started)

    return run


def system(output: Output) -> Result:
    """Run the tests on real processes in parallel, and then those that must not share the machine."""
    first = pytest_stage("system", *workers("loadfile"), "-m", "not alone", minutes_max=30)(output)
    then = pytest_stage("system", "-m", "alone", minutes_max=15)(output)
    passed, failed = first.passed + then.passed, first.failed + then.failed
    return Result("system", passed, failed, (*first.skipped, *then.skipped), first.seconds + then.seconds)


def spark(output: Output) -> Result:
    """Run the Spark tests, if Java is installed."""
    if java.is_usable():
        return pytest_stage("spark", minutes_max=35)(output)
    return Result("spark", 0, 0, (java.REASON,), 0.0)


def cluster(output: Output) -> Result:
    """Run the tests on a real Kubernetes, if requested: they need root."""
    if os.environ.get("CI") == "true" or os.environ.get("CLUSTER") == "1":
        return pytest_stage("cluster", minutes_max=70)(output)
    reason = "a real Kubernetes needs root and 30 minutes; as root: make test-cluster, or CLUSTER=1 make test-all"
    return Result("cluster", 0, 0, (reason,), 0.0)


STAGES: Mapping[str, Stage] = {
    "lint": lint,
    "unit": pytest_stage("unit", *workers("worksteal")),
    "sim": pytest_stage("sim", *workers("worksteal")),
    "smoke": pytest_stage("smoke"),
    "spark": spark,  # before Pipelines run in the cluster stage: Spark gives its workers 10 seconds to start
    "system": system,
    "browser": pytest_stage("browser"),
    "cluster": cluster,
}
QUICK = ("lint", "unit", "sim", "smoke")
SLOW = tuple(name for name in STAGES if name not in QUICK)
SETS = {"quick": QUICK, "slow": SLOW, "all": (*QUICK, *SLOW)}
# Phases, one after another. The queues of a phase run at the same time, and the stages of a queue one after another.
PHASES = (
    (("smoke",), ("lint",)),
    (("unit", "sim"),),
    (("spark", "system", "browser"), ("cluster",)),
)


def run_stages(names: Sequence[str], stages: Mapping[str, Stage] = STAGES) -> list[Result]:
    """Run the named stages phase by phase; return their results in the order of the names."""
    results: dict[str, Result] = {}
    for phase in PHASES:
        queues = [found for queue in phase if (found := [name for name in queue if name in names])]
        if queues:
            results |= run_queues(queues, stages)
    return [results[name] for name in names]


def run_queues(queues: Sequence[Sequence[str]], stages: Mapping[str, Stage]) -> dict[str, Result]:
    """Run queues at the same time, and the stages of each queue one after another."""

    def run(queue: Sequence[str]) -> dict[str, Result]:
        return {name: stages[name](Output(f"{name} | " if len(queues) > 1 else "")) for name in queue}

    with ThreadPoolExecutor(len(queues)) as pool:
        others = [pool.submit(run, queue) for queue in queues[1:]]
        results = run(queues[0])  # in this thread, which Ctrl-C interrupts
        for each in others:
            results |= each.result()
    return results


def print_table(results: Sequence[Result], seconds: float) -> None:
    """Print one line per stage, the reasons of skips, the other commands, and the sum."""
    print(f"\n{'stage':<10}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for r in results:
        print(f"{r.stage:<10}{r.passed:>8}{r.failed:>8}{len(r.skipped):>9}{r.seconds:>9.1f}")
    print(f"{'all':<10}{'':>25}{seconds:>9.1f}")
    for r in results:
        for reason in r.skipped:
            print(f"skipped in {r.stage}: {reason}")
    left_out = [name for name in STAGES if name not in {r.stage for r in results}]
    if left_out:
        print(f"not run: {', '.join(left_out)} (make test-all, or: {sys.executable} tools/run_tests.py STAGE ...)")
    passed, failed = sum(r.passed for r in results), sum(r.failed for r in results)
    print(f"{passed} passed, {failed} failed, {sum(len(r.skipped) for r in results)} skipped")


def main(names: Sequence[str]) -> int:
    """Run the named stages or sets; return the exit code."""
    wanted = [stage for name in names or ("quick",) for stage in SETS.get(name, (name,))]
    unknown = [name for name in wanted if name not in STAGES]
    if unknown:
        known = ", ".join([*SETS, *STAGES])
        print(f"unknown stage {unknown[0]!r}; choose from {known}", file=sys.stderr)
        return 2
    started = time.monotonic()
    results = run_stages([name for name in STAGES if name in wanted])
    print_table(results, time.monotonic() - started)
    if any(r.skipped for r in results) and os.environ.get("CI") == "true":
        print("CI=true: a skip is a failure", file=sys.stderr)
        return 1
    return int(any(r.failed for r in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
