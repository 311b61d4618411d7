"""Pages of the documentation: links lead to files and headings, and examples print the documented output."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    str(page.relative_to(ROOT))
    for folder in (".", "docs", "docs/decisions", "spark-apps")
    for page in sorted(ROOT.glob(f"{folder}/*.md"))
]


def blocks(language: str, name: str = "README.md") -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [body for name, body in found if name == language]


@pytest.mark.parametrize("name", ["docs/broker.md", "docs/log.md"])
def test_example_prints_the_documented_output(name: str) -> None:
    (example,) = blocks("python", name)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout in blocks("", name)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, heading = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], target


def test_reading_order_names_files_that_exist() -> None:
    """A name without a folder is in the folder of the name before it."""
    reading = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("\n## Reading the source\n")[2]
    names = re.findall(r"`((?:[\w-]+/)*[\w-]+(?:\.py|\.yaml|/))`", reading)
    assert len(names) > 40
    folder = ROOT
    for name in names:
        path = ROOT / name if "/" in name else folder / name
        assert path.exists(), name
        folder = path.parent


def test_makefile_has_every_target_named_in_the_docs() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, flags=re.MULTILINE)) <= targets


def test_guarantees_named_in_tests_are_in_the_readme() -> None:
    promises = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Guarantees\n")[2]
    numbers = {int(number) for number in re.findall(r"^(\d)\. ", promises, flags=re.MULTILINE)}
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("**/*.py"))
    pairs = re.findall(r"[Gg]uarantees? (\d)(?: (?:to|and) (\d))?", tests)
    assert {int(number) for pair in pairs for number in pair if number} <= numbers
