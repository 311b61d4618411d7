"""The node, from inside: the first process of its namespaces, in which all of Kubernetes runs.

Processes, mounts and network belong to these namespaces. When this process ends, for any reason, the kernel removes
them all. It ends at the end of its standard input, i.e. with the process that started it.

Started by `cluster.py` as: unshare … python -m cluster.harness.node PLAN
"""

import ctypes
import http.client
import json
import os
import select
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster.harness.addresses import API_PORT, NODE, NODE_NAME, PODS, SERVICES
from cluster.harness.machine import CNI_PROGRAMS
from cluster.harness.plan import Plan

_START_S = 120.0
_PAUSE_S = 0.05
_POLL_S = 0.5
_MS_BIND, _MS_REC, _MS_SHARED = 4096, 16384, 1 << 20
_LIMITS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
_libc = ctypes.CDLL(None, use_errno=True)


class Node:
    """Starts programs, and watches them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def run(self) -> None:
        """Start everything, report readiness, and run until the end of input."""
        own_mounts(self.plan)
        self._network()
        self._start_forwarding()
        self._start_containerd()
        self._start_control_plane()
        self._start_node()
        Path(self.plan.folder, "started").touch()
        while self._is_wanted(_POLL_S):
            self._reap()

    def _network(self) -> None:
        for words in (
            "ip link set lo up",
            "ip link add eth0 type bridge",  # an address needs an interface; nothing is attached to this one
            f"ip addr add {NODE}/30 dev eth0",
            "ip link set eth0 up",
            f"ip route add {SERVICES} dev eth0",  # a route until kube-proxy rewrites the packets
        ):
            _command(words.split())
        if not Path("/proc/sys/net/bridge").exists():
            _command(["modprobe", "--all", "br_netfilter", "overlay"])
        for name in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables", "ipv4/conf/all/route_localnet"):
            Path("/proc/sys/net", name).write_text("1")
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")  # for the ingress controller

    def _start_forwarding(self) -> None:
        pairs = [f"{number}={port}" for port, number in self.plan.listening.items()]
        self._start("forwarding", [sys.executable, "-m", "cluster.harness.forwarding", *pairs], self.plan.listening)
        for number in self.plan.listening.values():
            os.close(number)

    def _start_containerd(self) -> None:
        self._start(
            "containerd", ["containerd", "--config", self._file("containerd.toml", containerd_config(self.plan))]
        )
        self._wait("containerd", lambda: Path("/run/containerd/containerd.sock").exists())
        for archive in self.plan.archives:
            _command(["ctr", "--namespace", "k8s.io", "images", "import", archive])

    def _start_control_plane(self) -> None:
        pki, data = self.plan.pki, self.plan.folder
        clients = "http://127.0.0.1:2379"
        self._start(
            "etcd",
            [
                self._program("etcd"),
                f"--data-dir={data}/etcd",
                f"--listen-client-urls={clients}",
                f"--advertise-client-urls={clients}",
                "--unsafe-no-fsync",  # the data is deleted with the node
            ],
        )
        self._start(
            "kube-apiserver", [self._program("kube-apiserver"), f"--etcd-servers={clients}", *self._api_flags()]
        )
        self._wait("the API server", lambda: is_ready(f"{pki}/ca.crt"))
        self._start(
            "kube-controller-manager",
            [
                self._program("kube-controller-manager"),
                f"--kubeconfig={pki}/controllers.conf",
                f"--service-account-private-key-file={pki}/accounts.key",
                f"--root-ca-file={pki}/ca.crt",
                "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
                "--leader-elect=false",
            ],
        )
        scheduler = [self._program("kube-scheduler"), f"--kubeconfig={pki}/scheduler.conf", "--leader-elect=false"]
        self._start("kube-scheduler", scheduler)

    def _api_flags(self) -> list[str]:
        pki = self.plan.pki
        return [
            f"--service-cluster-ip-range={SERVICES}",
            f"--secure-port={API_PORT}",
            f"--advertise-address={NODE}",
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            f"--tls-cert-file={pki}/api.crt",
            f"--tls-private-key-file={pki}/api.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--token-auth-file={pki}/tokens.csv",
            f"--service-account-key-file={pki}/accounts.pub",
            f"--service-account-signing-key-file={pki}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={pki}/kubelet-client.crt",
            f"--kubelet-client-key={pki}/kubelet-client.key",
        ]

    def _start_node(self) -> None:
        pki = self.plan.pki
        names = self._file("Corefile", dns_config(pki))
        self._start("coredns", [self._program("coredns"), "-conf", names])
        self._start(
            "kubelet",
            [
                self._program("kubelet"),
                f"--config={self._file('kubelet.json', self._kubelet_config())}",
                f"--kubeconfig={pki}/node.conf",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={NODE}",
            ],
        )
        self._start(
            "kube-proxy",
            [
                self._program("kube-proxy"),
                f"--kubeconfig={pki}/proxy.conf",
                f"--hostname-override={NODE_NAME}",
                "--proxy-mode=iptables",
                f"--cluster-cidr={PODS}",
                "--conntrack-max-per-core=0",  # a limit of the whole machine
            ],
        )

    def _kubelet_config(self) -> str:
        resolv = self._file("resolv.conf", f"nameserver {NODE}\n")
        return json.dumps(kubelet_config(self.plan, resolv))

    def _file(self, name: str, text: str) -> str:
        file = Path(self.plan.folder, name)
        file.write_text(text)
        return str(file)

    def _program(self, name: str) -> str:
        return self.plan.programs[name]

    def _start(self, name: str, command: Sequence[str], sockets: Mapping[str, int] | None = None) -> None:
        with Path(self.plan.folder, "logs", f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
                pass_fds=list((sockets or {}).values()),
            )
        self._running[process.pid] = name, process  # kept, so that no other code waits for it

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while not holds():
            if time.monotonic() > deadline:
                _end(f"{what} not ready after {_START_S:.0f} s; see the logs in {self.plan.folder}/logs")
            if not self._is_wanted(_PAUSE_S):
                _end("standard input was closed")
            self._reap()

    def _is_wanted(self, seconds: float) -> bool:
        """Wait; return early at the end of standard input."""
        readable, _, _ = select.select([sys.stdin], [], [], seconds)
        return not readable

    def _reap(self) -> None:
        """Reap ended processes, as PID 1 must. The node ends if one of its programs does."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._running:
                name, code = self._running[pid][0], os.waitstatus_to_exitcode(status)
                log = Path(self.plan.folder, "logs", f"{name}.log").read_text(errors="replace")
                _end(f"{name} ended with {code}:\n" + "\n".join(log.splitlines()[-15:]))


def own_mounts(plan: Plan) -> None:
    """Mount private folders where Kubernetes and containerd write.

    kubelet sets some limits of the whole machine, and does not start if it cannot: it gets copies to write to.
    """
    _mount("none", "/", None, _MS_REC | _MS_SHARED)  # shared within the node, separate from the machine
    for name, place in (("lib", "/var/lib"), ("log", "/var/log")):
        source = Path(plan.folder, name)
        source.mkdir(exist_ok=True)
        _mount(str(source), place, None, _MS_BIND)
    _mount("tmpfs", "/run", "tmpfs", 0)
    for number, name in enumerate(_LIMITS):
        limit, copy = Path("/proc/sys", name), Path(plan.folder, f"limit-{number}")
        copy.write_text(limit.read_text())
        _mount(str(copy), str(limit), None, _MS_BIND)


def containerd_config(plan: Plan) -> str:
    """Return the configuration of containerd and of the pod network."""
    networks = Path(plan.folder, "networks")
    networks.mkdir(exist_ok=True)
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    mapping = {"type": "portmap", "capabilities": {"portMappings": True}}
    text = json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, mapping]})
    (networks / "10-pods.conflist").write_text(text)
    return f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{plan.pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = "{networks}"
"""


def dns_config(pki: str) -> str:
    """Return the configuration of CoreDNS: names of the cluster only."""
    return f""".:53 {{
    bind {NODE}
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {pki}/dns.conf
        pods insecure
    }}
    errors
}}
"""


def kubelet_config(plan: Plan, resolv: str) -> dict[str, object]:
    """Return the configuration of kubelet."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{plan.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": plan.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [NODE],
        "clusterDomain": "cluster.local",
        "resolvConf": resolv,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "syncFrequency": "10s",
    }


def is_ready(authority: str) -> bool:
    """Return whether the API server is ready."""
    context = ssl.create_default_context(cafile=authority)
    connection = http.client.HTTPSConnection(NODE, API_PORT, timeout=2, context=context)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status in {200, 401}  # anonymous requests may be rejected, but are answered
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    done = _libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, None)
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def _command(words: Sequence[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        _end(f"{' '.join(words)}: {done.stderr.strip()}")


def _end(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.exit(1)


if __name__ == "__main__":
    assert shutil.which("containerd") is not None
    Node(Plan.from_file(Path(sys.argv[1]))).run()
