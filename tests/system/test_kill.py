"""kill -9 of a real process on a real disk."""

import random
import subprocess
import sys
from pathlib import Path
from typing import IO

from support import logwriter

KILLS = 100


def kill_somewhere(folder: Path, rng: random.Random) -> dict[int, int]:
    """Run a writer for some flushes and kill it; return what it had reported durable."""
    reported: dict[int, int] = {}
    lines_wanted = rng.randrange(1, 60)
    with subprocess.Popen(
        [sys.executable, logwriter.__file__, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(lines_wanted):
            note(process.stdout.readline(), reported)
        process.kill()
        drain(process.stdout, reported)
        assert process.wait() == -9
    return reported


def note(line: str, reported: dict[int, int]) -> None:
    assert line.endswith("\n"), "the writer ended by itself"
    number, index = map(int, line.split())
    reported[number] = index


def drain(stdout: IO[str], reported: dict[int, int]) -> None:
    """Read the output before the end; the last line may be cut."""
    for line in stdout:
        if line.endswith("\n"):
            note(line, reported)


def test_hundred_kills_lose_nothing_that_was_reported_durable(tmp_path: Path) -> None:
    """Guarantee 1 on a real disk: killed at a random time, the log has every entry that it acknowledged."""
    rng = random.Random(20)
    durable: dict[int, int] = {}
    for _ in range(KILLS):
        durable |= kill_somewhere(tmp_path, rng)
        log = logwriter.open_log(tmp_path)
        assert log.damage == ()
        for number, index in durable.items():
            group = log.group(number)
            assert group.last_index >= index, "a confirmed entry is gone"
            at = max(group.first_index, group.last_index - 40)
            while at <= group.last_index:
                for entry in log.read(number, at, bytes_max=1 << 18):
                    assert bytes(entry.payload) == logwriter.payload(number, entry.index)
                    at = entry.index + 1
        log.close()
    assert min(durable.values()) > KILLS
