"""The test cluster itself leaves no trace, also when whoever uses it is killed."""

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
_PLACES = [Path(name) for name in ("/opt/containerd", "/usr/libexec/kubernetes", "/var/lib/kubelet", "/var/lib/etcd")]


def traces() -> set[str]:
    """What nodes have, or might have, outside of their namespaces: folders, links, cgroups."""
    nodes = {str(path) for path in (cache.folder() / "nodes").iterdir()}
    links = {str(path) for path in Path("/sys/class/net").iterdir()}
    groups = {str(path) for pattern in ("flotilla-node-*", "*/flotilla-node-*") for path in _CGROUPS.glob(pattern)}
    return nodes | links | groups | {str(place) for place in _PLACES if place.exists()}


def limits() -> dict[str, str]:
    """Settings of the whole machine that kubelet and kube-proxy like to change."""
    names = (
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
    )
    return {name: Path("/proc/sys", name).read_text() for name in (*names, "net/ipv4/ip_forward")}


def test_nothing_is_left_of_a_cluster_whose_user_was_killed(cluster: Cluster) -> None:
    """A kill -9 of whoever has a cluster ends it; what its files and cgroups are, the next one removes."""
    if not cluster.is_ours:
        pytest.skip("KUBECONFIG names a cluster that is not ours")
    others, settings = traces(), limits()
    command = [sys.executable, "-m", "cluster.harness"]
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
        sweep()  # what still dies is left alone
        return not its_own & traces()

    wait_until("all traces to be gone", is_swept, 30)
    assert limits() == settings


def processes_in(folder: Path) -> list[str]:
    """Name the processes that were started with files of a node."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if str(folder).encode() + b"/" in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
