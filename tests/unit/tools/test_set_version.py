"""The version is defined once, and every literal copy agrees with it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from flotilla import __version__

ROOT = Path(__file__).resolve().parents[3]
DEFINITION = ROOT / "client" / "src" / "flotilla" / "__init__.py"
COPIES = ("helm/flotilla/Chart.yaml", "docs/kubernetes.md", "docs/test-cluster.md", "spark-apps/README.md")


def set_version(root: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(root / "tools" / "set_version.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_copies_of_the_version_agree_with_its_definition() -> None:
    done = set_version(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_members_read_the_version_from_its_definition() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for member in workspace["tool"]["uv"]["workspace"]["members"]:
        project = tomllib.loads((ROOT / member / "pyproject.toml").read_text(encoding="utf-8"))
        assert project["project"]["dynamic"] == ["version"]
        assert (ROOT / member / project["tool"]["hatch"]["version"]["path"]).resolve() == DEFINITION


def test_chart_and_changelog_have_the_current_version() -> None:
    chart = yaml.safe_load((ROOT / "helm" / "flotilla" / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert latest is not None
    assert latest[1] == __version__


def test_set_version_writes_the_definition_and_all_copies(tmp_path: Path) -> None:
    for name in (*COPIES, "docs/operator.md", "tools/set_version.py", str(DEFINITION.relative_to(ROOT))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    done = set_version(tmp_path, "12.34.56")
    assert done.returncode == 0
    assert set(done.stdout.split()) == {*COPIES, str(DEFINITION.relative_to(ROOT))}
    for name in ("helm/flotilla/Chart.yaml", str(DEFINITION.relative_to(ROOT))):
        before, after = ((root / name).read_text(encoding="utf-8") for root in (ROOT, tmp_path))
        assert after == before.replace(__version__, "12.34.56")
    assert set_version(tmp_path, "--check").returncode == 0


def test_check_lists_copies_that_differ(tmp_path: Path) -> None:
    for name in ("helm/flotilla/Chart.yaml", "tools/set_version.py", str(DEFINITION.relative_to(ROOT))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    chart = tmp_path / "helm" / "flotilla" / "Chart.yaml"
    chart.write_text(chart.read_text(encoding="utf-8").replace(f'"{__version__}"', '"0.0.1"'), encoding="utf-8")
    done = set_version(tmp_path, "--check")
    assert done.returncode == 1
    assert done.stderr.startswith("helm/flotilla/Chart.yaml:6: version is 0.0.1; ")


def test_set_version_rejects_what_is_not_a_version() -> None:
    for arguments in ((), ("0.3",), ("v0.3.0",), ("0.3.0", "0.4.0")):
        done = set_version(ROOT, *arguments)
        assert (done.returncode, done.stderr) == (2, "usage: set_version.py X.Y.Z | --check\n")
