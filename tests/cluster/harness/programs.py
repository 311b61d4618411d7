"""Kubernetes, etcd, CoreDNS, Helm and an ingress controller, built from the Go module proxy.

Each folder under `go/` is a module that pins a program and its dependencies by hash. To change a version: change it in
go.mod (for Kubernetes also in its replace lines) and run `go mod tidy` there.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cluster.harness.cache import made, run

_MODULES = Path(__file__).parent / "go"
_VERSION = "k8s.io/component-base/version"
_GOGC = "400"  # the compiler collects garbage less often: more memory, less time


@dataclass(frozen=True)
class Module:
    """A Go module of the project, and the programs that are built from it."""

    name: str
    packages: tuple[str, ...]
    required: str  # the dependency that defines the version

    @property
    def folder(self) -> Path:
        """Folder of go.mod."""
        return _MODULES / self.name

    @property
    def version(self) -> str:
        """Version in go.mod."""
        found = re.search(rf"\b{re.escape(self.required)} v([0-9.]+)", (self.folder / "go.mod").read_text())
        assert found is not None, f"{self.folder}/go.mod does not require {self.required}"
        return found.group(1)

    @property
    def key(self) -> str:
        """Hash of the inputs of a build."""
        pins = b"".join((self.folder / name).read_bytes() for name in ("go.mod", "go.sum"))
        return f"{self.version}-{hashlib.sha256(pins + ' '.join(_linking(self)).encode()).hexdigest()[:12]}"


KUBERNETES = Module(
    "kubernetes",
    tuple(
        f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
    ),
    "k8s.io/kubernetes",
)
ETCD = Module("etcd", ("go.etcd.io/etcd/server/v3",), "go.etcd.io/etcd/server/v3")
COREDNS = Module("coredns", ("github.com/coredns/coredns",), "github.com/coredns/coredns")
HELM = Module("helm", ("helm.sh/helm/v3/cmd/helm",), "helm.sh/helm/v3")
INGRESS = Module("ingress", ("github.com/zalando/skipper/cmd/skipper",), "github.com/zalando/skipper")
MODULES = (KUBERNETES, ETCD, COREDNS, HELM, INGRESS)


def programs(module: Module) -> Path:
    """Return the folder of a module's programs; build them if they do not exist."""
    return made(module.name, module.key, lambda folder: _build(module, folder))


def helm() -> Path:
    """Return the path of Helm; build it if it does not exist."""
    return programs(HELM) / "helm"


def _linking(module: Module) -> list[str]:
    """Return linker flags that set the version of a program."""
    flags = ["-s", "-w"]
    major, minor, _ = KUBERNETES.version.split(".")
    if module.name == "kubernetes":  # otherwise the server reports v0.0.0-master
        flags += [f"-X {_VERSION}.gitVersion=v{module.version}"]
        flags += [f"-X {_VERSION}.gitMajor={major}", f"-X {_VERSION}.gitMinor={minor}"]
    if module.name == "helm":  # otherwise it renders for Kubernetes 1.20
        for package in ("chartutil", "lint/rules"):
            where = f"helm.sh/helm/v3/pkg/{package}"
            flags += [f"-X {where}.k8sVersionMajor={major}", f"-X {where}.k8sVersionMinor={minor}"]
    return flags


def _build(module: Module, folder: Path) -> None:
    linking = " ".join(_linking(module))
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", f"-ldflags={linking}"]
    # `go build` would name the program of a package with a version suffix after the version, so pass the name.
    target = folder if len(module.packages) > 1 else folder / _program(module)
    run(
        [*command, "-o", f"{target}/" if target is folder else target, *module.packages],
        cwd=module.folder,
        environment={"CGO_ENABLED": "0", "GOGC": _GOGC},
        alone=os.geteuid() == 0,  # Helm can be built without root
    )


def _program(module: Module) -> str:
    return {"ingress": "skipper"}.get(module.name, module.name)
