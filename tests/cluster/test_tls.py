"""An installation whose servers accept only TLS, from each other and from clients."""

from collections.abc import Iterator

import pytest
import trustme

from cluster.harness.cache import CommandFailed
from cluster.harness.cluster import Cluster
from support.release import Release

from .test_pipelines import pipeline, wait_for
from .test_topics import topic

_NAMESPACE = "secure"
_SERVICES = ("flotilla", "flotilla-reader", "flotilla-writer", "*.flotilla-broker")
_PLAIN = "import urllib.request; urllib.request.urlopen('http://flotilla/healthz', timeout=10)"


@pytest.fixture(scope="module")
def secure(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A second installation, with certificates of its own CA."""
    tmp_path = tmp_path_factory.mktemp("secure")
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    registry = cluster.image_prefix.rstrip("/")
    values = {
        "image": {"registry": registry},
        "spark": {"image": {"registry": registry}},
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


def test_all_connections_use_tls(secure: Release) -> None:
    """Brokers replicate, managers forward, and a client produces and consumes over TLS; plain HTTP is rejected."""
    output = secure.cluster.helm("test", secure.name, f"--namespace={_NAMESPACE}", "--timeout=5m")
    assert "Phase:          Succeeded" in output
    with pytest.raises(CommandFailed, match=r"URLError|RemoteDisconnected|reset"):
        secure.exec(secure.pods("reader")[0], "python3", "-c", _PLAIN)


def test_pipeline_connects_over_tls(secure: Release) -> None:
    """Driver and executors get the CA bundle and the token."""
    secure.apply(topic("logs", partitions=1))
    secure.wait_condition("topic/logs", "Ready")
    where = f"--url https://flotilla-writer.{_NAMESPACE}.svc:8080 --ca /etc/flotilla/tls/ca.crt"
    grants = "--grant produce --grant consume --secret-file /etc/flotilla/secret/secret"
    script = f"""
    export FLOTILLA_TOKEN=$(flotilla tokens create me {grants} {where})
    echo '{{"level": "error", "source": "web"}}' | flotilla produce logs {where}
    echo token $FLOTILLA_TOKEN
    """
    output = secure.exec("deployment/flotilla-writer", "sh", "-euc", script)
    token = output.rpartition("token ")[2].strip()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pipelines"}, "stringData": {"token": token}}
    counts = {"application": {"builtIn": "log_stats"}, "topics": ["logs"]}
    secure.apply(secret, pipeline("stats", **counts, executors={"instances": 0}))
    wait_for(secure, "stats", "the table to be written", phase="Succeeded", attempt=1)
    assert "ERROR" in secure.kubectl("logs", "stats-driver")
