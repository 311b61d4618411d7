"""Long seeded runs with a crash after each period of load: deeper than Hypothesis searches, at a fixed cost.

`LOG_SEEDS=5000 pytest tests/unit/log/test_random_runs.py` searches further.
"""

import os
import random

from support.logmachine import LogMachine

SEEDS = int(os.environ.get("LOG_SEEDS", "120"))


def run(seed: int) -> None:
    rng = random.Random(seed)
    machine = LogMachine()
    machine.create_group(0)
    machine.create_group(rng.randrange(5))
    for _ in range(6):
        machine.work(rng.randrange(1 << 30))
        if rng.random() < 0.5 and machine.flush is None and machine.job is None:
            machine.settle()
        if rng.random() < 0.3 or not machine.log.groups:
            if machine.log.groups:
                machine.drop_group(0)
            machine.create_group(0)
        for _ in range(rng.randrange(6)):
            machine.append(rng.randrange(9), [rng.randrange(60)], higher_term=False)
        machine.crash(rng.choice((0, 0, 1, 2, 3)), rng.randrange(1 << 30), rng.choice((0.0, 0.6, 1.0)))


def test_long_runs_lose_nothing_durable() -> None:
    """Guarantee 1: after a crash, the log equals its state at some point at or after the last flush."""
    for seed in range(SEEDS):
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
