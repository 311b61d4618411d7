"""The runner: order of processes, and failures."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from flotilla.experiments.errors import StepFailed
from flotilla.experiments.plans import PLANS
from flotilla.experiments.runner import Progress, RunConfig, run

# A step that writes down when it did what, in place of one that talks to servers.
STEP = """
import json, os, sys, time
verb, number = sys.argv[2], sys.argv[sys.argv.index("--id") + 1]
def note(what):
    with open(sys.argv[1], "a") as file:
        file.write(f"{verb} {number} {what}\\n")
# here is trouble
note("begins")
print(json.dumps({"messages": 0}), flush=True)
if verb == "consume":
    sys.stdin.read()
print(json.dumps({"messages": 7}), flush=True)
note("ends")
"""


def config(folder: Path, trouble: str = "") -> RunConfig:
    (folder / "step.py").write_text(STEP.replace("# here is trouble", trouble))
    command = (sys.executable, str(folder / "step.py"), str(folder / "notes.txt"))
    return RunConfig(PLANS["2P2C"], folder, "x-", command, dict(os.environ))


def notes(folder: Path) -> list[str]:
    return (folder / "notes.txt").read_text().splitlines()


def test_consumers_start_before_producers_and_stop_after_them(tmp_path: Path) -> None:
    """No message is sent before all consumers have subscribed."""
    seen: list[Progress] = []
    asyncio.run(run(config(tmp_path), seen.append))
    found = notes(tmp_path)
    assert sorted(found[:2]) == ["consume 1 begins", "consume 2 begins"]
    assert {line.split()[0] for line in found[2:6]} == {"produce"}
    assert sorted(found[6:]) == ["consume 1 ends", "consume 2 ends"]
    assert seen[-1] == Progress(produced=14, consumed=14)


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (
            'if verb == "produce" and number == "2": sys.exit("no such topic")',
            "producer 2 exited with code 1: no su",
        ),
        (
            'if verb == "consume" and number == "1": sys.exit(3)',
            "consumer 1 exited with code 3: no error message",
        ),
        ('if verb == "produce": os.kill(os.getpid(), 9)', "exited with code -9"),
    ],
)
def test_failed_step_stops_the_experiment_and_is_named(tmp_path: Path, trouble: str, said: str) -> None:
    with pytest.raises(StepFailed, match=said):
        asyncio.run(run(config(tmp_path, trouble)))


def test_consumer_that_exits_early_is_a_failure(tmp_path: Path) -> None:
    trouble = 'if verb == "consume" and number == "2": print(json.dumps({"messages": 0}), flush=True); sys.exit(0)'
    with pytest.raises(StepFailed, match="consumer 2 exited with code 0"):
        asyncio.run(run(config(tmp_path, trouble + '\nif verb == "produce": sys.stdin.read()')))
