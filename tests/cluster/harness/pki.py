"""Keys, certificates and tokens of a cluster, created for each."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cluster.harness.addresses import API_PORT, API_SERVICE, NODE, NODE_NAME

# Users, and the groups that give them their permissions.
_USERS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", "system:masters"),
    "dns": ("dns", "system:masters"),
    "node": (f"system:node:{NODE_NAME}", "system:nodes"),
}


@dataclass(frozen=True)
class Pki:
    """Folder of the files."""

    folder: Path

    def file(self, name: str) -> Path:
        """Return the path of a file."""
        return self.folder / name

    def kubeconfig(self, user: str) -> Path:
        """Return the path of the kubeconfig of a user."""
        return self.folder / f"{user}.conf"


def make_pki(folder: Path, address: str) -> Pki:
    """Create all files; `address` is the address of the API server on this machine, e.g. 127.0.0.1:6443."""
    folder.mkdir(mode=0o700)
    pki = Pki(folder)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    authority.private_key_pem.write_to_path(folder / "ca.key")
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1", API_SERVICE)
    _write(folder, "api", authority.issue_cert(*names, NODE, common_name="kube-apiserver"))
    client = authority.issue_cert("kubelet-client", common_name="kubelet-client", organization_name="system:masters")
    _write(folder, "kubelet-client", client)
    _make_account_keys(folder)
    tokens = {name: secrets.token_hex(16) for name in _USERS}
    rows = [f'{tokens[name]},{user},{name},"{group}"' for name, (user, group) in _USERS.items()]
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
    for name, token in tokens.items():
        server = f"https://{address}" if name == "admin" else f"https://{NODE}:{API_PORT}"
        pki.kubeconfig(name).write_text(_kubeconfig(server, folder / "ca.crt", token))
    return pki


def _write(folder: Path, name: str, certificate: trustme.LeafCert) -> None:
    certificate.private_key_pem.write_to_path(folder / f"{name}.key")
    for at, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(folder / f"{name}.crt", append=at > 0)


def _make_account_keys(folder: Path) -> None:
    """Create the keys that sign service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "accounts.key").write_bytes(private)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / "accounts.pub").write_bytes(public)


def _kubeconfig(server: str, authority: Path, token: str) -> str:
    """Write a kubeconfig as JSON, which is valid YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "flotilla", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": "flotilla", "user": {"token": token}}],
            "contexts": [{"name": "flotilla", "context": {"cluster": "flotilla", "user": "flotilla"}}],
            "current-context": "flotilla",
        },
        indent=1,
    )
