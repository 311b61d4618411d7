"""Run many seeds of the simulation on all cores, with progress. Exit code 0 means no violation."""

import argparse
import logging
import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sim.simulation import Report, Simulation

VIRTUAL_S = 60.0
_PROGRESS_S = 10.0


def run(seed: int) -> tuple[int, Report | str]:
    """Run one seed; return its report, or the violation."""
    logging.disable(logging.CRITICAL)
    try:
        return seed, Simulation(seed).run(VIRTUAL_S)
    except Exception as error:  # noqa: BLE001 - reported with its seed
        return seed, f"{type(error).__name__}: {error}"


def main() -> int:
    """Run the requested seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    options = parser.parse_args()
    reports: list[Report] = []
    failures = 0
    began = shown = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    with multiprocessing.Pool() as pool:
        for done, (seed, result) in enumerate(pool.imap_unordered(run, seeds, chunksize=1), 1):
            if isinstance(result, Report):
                reports.append(result)
            else:
                failures += 1
                print(f"seed {seed}: {result}", flush=True)
            if time.monotonic() - shown > _PROGRESS_S:
                shown = time.monotonic()
                print(f"{done} of {len(seeds)} seeds, {failures} failed, {shown - began:.0f} s", flush=True)
    print(
        f"{len(reports)} seeds are well, {failures} failed; {sum(r.steps for r in reports)} steps, "
        f"{sum(r.acknowledged for r in reports)} records acknowledged, {sum(r.crashes for r in reports)} crashes, "
        f"{sum(r.elections for r in reports)} leaders, {sum(r.snapshots for r in reports)} snapshots, "
        f"{sum(r.deletions for r in reports)} deletions, {sum(r.restores for r in reports)} restored volumes, "
        f"in {time.monotonic() - began:.0f} s"
    )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
