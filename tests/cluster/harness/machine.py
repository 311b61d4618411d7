"""Requirements of a cluster: root, Go, and Debian packages. Nothing is installed here."""

import os
import platform
import shutil

PACKAGES = (
    "buildah",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "debootstrap",
    "gcc",
    "iproute2",
    "iptables",
    "kmod",
    "libc6-dev",
    "runc",
    "socat",
)
_PROGRAMS = {
    "buildah": "buildah",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "ip": "iproute2",
    "iptables": "iptables",
    "modprobe": "kmod",
    "runc": "runc",
    "socat": "socat",
}
CNI_PROGRAMS = "/usr/lib/cni"


def missing_requirement() -> str | None:
    """Return why no cluster can run here, and what to do; None if nothing is missing."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "the test cluster needs Linux on x86_64; KUBECONFIG can name another cluster"
    if os.geteuid() != 0:
        return "the test cluster needs root (a node is made in namespaces of its own); KUBECONFIG can name another one"
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if not os.path.exists(f"{CNI_PROGRAMS}/bridge"):  # noqa: PTH110 - a path of Debian
        missing.append("containernetworking-plugins")
    if missing:
        return f"{', '.join(missing)} missing; on Debian, as root: apt-get install {' '.join(PACKAGES)}"
    if shutil.which("go") is None:
        return "go is missing: Kubernetes is built with it (1.26 or newer)"
    return None
