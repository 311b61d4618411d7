"""What the README says about Kubernetes, word for word."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.harness.images import ROOT
from support.release import Release

_MAKES_A_CLUSTER = "make kind"
_URL = "http://127.0.0.1:8080"


def commands() -> str:
    """Read the shell blocks of the section, but for the one that makes a cluster: there is one."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## On Kubernetes\n")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    return "".join(block for block in blocks if _MAKES_A_CLUSTER not in block)


@pytest.mark.usefixtures("token")
def test_the_readme_leads_from_nothing_to_a_message_through_the_ingress(release: Release, tmp_path: Path) -> None:
    """With the image where the cluster finds it, every command works as it stands."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "helm").symlink_to(release.cluster.helm_program)
    (programs / "kubectl").symlink_to(release.cluster.kubectl_program)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    script = commands()
    assert script.count("\n") > 5
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(_URL, release.url)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={**release.cluster.environment, "PATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "one parcel"
