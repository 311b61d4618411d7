"""The example in the docs runs, and its limits are those of the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flotilla import records
from flotilla.records import errors

DOCUMENT = Path(__file__).parents[3] / "docs" / "record-batch.md"


def test_example_of_the_docs_runs() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(examples) == 1
    subprocess.run([sys.executable, "-W", "error", "-c", examples[0]], check=True, timeout=60)


@pytest.mark.parametrize("name", [name for name in records.__all__ if name.endswith("_MAX")])
def test_every_limit_is_documented(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| ([\d ]+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None
    assert int(row[1].replace(" ", "")) == getattr(records, name)


@pytest.mark.parametrize("name", [name for name, item in vars(errors).items() if isinstance(item, type)])
def test_every_error_is_exported_and_documented(name: str) -> None:
    assert name in records.__all__
    assert re.search(rf"^ .*\b{name} ", errors.__doc__ or "", re.MULTILINE)
