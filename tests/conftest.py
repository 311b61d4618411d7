"""What all tests share: the report for the closing table of `make test`, and Hypothesis' profiles."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support import forks
from support.process import ServerProcess

# A fixed seed in CI keeps it green or red for one reason only; `HYPOTHESIS_PROFILE=long` searches further.
settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell has what it starts in the background ignore Ctrl-C, and so would everything that tests start in turn.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


ServerProcess.forked = sys.platform == "linux"


def pytest_unconfigure() -> None:
    forks.close_all()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report-file", default=None, help="write the counts and the reasons of skips here, as JSON")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    path = terminalreporter.config.getoption("--report-file")
    if path is None:
        return
    stats = terminalreporter.stats
    skips = [
        f"{r.nodeid}: {r.longrepr[2] if isinstance(r.longrepr, tuple) else r.longrepr}"
        for r in stats.get("skipped", [])
    ]
    report = {
        "passed": len(stats.get("passed", [])),
        "failed": len(stats.get("failed", [])) + len(stats.get("error", [])),
        "skipped": skips,
    }
    Path(path).write_text(json.dumps(report), encoding="utf-8")
