"""The cache folder of the harness: entries are complete even if a build is killed, and are removed only when unused."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.harness import cache

_TESTS = Path(__file__).resolve().parents[1]
_HALF = """
import time
from cluster.harness.cache import made

def make(folder):
    (folder / "first").write_text("of a build that is killed")
    print("started", flush=True)
    time.sleep(600)

made("thing", "1", make)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for this test."""
    monkeypatch.setenv("FLOTILLA_CACHE", str(tmp_path))
    return cache.folder()


def test_entry_of_a_killed_build_is_built_again() -> None:
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
    with subprocess.Popen([sys.executable, "-c", _HALF], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGKILL)
    entry = cache.made("thing", "1", lambda half: (half / "second").touch())
    assert [path.name for path in entry.iterdir()] == ["second"]


def test_failed_build_leaves_no_entry_and_is_retried() -> None:
    def fail(_: Path) -> None:
        raise cache.CommandFailed("no such package")

    for _ in range(2):
        with pytest.raises(cache.CommandFailed):
            cache.made("thing", "1", fail)
    assert cache.made("thing", "1", lambda half: (half / "it").touch()).name == "thing-1"


def test_other_versions_are_removed_only_after_not_being_used_for_a_while(folder: Path) -> None:
    old, used = (cache.made("thing", key, lambda half: (half / "it").touch()) for key in ("old", "used"))
    for entry in (old, used):
        os.utime(entry, (0, time.time() - 100))
    assert cache.made("thing", "used", lambda half: (half / "again").touch()) == used, "a lookup counts as use"
    assert [path.name for path in used.iterdir()] == ["it"]
    cache.made("thing", "new", lambda half: (half / "it").touch(), kept_s=60)
    assert sorted(path.name for path in folder.glob("thing-*")) == ["thing-new", "thing-used"]
