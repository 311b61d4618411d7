"""What the documents say about Kubernetes, word for word, on a cluster."""

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


def blocks(document: str, heading: str, language: str = "sh") -> list[str]:
    """Read the blocks of a section, but for one that makes a cluster: there is one."""
    text = (ROOT / document).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    return [block for block in found if _MAKES_A_CLUSTER not in block]


def readme() -> str:
    """Read all that the README has one do on a cluster."""
    return "".join(blocks("README.md", "On Kubernetes"))


def follow(cluster: Cluster, folder: Path, commands: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Do what a document says; only the address of the ingress controller is another one."""
    for name, program in (("helm", cluster.helm_program), ("kubectl", cluster.kubectl_program)):
        if not (folder / name).exists():
            (folder / name).symlink_to(program)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands.replace(_URL, f"http://{cluster.http}")],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=_WALK_S,
        env={**cluster.environment, "PATH": path},
    )
