"""Servers that speak TLS alone, with each other and with clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from cluster.harness.cache import CommandFailed
from cluster.harness.cluster import Cluster
from support.release import Release

_NAMESPACE = "secure"
_SERVICES = ("flotilla", "flotilla-reader", "flotilla-writer", "*.flotilla-broker")
_PLAIN = "import urllib.request; urllib.request.urlopen('http://flotilla/healthz', timeout=10)"


@pytest.fixture
def secure(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A second system, with certificates of an authority of its own."""
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    values = {
        "image": {"registry": cluster.image_prefix.rstrip("/")},
        "tls": {"existingSecret": "certificates"},
        "ingress": {"enabled": False},
        "brokers": {"resources": small},
        "readers": {"replicas": 1, "resources": small},
        "writer": {"resources": small},
        "postgresql": {"resources": small},
    }
    made = Release(cluster, tmp_path, values, _NAMESPACE)
    authority = trustme.CA()
    certificate = authority.issue_cert(*(f"{name}.{_NAMESPACE}.svc" for name in _SERVICES))
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    for at, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(tmp_path / "tls.crt", append=at > 0)
    cluster.kubectl("create", "namespace", _NAMESPACE)
    files = [f"--from-file={tmp_path / name}" for name in ("tls.crt", "tls.key", "ca.crt")]
    made.kubectl("create", "secret", "generic", "certificates", *files)
    made.install()
    yield made
    made.remove()


def test_all_servers_speak_tls_with_each_other_and_with_clients(secure: Release) -> None:
    """Three brokers replicate, managers pass on, a client goes in and out: all of it by certificates."""
    said = secure.cluster.helm("test", secure.name, f"--namespace={_NAMESPACE}", "--timeout=5m")
    assert "Phase:          Succeeded" in said
    with pytest.raises(CommandFailed, match=r"URLError|RemoteDisconnected|reset"):
        secure.exec(secure.pods("reader")[0], "python3", "-c", _PLAIN)
