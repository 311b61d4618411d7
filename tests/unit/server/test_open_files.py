import logging
import resource
import subprocess
import sys

import pytest

from flotilla_server import open_files
from flotilla_server.open_files import LIMIT_MAX, choose_soft_limit
from flotilla_server.settings import SettingsInvalid

_RUN = """
import resource, sys
from flotilla_server.open_files import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[1])))
raise_limit(required=128, wanted=256)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "chosen"),
    [
        (1024, 4096, 4096),
        (1024, 1024, 1024),
        (1024, 1 << 20, LIMIT_MAX),
        (1024, resource.RLIM_INFINITY, LIMIT_MAX),
        (1 << 20, 1 << 20, 1 << 20),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    ],
)
def test_soft_limit_rises_to_the_hard_limit_and_never_falls(soft: int, hard: int, chosen: int) -> None:
    assert choose_soft_limit(soft, hard) == chosen


def test_process_raises_its_own_limit() -> None:
    done = subprocess.run([sys.executable, "-c", _RUN, "300"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["300"]


def test_limit_below_the_required_number_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(SettingsInvalid, match=r"limit on open files is 100, but at least 320 are required: raise"):
        open_files.raise_limit(required=320, wanted=3000)


def test_limit_below_the_wanted_number_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with caplog.at_level(logging.WARNING):
        open_files.raise_limit(required=320, wanted=3000)
    assert "open file limit may be too low limit=1024 wanted=3000" in caplog.text
