"""The table of `make coverage` has one figure per package."""

import tomllib
from pathlib import Path

import coverage_report

ROOT = Path(__file__).resolve().parents[3]


def test_table_sums_the_files_of_each_package() -> None:
    files = {
        "broker/src/flotilla_broker/engine.py": {"summary": {"num_statements": 90, "covered_lines": 80}},
        "broker/src/flotilla_broker/log/store.py": {"summary": {"num_statements": 10, "covered_lines": 7}},
        "spark-apps/src/pyspark_flotilla/source.py": {"summary": {"num_statements": 3, "covered_lines": 3}},
    }
    head, *rows = coverage_report.make_table(files).splitlines()
    assert head.split() == ["package", "statements", "executed", "coverage"]
    assert [row.split() for row in rows] == [
        ["flotilla", "0", "0", "0.0%"],
        ["flotilla_server", "0", "0", "0.0%"],
        ["flotilla_broker", "100", "87", "87.0%"],
        ["flotilla_manager", "0", "0", "0.0%"],
        ["flotilla_operator", "0", "0", "0.0%"],
        ["flotilla_spark", "0", "0", "0.0%"],
        ["pyspark_flotilla", "3", "3", "100.0%"],
    ]


def test_table_has_every_package_of_the_workspace() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert list(coverage_report.PACKAGES) == settings["importlinter"]["root_packages"]
    for folder in coverage_report.PACKAGES.values():
        assert (ROOT / folder / "__init__.py").exists()
        assert str(Path(folder).parent) in settings["coverage"]["run"]["source_dirs"]
