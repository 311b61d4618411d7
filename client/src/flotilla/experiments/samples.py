"""Generates messages of producers. Pure: the same plan, seed and number of steps always generate the same files."""

import random

from flotilla.experiments.plans import Plan
from flotilla.experiments.producer_logs import ProducerLog, number_lines

STEPS = 50
_BEGIN_S = 21 * 3600 + 52 * 60 + 23
_DAY_S = 24 * 3600
_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR")
_TEXTS = ("", "", " disk is at 71 %", " user logged in", " request took 12 ms", " café opened late")


def make_sample(plan: Plan, seed: int = 1, steps: int = STEPS) -> list[ProducerLog]:
    """Generate the messages of each producer. Texts repeat, as in real logs; some steps use a topic twice."""
    return [_make_log(producer, topics, seed, steps) for producer, topics in plan.producers.items()]


def _make_log(producer: int, topics: tuple[str, ...], seed: int, steps: int) -> ProducerLog:
    # A string seed gives the same numbers in every version of Python since 3.2.
    rng = random.Random(f"{seed}-{producer}")  # noqa: S311 - not a secret
    rows = []
    now_s = _BEGIN_S
    for step in range(1, steps + 1):
        now_s += int(rng.random() * 3)
        chosen = topics if rng.random() < 0.7 else (_choose(rng, topics), _choose(rng, topics))  # noqa: PLR2004
        rows += [
            (_write_time(now_s), _choose(rng, _LEVELS) + _choose(rng, _TEXTS), f"P{producer}-{step}", topic)
            for topic in chosen
        ]
    return ProducerLog(producer, number_lines(rows))


def _choose(rng: random.Random, among: tuple[str, ...]) -> str:
    """Choose one item; only `random()` itself is stable across versions."""
    return among[int(rng.random() * len(among))]


def _write_time(seconds: int) -> str:
    of_day = seconds % _DAY_S
    return f"{of_day // 3600:02}:{of_day // 60 % 60:02}:{of_day % 60:02}"
