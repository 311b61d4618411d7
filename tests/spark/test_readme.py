"""What the READMEs tell about Spark is run, word for word, and prints what they say."""

import re
import subprocess
from pathlib import Path

import pytest

from support.fleet import Fleet
from support.sparkapps import environment

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 540.0


def steps(text: str) -> list[tuple[str, str]]:
    """Read the blocks of commands, each with the block of text right behind it: what the last one prints."""
    block = r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?"
    return [(one[1], one[2] or "") for one in re.finditer(block, text, flags=re.DOTALL | re.MULTILINE)]


def section(name: str) -> str:
    """Read a section of the README of everything."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def without_kubernetes(text: str) -> str:
    """Leave out what needs a cluster: tests that have one do it."""
    before, heading, rest = text.partition("\n## With spark-submit on Kubernetes\n")
    assert heading
    return before + rest.partition("\n## ")[2]


@pytest.mark.parametrize("page", ["README.md", "spark-apps/README.md"])
def test_commands_of_the_readme_do_what_is_said(fleet: Fleet, tmp_path: Path, page: str) -> None:
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
        # What these tests run in was installed by `make spark`; to install it again would be to saw at the branch.
        script += f"{commands.replace('make spark &&', '')}printf '====\\n'\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(fleet.url),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.split("====\n")
    for (commands, printed), out in zip(todo, shown, strict=False):
        if printed:
            assert out.endswith(printed), commands


def test_the_readme_shows_a_table_in_two_commands() -> None:
    ((commands, printed),) = steps(section("Spark"))
    assert len(re.sub(r"\\\n", "", commands).splitlines()) == 2
    assert printed.startswith("from ")
