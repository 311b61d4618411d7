"""The README's tour, run as written."""

from pathlib import Path

from smoke.conftest import System
from support.tour import expected, follow, steps


def test_readme_tour_prints_what_the_readme_shows(system: System, tmp_path: Path) -> None:
    tour = steps("README.md")
    assert len(tour) > 5
    printed, errors = follow(system.up, tour, tmp_path)
    assert printed[: len(tour)] == expected(tour), errors
