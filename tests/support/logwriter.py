"""A process that writes a log as fast as it can and prints what is durable, until it is killed.

Usage: logwriter.py FOLDER      (prints lines `number index`: everything up to there is durable)

Entries depend only on their group and index, so that a reader of the folder can check them.
"""

import random
import sys
from pathlib import Path

from flotilla_broker.log import Log, LogConfig, open_folder

CONFIG = LogConfig(segment_bytes=1 << 18, entry_bytes_max=1 << 14)
GROUPS = 5


def payload(number: int, index: int) -> bytes:
    """Return the payload of a group and index."""
    seed = number * 1_000_003 + index
    return f"{number}/{index}:".encode() + random.Random(seed).randbytes(seed * 7919 % 5000)


def open_log(folder: Path) -> Log:
    """Open the log; create its groups the first time."""
    log = open_folder(folder, CONFIG)
    while len(log.groups) < GROUPS:
        log.create_group(b"")
    for number in log.groups:
        log.provide_state(number, lambda number=number: (log.group(number).durable_index, b""))  # type: ignore[misc]
    return log


def write_forever(log: Log, rng: random.Random) -> None:
    """Append, trim, flush and clean in random order."""
    while True:
        for number, group in log.groups.items():
            for _ in range(rng.randrange(4)):
                index = group.last_index + 1
                log.append(number, index, 1, payload(number, index), index, index)
            if rng.random() < 0.02:
                log.trim(number, max(group.first_index, group.durable_index - 200))
        durable = log.flush()
        if durable is not None:
            sys.stdout.write("".join(f"{number} {index}\n" for number, index in durable.indexes.items()))
            sys.stdout.flush()
        job = log.next_job()
        if job is not None:
            job.run()
            log.end_job(job)


if __name__ == "__main__":
    write_forever(open_log(Path(sys.argv[1])), random.Random())
