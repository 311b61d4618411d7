"""A cluster as tests see it: made, asked, and gone without a trace.

Everything that a node writes is in one folder of the cache folder, under a lock that is free as soon as both the tests
and the node are dead: whoever comes next removes what a killed run has left (its folder, its cgroups).
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cluster.harness import cache, cgroups, images
from cluster.harness.addresses import API_PORT, FORWARDED, NODE_NAME
from cluster.harness.cache import CommandFailed, say
from cluster.harness.machine import what_is_missing
from cluster.harness.pki import make_pki
from cluster.harness.plan import Plan
from cluster.harness.programs import COREDNS, ETCD, HELM, KUBERNETES, programs

_TESTS = Path(__file__).resolve().parents[2]
_MANIFESTS = Path(__file__).parent / "manifests"
_START_S = 300
_VOLUMES = 48
_VOLUME_SIZE = "64Gi"  # what is promised; a folder has no size
_PAUSE_S = 0.1
_NODES_MAX = 64  # on one machine


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers."""

    kubeconfig: Path
    kubectl_program: str
    helm_program: str
    image_prefix: str
    http: str | None  # where the ingress controller is, if there is one that we know of
    https: str | None
    is_ours: bool = True

    @property
    def environment(self) -> dict[str, str]:
        """What kubectl and Helm are told: which cluster, and to keep what they remember of ours beside it."""
        if not self.is_ours:
            return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        kept = str(self.kubeconfig.parent / "client")
        names = ("KUBECACHEDIR", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), **dict.fromkeys(names, kept)}

    def kubectl(self, *words: str, text: str | None = None, seconds: float = 120) -> str:
        """Run kubectl; raises CommandFailed."""
        return self._run([self.kubectl_program, *words], text, seconds)

    def helm(self, *words: str, seconds: float = 600) -> str:
        """Run Helm; raises CommandFailed."""
        return self._run([self.helm_program, *words], None, seconds)

    def get(self, *words: str) -> Any:  # noqa: ANN401 - whatever kubectl shows
        """Get resources as data."""
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def apply(self, text: str) -> None:
        """Apply manifests."""
        self.kubectl("apply", "--filename=-", text=text)

    def _run(self, command: list[str], text: str | None, seconds: float) -> str:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=self.environment,
        )
        if done.returncode != 0:
            raise CommandFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """Have a cluster of our own for as long as it is needed. What is missing is built first."""
    missing = what_is_missing()
    if missing is not None:
        raise RuntimeError(missing)
    began = time.monotonic()
    found = {module.name: programs(module) for module in (KUBERNETES, ETCD, COREDNS, HELM)}
    archives = [str(image.archive) for image in images.all_images()]
    say(f"programs and images are there after {time.monotonic() - began:.0f} s")
    sweep()
    with _place() as (folder, number, lock), _listening() as sockets:
        began = time.monotonic()
        plan = _make_plan(folder, number, archives, found, sockets)
        with _node(plan, folder, lock) as process:
            addresses = {port: f"127.0.0.1:{sock.getsockname()[1]}" for port, sock in sockets.items()}
            for sock in sockets.values():
                sock.close()  # the node has them now: when it is gone, so are they
            cluster = Cluster(
                kubeconfig=Path(plan.pki, "admin.conf"),
                kubectl_program=plan.programs["kubectl"],
                helm_program=str(found["helm"] / "helm"),
                image_prefix="",
                http=addresses[80],
                https=addresses[443],
            )
            _wait_started(process, folder)
            _furnish(cluster)
            say(f"Kubernetes {KUBERNETES.version} answers after {time.monotonic() - began:.0f} s")
            yield cluster


def sweep() -> None:
    """Remove what killed runs have left."""
    with cache.locked("nodes"):
        for folder in sorted(_nodes().iterdir()):
            lock = _take(folder)
            if lock is not None:
                with lock:
                    say(f"removes what an earlier run has left in {folder}")
                    _remove(folder, int(folder.name))


def _nodes() -> Path:
    folder = cache.folder() / "nodes"
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def _place() -> Iterator[tuple[Path, int, IO[str]]]:
    """Take a folder of our own, and with it a cgroup of the same number; leave nothing of it."""
    with cache.locked("nodes"):
        number, lock = _first_free()
    folder = _nodes() / str(number)
    with lock:
        try:
            yield folder, number, lock
        finally:
            with cache.locked("nodes"):
                _remove(folder, number)


def _first_free() -> tuple[int, IO[str]]:
    for number in range(_NODES_MAX):
        folder = _nodes() / str(number)
        if not folder.exists():  # one that is there is in use, or still dying
            folder.mkdir()
            lock = _take(folder)
            assert lock is not None, "whoever makes a folder holds the lock of all"
            return number, lock
    raise RuntimeError(f"there are {_NODES_MAX} clusters on this machine already")


def _take(folder: Path) -> IO[str] | None:
    """Take a node's folder, unless it is in use."""
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _remove(folder: Path, number: int) -> None:
    """Remove what a dead node has left. Its processes, mounts and network are gone with its namespaces."""
    cgroups.remove(_cgroup(number))
    shutil.rmtree(folder)


def _cgroup(number: int) -> str:
    return f"flotilla-node-{number}"


@contextlib.contextmanager
def _listening() -> Iterator[dict[int, socket.socket]]:
    """Listen on the loopback for what leads into the node."""
    with contextlib.ExitStack() as stack:
        yield {port: stack.enter_context(socket.create_server(("127.0.0.1", 0))) for port in FORWARDED}


def _make_plan(
    folder: Path, number: int, archives: list[str], found: dict[str, Path], sockets: dict[int, socket.socket]
) -> Plan:
    for name in ("logs", "lib", "log"):
        (folder / name).mkdir()
    for at in range(_VOLUMES):
        (folder / "lib" / "volumes" / str(at)).mkdir(parents=True)
    cgroups.make(_cgroup(number))
    pki = make_pki(folder / "pki", f"127.0.0.1:{sockets[API_PORT].getsockname()[1]}")
    plan = Plan(
        folder=str(folder),
        listening={str(port): sock.fileno() for port, sock in sockets.items()},
        pki=str(pki.folder),
        cgroup=f"/{_cgroup(number)}",
        pause=images.PAUSE,
        archives=archives,
        programs={
            program.name: str(program) for module in found.values() for program in module.iterdir() if program.is_file()
        },
    )
    plan.write(folder / "plan.json")
    return plan


@contextlib.contextmanager
def _node(plan: Plan, folder: Path, lock: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a node in namespaces of its own, and end it in the end."""
    isolate = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation=private",
    ]
    with (folder / "node.log").open("wb") as log:
        process = subprocess.Popen(
            [*isolate, sys.executable, "-m", "cluster.harness.node", str(folder / "plan.json")],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(_TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
            pass_fds=[lock.fileno(), *plan.listening.values()],  # the folder is taken for as long as the node lives
            start_new_session=True,  # Ctrl-C is for the tests; the node ends after them
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_started(process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not (folder / "started").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the node did not start: {(folder / 'node.log').read_text()}")
        time.sleep(_PAUSE_S)


def _furnish(cluster: Cluster) -> None:
    """Give a new cluster what others have: volumes, an ingress controller."""
    cluster.apply((_MANIFESTS / "storage.yaml").read_text())
    cluster.apply("\n---\n".join(json.dumps(_volume(at)) for at in range(_VOLUMES)))
    cluster.apply((_MANIFESTS / "ingress.yaml").read_text())
    _wait_node(cluster)
    cluster.kubectl("rollout", "status", "--namespace=ingress", "deployment/skipper", "--timeout=120s")


def _wait_node(cluster: Cluster) -> None:
    deadline = time.monotonic() + _START_S
    while not cluster.get("nodes")["items"]:
        if time.monotonic() > deadline:
            raise RuntimeError("kubelet did not register its node")
        time.sleep(_PAUSE_S)
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{NODE_NAME}", "--timeout=120s")


def _volume(number: int) -> dict[str, object]:
    place = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"volume-{number}"},
        "spec": {
            "capacity": {"storage": _VOLUME_SIZE},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "standard",
            "local": {"path": f"/var/lib/volumes/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
        },
    }
