"""Servers that speak TLS alone, with each other and with clients."""

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
    """A second system, with certificates of an authority of its own."""
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


def test_all_servers_speak_tls_with_each_other_and_with_clients(secure: Release) -> None:
    """Three brokers replicate, managers pass on, a client goes in and out: all of it by certificates."""
    said = secure.cluster.helm("test", secure.name, f"--namespace={_NAMESPACE}", "--timeout=5m")
    assert "Phase:          Succeeded" in said
    with pytest.raises(CommandFailed, match=r"URLError|RemoteDisconnected|reset"):
        secure.exec(secure.pods("reader")[0], "python3", "-c", _PLAIN)


def test_a_pipeline_speaks_tls_with_servers(secure: Release) -> None:
    """Driver and executors know whom to trust, and read with the token that they are given."""
    secure.apply(topic("logs", partitions=1))
    secure.wait_condition("topic/logs", "Ready")
    where = f"--url https://flotilla-writer.{_NAMESPACE}.svc:8080 --ca /etc/flotilla/tls/ca.crt"
    grants = "--grant produce --grant consume --secret-file /etc/flotilla/secret/secret"
    script = f"""
    export FLOTILLA_TOKEN=$(flotilla tokens create me {grants} {where})
    echo '{{"level": "error", "source": "web"}}' | flotilla produce logs {where}
    echo token $FLOTILLA_TOKEN
    """
    said = secure.exec("deployment/flotilla-writer", "sh", "-euc", script)
    token = said.rpartition("token ")[2].strip()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pipelines"}, "stringData": {"token": token}}
    counts = {"application": {"builtIn": "log_stats"}, "topics": ["logs"]}
    secure.apply(secret, pipeline("stats", **counts, executors={"instances": 0}))
    wait_for(secure, "stats", "the table to be there", phase="Succeeded", attempt=1)
    assert "ERROR" in secure.kubectl("logs", "stats-driver")
