"""The examples of the docs, run as written against `flotilla up`. The README's are among the smoke tests."""

import signal
from pathlib import Path

import pytest

from support.tour import expected, follow, steps
from support.upprocess import UpProcess


@pytest.mark.parametrize(
    ("pages", "flags"),
    [
        ("docs/api.md", ()),
        ("docs/groups.md", ()),
        ("docs/client.md", ()),
        ("docs/coming-from.md", ()),
        ("docs/myqueue.md docs/experiments.md", ()),
        ("docs/access.md", ("--auth", "on")),
    ],
)
def test_tour_prints_the_documented_output(tmp_path: Path, pages: str, flags: tuple[str, ...]) -> None:
    """Pages whose output does not depend on other pages share a cluster, because starting one takes seconds."""
    tour = [step for page in pages.split() for step in steps(page)]
    assert len(tour) > 5
    with UpProcess(tmp_path / "data", *flags) as up:
        up.wait_ready()
        printed, errors = follow(up, tour, tmp_path)
        assert printed[: len(tour)] == expected(tour), errors
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
