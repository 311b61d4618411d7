"""The control group of a test cluster: pods get processor time beside other tests."""

from pathlib import Path

import pytest

from cluster.harness import cgroups


@pytest.mark.parametrize(
    ("hierarchy", "setting", "expected"), [("cpu", "cpu.shares", 16 * 1024), ("", "cpu.weight", 16 * 100)]
)
def test_pods_together_have_the_weight_of_sixteen_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hierarchy: str, setting: str, expected: int
) -> None:
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    group = tmp_path / hierarchy / "flotilla-0"
    group.mkdir(parents=True)
    (group / setting).write_text("1")  # the kernel makes the files of a group
    if not hierarchy:
        (tmp_path / "cgroup.controllers").write_text("cpu memory")
    cgroups.make("flotilla-0")
    assert int((group / setting).read_text()) == expected
