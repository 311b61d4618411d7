"""docs/raft.md names code, messages and tests that exist."""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

from flotilla_broker.raft import Message

ROOT = Path(__file__).resolve().parents[3]
TESTS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").glob("**/*.py"))]
PACKAGES = ("flotilla_broker.raft", "flotilla_broker")


def rows(heading: str) -> list[list[str]]:
    """The rows of the table below a heading, without its head."""
    text = (ROOT / "docs/raft.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def find(name: str) -> object:
    """Find what a name such as `guards.classify_append` stands for."""
    parts = name.split(".")
    for package in PACKAGES:
        for cut in range(len(parts) - 1, 0, -1):
            try:
                module = importlib.import_module(f"{package}.{'.'.join(parts[:cut])}")
            except ModuleNotFoundError:
                continue
            return reduce(getattr, parts[cut:], module)
    raise LookupError(name)


@pytest.mark.parametrize("row", rows("Rules"), ids=lambda row: names(row[2])[0])
def test_every_rule_names_code_and_tests_that_exist(row: list[str]) -> None:
    _, why, code, tests = row
    assert why
    assert names(code)
    assert names(tests)
    for name in names(code):
        find(name)
    for name in names(tests):
        assert any(f"def {name}(" in text for text in TESTS), f"docs/raft.md names {name}; there is no such test"


def test_every_message_is_described() -> None:
    described = [name for row in rows("Messages") for name in names(row[0])]
    assert sorted(described) == sorted(kind.__name__ for kind in Message.__args__)


def test_every_module_that_is_named_exists() -> None:
    for row in rows("Modules"):
        for name in names(row[0]):
            assert (ROOT / "broker/src/flotilla_broker" / name).is_file(), name
