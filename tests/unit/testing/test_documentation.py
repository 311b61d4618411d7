"""The examples of docs/testing.md and docs/client.md run with the fake."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

from flotilla.testing import FakeFlotilla

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_example_test_of_the_docs_passes(tmp_path: Path) -> None:
    example = tmp_path / "test_orders.py"
    example.write_text(blocks("testing.md", "python")[0], encoding="utf-8")
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(example))


def test_fault_example_prints_the_documented_output() -> None:
    (printed,) = blocks("testing.md", "text")
    assert run("-c", blocks("testing.md", "python")[1]) == printed


def test_client_examples_of_the_docs_pass_with_the_fake() -> None:
    """The tests of the client also run them against real servers."""
    said: list[str] = []
    with FakeFlotilla() as fake:
        text = "\n".join(blocks("client.md", "pycon"))
        example = doctest.DocTestParser().get_doctest(text, {"client": fake.client()}, "docs/client.md", None, 0)
        assert doctest.DocTestRunner().run(example, out=said.append).failed == 0, "".join(said)
