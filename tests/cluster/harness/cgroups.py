"""Control groups of a node: pods are below a group of the harness, so that they can be found and removed."""

import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_REMOVAL_S = 10.0
_PAUSE_S = 0.05
# CPU weight of all pods together, in processes: the default of one would starve them while other tests run. The
# files of cgroup v1 and v2, each with the weight of one process.
_WEIGHT_PROCESSES = 16
_WEIGHTS = {"cpu.shares": 1024, "cpu.weight": 100}
_COPIED = ("cpuset.cpus", "cpuset.mems")  # a new v1 group has neither, and accepts no process without them


def make(name: str) -> None:
    """Create a group in every hierarchy."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for setting in _COPIED:
            if (hierarchy / setting).exists() and (group / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())
        for setting, weight in _WEIGHTS.items():
            if (group / setting).exists():
                (group / setting).write_text(str(_WEIGHT_PROCESSES * weight))


def remove(name: str) -> None:
    """Remove a group and its descendants, whose processes have all ended."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        if not group.exists():
            continue
        below = [path for path in group.rglob("*") if path.is_dir()]
        for path in [*sorted(below, key=lambda path: len(path.parts), reverse=True), group]:
            _remove_empty(path)


def _remove_empty(path: Path) -> None:
    """Remove one group; the kernel can take some time to notice that its last process has ended."""
    deadline = time.monotonic() + _REMOVAL_S
    while path.exists():
        try:
            path.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


def _hierarchies() -> list[Path]:
    """Return the mount points: one for v2, one for each controller for v1."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [path for path in sorted(_ROOT.iterdir()) if path.is_dir() and not path.is_symlink()]
