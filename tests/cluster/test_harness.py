"""The test cluster removes all its traces, also if the process that started it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.harness import cache
from cluster.harness.cluster import Cluster, sweep
from support.cluster import wait_until

_TESTS = Path(__file__).resolve().parents[1]
_CGROUPS = Path("/sys/fs/cgroup")
_FOLDERS = [Path(name) for name in ("/opt/containerd", "/usr/libexec/kubernetes", "/var/lib/kubelet", "/var/lib/etcd")]


def traces() -> set[str]:
    """List folders, network links and cgroups of nodes, or that nodes could create, outside of their namespaces."""
    nodes = {str(path) for path in (cache.folder() / "nodes").iterdir()}
    links = {str(path) for path in Path("/sys/class/net").iterdir()}
    groups = {str(path) for pattern in ("flotilla-node-*", "*/flotilla-node-*") for path in _CGROUPS.glob(pattern)}
    return nodes | links | groups | {str(path) for path in _FOLDERS if path.exists()}


def limits() -> dict[str, str]:
    """Return the machine-wide settings that kubelet and kube-proxy would change."""
    names = (
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
    )
    return {name: Path("/proc/sys", name).read_text() for name in (*names, "net/ipv4/ip_forward")}


def test_cluster_of_a_killed_process_leaves_no_traces(cluster: Cluster) -> None:
    """SIGKILL of the process that started a cluster ends the cluster. The next one removes its files and cgroups."""
    if not cluster.is_ours:
        pytest.skip("the tests did not start the cluster of KUBECONFIG")
    others, settings = traces(), limits()
    command = [sys.executable, "-m", "cluster.harness", "bare"]  # it runs pods, which is enough to leave traces
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        kubeconfig = process.stdout.readline().strip().rpartition("=")[2]
        folder = Path(kubeconfig).parents[1]
        its_own = traces() - others
        assert its_own
        assert processes_in(folder)
        process.send_signal(signal.SIGKILL)
    wait_until("the node's processes to be gone", lambda: not processes_in(folder), 30)

    def is_swept() -> bool:
        sweep()  # skips clusters that are still ending
        return not its_own & traces()

    wait_until("all traces to be gone", is_swept, 30)
    assert limits() == settings


def processes_in(folder: Path) -> list[str]:
    """List the processes whose command line names files of a node."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it has ended
            continue
        if str(folder).encode() + b"/" in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
