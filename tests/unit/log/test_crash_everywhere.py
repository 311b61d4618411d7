"""A scripted run of all operations, with a crash at every single disk operation."""

import random

import pytest

from support.logmachine import LogMachine
from support.simdisk import Crash, SimDisk


def run_script(machine: LogMachine) -> None:
    """Do everything that a log can do: fill segments, truncate, trim, clean, drop, replace, close and open."""
    for anchor in (0, 0, 3):
        machine.create_group(anchor)
    for turn in range(6):
        for at in range(3):
            machine.append(at, [40 * turn, 700, 90], higher_term=turn % 2 == 1)
        machine.begin_flush()
        machine.append(turn, [10], higher_term=False)
        machine.set_term(turn, b"vote")
        machine.end_flush()
        machine.truncate(turn, 1)
        machine.trim(turn + 1, 0.7)
        machine.settle()
    machine.replace_group(0)
    machine.settle()
    machine.close_and_open()
    machine.append(1, [300, 300], higher_term=False)
    machine.drop_group(0)
    machine.settle()


def count_steps() -> int:
    disk = SimDisk()
    run_script(LogMachine(disk))
    return disk.steps


def crash_at(step: int, survive: float, seed: int) -> None:
    disk = SimDisk()
    disk.crash_in = step
    machine = None
    try:
        machine = LogMachine(disk)
        run_script(machine)
    except Crash:
        pass
    rng = random.Random(seed)
    if machine is None:  # while the log was created: nothing was durable, and it can be created again
        disk.reboot(rng, survive)
        LogMachine(disk)
    else:
        machine.restart(rng, survive)
        machine.work(seed)
        machine.settle()


@pytest.mark.parametrize("survive", [0.0, 0.6, 1.0])
def test_crash_at_any_step_loses_nothing_durable(survive: float) -> None:
    """Guarantee 1: all entries reported durable exist after a crash, and no entry that was never written does."""
    for step in range(count_steps()):
        crash_at(step, survive, seed=step)
