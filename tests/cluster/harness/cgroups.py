"""Control groups of a node: pods are put below a group of ours, so that they can be told from others' and removed."""

import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PATIENCE_S = 10.0
_PAUSE_S = 0.05
_COPIED = ("cpuset.cpus", "cpuset.mems")  # a new group of the first version has neither, and takes no process then


def make(name: str) -> None:
    """Make a group in every hierarchy."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for setting in _COPIED:
            if (hierarchy / setting).exists() and (group / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())


def remove(name: str) -> None:
    """Remove a group, and all below it, of which every process is dead."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        if not group.exists():
            continue
        below = [path for path in group.rglob("*") if path.is_dir()]
        for path in [*sorted(below, key=lambda path: len(path.parts), reverse=True), group]:
            _remove_empty(path)


def _remove_empty(path: Path) -> None:
    """Remove one group; the kernel may take a moment to notice that its last process is gone."""
    deadline = time.monotonic() + _PATIENCE_S
    while path.exists():
        try:
            path.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


def _hierarchies() -> list[Path]:
    """Name where groups are: one place in the second version, one for each controller in the first."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    return [path for path in sorted(_ROOT.iterdir()) if path.is_dir() and not path.is_symlink()]
