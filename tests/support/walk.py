"""What the README says about Kubernetes, word for word, on a cluster."""

import os
import re
import subprocess
import sys
from pathlib import Path

from cluster.harness.cluster import Cluster
from cluster.harness.images import ROOT

_MAKES_A_CLUSTER = "make kind"
_URL = "http://127.0.0.1:8080"
_WALK_S = 900


def commands() -> str:
    """Read the shell blocks of the section, but for the one that makes a cluster: there is one."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## On Kubernetes\n")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    return "".join(block for block in blocks if _MAKES_A_CLUSTER not in block)


def walk(cluster: Cluster, folder: Path) -> subprocess.CompletedProcess[str]:
    """Follow the README; only the address of the ingress controller is another one."""
    (folder / "helm").symlink_to(cluster.helm_program)
    (folder / "kubectl").symlink_to(cluster.kubectl_program)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands().replace(_URL, f"http://{cluster.http}")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_WALK_S,
        env={**cluster.environment, "PATH": path},
    )
