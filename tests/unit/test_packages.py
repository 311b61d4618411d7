"""Each package declares what it imports, so that it works when it is installed on its own."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = ("client", "server", "broker", "manager", "operator", "spark-apps")
FOUND_AT_RUN_TIME = {"flotilla_broker", "flotilla_manager"}  # `flotilla up` starts servers, if they are installed


def imported(folder: Path) -> set[str]:
    """Return the top-level names that the modules of a folder import, anywhere in them."""
    names: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


def declared(member: str) -> set[str]:
    """Return the distributions that a member depends on, with its extras."""
    project = tomllib.loads((ROOT / member / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in project.get("optional-dependencies", {}).values() for line in extra),
    ]
    return {_normal(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in lines} | {_normal(project["name"])}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("member", MEMBERS)
def test_package_declares_what_it_imports(member: str) -> None:
    distributions = packages_distributions()
    own = {path.name for path in (ROOT / member / "src").iterdir()}
    allowed = declared(member)
    missing = {
        name
        for name in imported(ROOT / member / "src") - own - FOUND_AT_RUN_TIME
        if not allowed & {_normal(one) for one in distributions.get(name, [name])}
    }
    assert missing == set()


def test_client_contains_no_server_framework() -> None:
    assert imported(ROOT / "client" / "src").isdisjoint(
        {"fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn"}
    )
