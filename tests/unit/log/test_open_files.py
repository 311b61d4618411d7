"""The log uses a bounded number of open files, however many segments it has, and none once it is closed."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flotilla_broker.log import Log, LogConfig, open_folder

CONFIG = LogConfig(segment_bytes=4096, entry_bytes_max=1000, open_files_max=8)
SEGMENTS = 120
_OPEN_AND_READ = """
import resource, sys
from pathlib import Path
from flotilla_broker.log import LogConfig, open_folder
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
log = open_folder(Path(sys.argv[1]), LogConfig(segment_bytes=4096, entry_bytes_max=1000, open_files_max=8))
(number,) = log.groups
group = log.group(number)
index = group.first_index
while index <= group.last_index:
    for entry in log.read(number, index, bytes_max=1 << 16):
        assert bytes(entry.payload) == b"%d" % entry.index * 100
        index = entry.index + 1
log.close()
print(index - 1)
"""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Keep Python's cycle collector from closing files by chance."""
    gc.disable()
    yield
    gc.enable()


def fill(log: Log) -> int:
    number = log.create_group(b"")
    log.provide_state(number, lambda: (log.group(number).durable_index, b""))
    index = 0
    while len(log._maintenance.sealed_segments()) < SEGMENTS:
        index += 1
        log.append(number, index, 1, b"%d" % index * 100, index, index)
        log.flush()
    return index


def test_log_with_more_segments_than_the_process_may_open_starts_and_reads(tmp_path: Path) -> None:
    log = open_folder(tmp_path, CONFIG)
    last = fill(log)
    log.close()
    done = subprocess.run(
        [sys.executable, "-c", _OPEN_AND_READ, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(last)], done.stderr


@pytest.mark.usefixtures("no_collector")
def test_closed_log_has_no_open_files(tmp_path: Path) -> None:
    before = open_files(tmp_path)
    log = open_folder(tmp_path, CONFIG)
    fill(log)
    assert open_files(tmp_path) != before
    log.close()
    assert open_files(tmp_path) == before == []


def open_files(folder: Path) -> list[str]:
    """List the files of a folder that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = link.readlink()
        except FileNotFoundError:  # of the listing itself
            continue
        if target.is_relative_to(folder):
            found.append(str(target))
    return found
