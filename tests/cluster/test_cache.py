"""What the cache folder has is whole, whoever was killed while making it, and stays while somebody may be using it."""

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
    (folder / "first").write_text("by one who is killed")
    print("begun", flush=True)
    time.sleep(600)

made("thing", "1", make)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("FLOTILLA_CACHE", str(tmp_path))
    return cache.folder()


def test_what_was_begun_by_one_who_was_killed_is_made_anew() -> None:
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
    with subprocess.Popen([sys.executable, "-c", _HALF], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGKILL)
    place = cache.made("thing", "1", lambda half: (half / "second").touch())
    assert [path.name for path in place.iterdir()] == ["second"]


def test_what_cannot_be_made_is_not_there_and_is_tried_again() -> None:
    def fail(_: Path) -> None:
        raise cache.CommandFailed("no such package")

    for _ in range(2):
        with pytest.raises(cache.CommandFailed):
            cache.made("thing", "1", fail)
    assert cache.made("thing", "1", lambda half: (half / "it").touch()).name == "thing-1"


def test_another_version_stays_until_nobody_has_asked_for_it_for_long(folder: Path) -> None:
    old, used = (cache.made("thing", key, lambda half: (half / "it").touch()) for key in ("old", "used"))
    for place in (old, used):
        os.utime(place, (0, time.time() - 100))
    assert cache.made("thing", "used", lambda half: (half / "again").touch()) == used, "asking for it is using it"
    assert [path.name for path in used.iterdir()] == ["it"]
    cache.made("thing", "new", lambda half: (half / "it").touch(), kept_s=60)
    assert sorted(path.name for path in folder.glob("thing-*")) == ["thing-new", "thing-used"]
