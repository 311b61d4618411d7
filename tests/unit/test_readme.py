"""What the README shows works as it is shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def blocks(language: str, name: str = "README.md") -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [body for name, body in found if name == language]


@pytest.mark.parametrize("name", ["docs/broker.md", "docs/log.md"])
def test_the_example_prints_what_is_said_of_it(name: str) -> None:
    (example,) = blocks("python", name)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout in blocks("", name)


def test_every_file_that_the_readme_names_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"`((?:client|broker|manager|tests)/[\w./]+)`", text):
        assert (ROOT / name).exists(), name


def test_make_knows_every_target_that_the_docs_name() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, flags=re.MULTILINE)) <= targets
