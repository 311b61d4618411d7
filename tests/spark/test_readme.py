"""The Spark commands of the READMEs print what the READMEs show."""

import re
from pathlib import Path

import pytest

from support.fleet import Fleet
from support.scripts import run_script
from support.sparkapps import environment

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900.0  # each application of a page starts a JVM, which is slow on a loaded machine


def steps(text: str) -> list[tuple[str, str]]:
    """Return the blocks of commands, each with the expected output of its last command."""
    block = r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?"
    return [(one[1], one[2] or "") for one in re.finditer(block, text, flags=re.DOTALL | re.MULTILINE)]


def section(name: str) -> str:
    """Return a section of the main README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def without_kubernetes(text: str) -> str:
    """Remove the sections that need a cluster, which the cluster tests run."""
    before, heading, rest = text.partition("\n## With spark-submit on Kubernetes\n")
    assert heading
    return before + rest.partition("\n## ")[2]


@pytest.mark.parametrize("page", ["README.md", "spark-apps/README.md"])
def test_commands_of_the_readme_print_the_documented_output(fleet: Fleet, tmp_path: Path, page: str) -> None:
    text = section("Spark") if page == "README.md" else without_kubernetes((ROOT / page).read_text(encoding="utf-8"))
    todo = steps(text)
    assert any(printed for _, printed in todo)
    for name in (".venv", "spark-apps"):
        (tmp_path / name).symlink_to(ROOT / name)
    for topic in fleet.client.get("/topics").json()["topics"]:
        if topic in {"logs", "alerts", "unread", "again"}:
            fleet.client.delete(f"/v1/topics/{topic}").raise_for_status()
    script = "set -e\n"
    for commands, _ in todo:
        # These tests run in the environment that `make spark` installed, so it must not be installed again.
        script += f"{commands.replace('make spark &&', '')}printf '====\\n'\n"
    done = run_script(script, environment(fleet.url), LIMIT_S, tmp_path)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.split("====\n")
    for (commands, printed), out in zip(todo, shown, strict=False):
        if printed:
            assert out.endswith(printed), commands


def test_readme_shows_a_table_in_two_commands() -> None:
    ((commands, printed),) = steps(section("Spark"))
    assert len(re.sub(r"\\\n", "", commands).splitlines()) == 2
    assert printed.startswith("from ")
