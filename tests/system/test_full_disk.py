"""A real file system that is full: a tmpfs of a few MiB, mounted in the test's own namespaces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import fulldisk

TESTS = Path(fulldisk.__file__).parent.parent
DISK = "12m"


def namespaces() -> list[str]:
    """Return the command that runs a process in its own mount namespace; without root also in a user namespace."""
    command = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    probe = subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"needs namespaces: {' '.join(command)} says {probe.stderr.decode().strip()!r}; run it as root")
    return command


def test_full_disk_is_rejected_in_advance_and_loses_no_data(tmp_path: Path) -> None:
    """Guarantees 7 and 1: a full disk is an error with a reason, and acknowledged data is kept."""
    script = f'mount -t tmpfs -o size={DISK} none "$1" && exec "$2" "$3" "$1"'
    done = subprocess.run(
        [*namespaces(), "sh", "-c", script, "sh", str(tmp_path), sys.executable, fulldisk.__file__],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
