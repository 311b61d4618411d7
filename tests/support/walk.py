"""The Kubernetes commands of the docs, run on a cluster."""

import os
import re
import subprocess
import sys
from pathlib import Path

from cluster.harness.cluster import Cluster
from cluster.harness.images import ROOT
from support.scripts import run_script

_MAKES_A_CLUSTER = "make kind"
_URL = "http://127.0.0.1:8080"
_WALK_S = 900


def blocks(document: str, heading: str, language: str = "sh") -> list[str]:
    """Return the blocks of a section, except those that create a cluster."""
    text = (ROOT / document).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    return [block for block in found if _MAKES_A_CLUSTER not in block]


def first_hour() -> str:
    """Return the commands of a new user: all of the README for a cluster, and the first steps that it refers to."""
    return "".join((*blocks("README.md", "On Kubernetes"), *blocks("docs/kubernetes.md", "First steps")))


def follow(cluster: Cluster, folder: Path, commands: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run commands of a document; only the address of the ingress controller is replaced."""
    for name, program in (("helm", cluster.helm_program), ("kubectl", cluster.kubectl_program)):
        if not (folder / name).exists():
            (folder / name).symlink_to(program)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    script = commands.replace(_URL, f"http://{cluster.http}")
    return run_script(script, {**cluster.environment, "PATH": path}, _WALK_S, cwd, stops_at_failure=True)
