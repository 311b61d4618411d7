"""A cluster, as tests use it.

Everything that a node writes is in one folder of the cache folder, under a lock that is released when both the tests
and the node have ended. The next run removes what a killed run has left: its folder and its cgroups.
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
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from cluster.harness import cache, cgroups, images
from cluster.harness.addresses import API_PORT, FORWARDED, NODE_NAME
from cluster.harness.api_reader import ApiReader, parse
from cluster.harness.cache import CommandFailed, report
from cluster.harness.machine import missing_requirement
from cluster.harness.pki import make_pki
from cluster.harness.plan import Plan
from cluster.harness.programs import COREDNS, ETCD, HELM, KUBERNETES, programs

_TESTS = Path(__file__).resolve().parents[2]
_MANIFESTS = Path(__file__).parent / "manifests"
_START_S = 300
_VOLUMES = 48
_VOLUME_SIZE = "64Gi"  # nominal: a folder has no size limit
_PAUSE_S = 0.1
_NODES_MAX = 64  # on one machine


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    kubeconfig: Path
    kubectl_program: str
    helm_program: str
    image_prefix: str
    http: str | None  # address of the ingress controller, if known
    https: str | None
    is_ours: bool = True

    @property
    def environment(self) -> dict[str, str]:
        """Environment of kubectl and Helm: the cluster, and a private folder for their caches."""
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

    def get(self, *words: str, namespace: str = "default") -> Any:  # noqa: ANN401 - whatever kubectl shows
        """Get resources as JSON, like `kubectl get`; raises CommandFailed."""
        request = parse(words, namespace)
        if request is not None:
            return self._reader.read(request)
        return json.loads(self.kubectl(f"--namespace={namespace}", "get", *words, "--output=json"))

    @cached_property
    def _reader(self) -> ApiReader:
        return ApiReader(self.kubectl_program, self.environment)

    def close(self) -> None:
        """Stop the proxy that reads from it. The cluster continues."""
        if "_reader" in self.__dict__:
            self._reader.close()

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
def running(*, is_bare: bool = False) -> Iterator[Cluster]:
    """Run a cluster during the block. Missing builds are made first. A bare cluster cannot run Flotilla."""
    missing = missing_requirement()
    if missing is not None:
        raise RuntimeError(missing)
    began = time.monotonic()
    found = {module.name: programs(module) for module in (KUBERNETES, ETCD, COREDNS, HELM)}
    wanted = images.cluster_images() if is_bare else images.all_images()
    archives = [str(image.archive) for image in wanted]
    report(f"programs and images ready after {time.monotonic() - began:.0f} s")
    sweep()
    with _place() as (folder, number, lock), _listening() as sockets:
        began = time.monotonic()
        plan = _make_plan(folder, number, archives, found, sockets)
        with _node(plan, folder, lock) as process:
            addresses = {port: f"127.0.0.1:{sock.getsockname()[1]}" for port, sock in sockets.items()}
            for sock in sockets.values():
                sock.close()  # the node holds them now
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
            report(f"Kubernetes {KUBERNETES.version} ready after {time.monotonic() - began:.0f} s")
            with contextlib.closing(cluster):
                yield cluster


def sweep() -> None:
    """Remove what killed runs have left."""
    with cache.locked("nodes"):
        for folder in sorted(_nodes().iterdir()):
            lock = _take(folder)
            if lock is not None:
                with lock:
                    report(f"removing the remains of a killed run: {folder}")
                    _remove(folder, int(folder.name))


def _nodes() -> Path:
    folder = cache.folder() / "nodes"
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def _place() -> Iterator[tuple[Path, int, IO[str]]]:
    """Reserve a folder and the cgroup of the same number; remove both at the end."""
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
        if not folder.exists():  # an existing folder is in use, or its node is still ending
            folder.mkdir()
            lock = _take(folder)
            assert lock is not None, "a new folder is created under the lock of all"
            return number, lock
    raise RuntimeError(f"there are {_NODES_MAX} clusters on this machine already")


def _take(folder: Path) -> IO[str] | None:
    """Lock the folder of a node, unless it is in use."""
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _remove(folder: Path, number: int) -> None:
    """Remove what a dead node has left. Its processes, mounts and network ended with its namespaces."""
    cgroups.remove(_cgroup(number))
    shutil.rmtree(folder)


def _cgroup(number: int) -> str:
    return f"flotilla-node-{number}"


@contextlib.contextmanager
def _listening() -> Iterator[dict[int, socket.socket]]:
    """Listen on loopback for connections into the node."""
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
    """Run a node in its own namespaces during the block."""
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
            pass_fds=[lock.fileno(), *plan.listening.values()],  # the folder is locked as long as the node lives
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
    """Install what clusters usually have: volumes and an ingress controller."""
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
