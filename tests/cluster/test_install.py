"""A fresh installation: its objects, their permissions, and validation of the manifests by the API server."""

import pytest

from cluster.harness.cache import CommandFailed
from cluster.harness.cluster import Cluster
from cluster.harness.images import CHART
from support.cluster import wait_until
from support.release import Release

_VALUES = {
    "defaults": [],
    "autoscaling": ["--set=readers.autoscaling.enabled=true"],
    "network-policies": ["--set=networkPolicy.enabled=true"],
    "own-database": ["--set=database.existingSecret=mine"],
    "own-secret": ["--set=auth.existingSecret=mine"],
    "ingress-tls": ["--set=ingress.host=flotilla.example", "--set=ingress.tls.enabled=true"],
    "server-tls": ["--set=tls.existingSecret=certificates"],
    "one-of-each": ["--set=brokers.replicas=1", "--set=readers.replicas=1"],
}


def test_installation_passes_helm_test(release: Release) -> None:
    """`helm test` sends records through the system that `helm install` has created."""
    release.wait_ready()
    output = release.cluster.helm("test", release.name, f"--namespace={release.namespace}", "--timeout=5m")
    assert "Phase:          Succeeded" in output


def test_notes_list_the_next_steps(release: Release) -> None:
    notes = release.cluster.helm("get", "notes", release.name, f"--namespace={release.namespace}")
    assert "flotilla tokens create" in notes
    assert "helm test" in notes


def test_pods_run_unprivileged_and_without_service_account_token(release: Release) -> None:
    """Pods run as an unprivileged user on a read-only root file system. Only the operator has an API token."""
    for pod in release.get("pods")["items"]:
        name, spec = pod["metadata"]["name"], pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        tokens = [volume for volume in spec["volumes"] if "projected" in volume]
        assert bool(tokens) == (pod["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"), name
        for container in spec["containers"]:
            context = {**spec.get("securityContext", {}), **container["securityContext"]}
            assert context["runAsNonRoot"] is True, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


def test_pods_can_write_only_to_their_volumes(release: Release) -> None:
    writes = "import os, sys; open(sys.argv[1], 'w').close(); os.remove(sys.argv[1])"
    for component in ("broker", "writer", "reader", "operator"):
        pod = release.pods(component)[0]
        release.exec(pod, "python3", "-c", writes, "/tmp/x")  # noqa: S108 - the pod's own
        for path in ("/x", "/opt/flotilla/x", "/etc/x"):
            with pytest.raises(CommandFailed, match=r"Read-only file system|Permission denied"):
                release.exec(pod, "python3", "-c", writes, path)


@pytest.mark.usefixtures("release")  # which installs the CRDs
@pytest.mark.parametrize("name", _VALUES)
def test_api_server_accepts_the_rendered_manifests(cluster: Cluster, name: str) -> None:
    """For the most important values, with strict validation."""
    rendered = cluster.helm("template", "other", str(CHART), "--namespace=default", "--no-hooks", *_VALUES[name])
    output = cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "--namespace=default", "-f", "-", text=rendered
    )
    assert output.count("(server dry run)") == rendered.count("\nkind: ")


def test_invalid_value_is_rejected_with_its_key(cluster: Cluster) -> None:
    with pytest.raises(CommandFailed, match=r"brokers"):
        cluster.helm("template", "x", str(CHART), "--set=brokers.replicas=many")
    with pytest.raises(CommandFailed, match=r"brokres"):
        cluster.helm("template", "x", str(CHART), "--set=brokres.replicas=3")


def test_second_eviction_is_rejected_while_the_first_broker_is_missing(release: Release) -> None:
    """The disruption budget of brokers allows one eviction at a time."""
    release.wait_ready()

    def allowed() -> int:
        return int(release.get("poddisruptionbudget", "flotilla-broker")["status"]["disruptionsAllowed"])

    wait_until("the budget to allow an eviction", lambda: allowed() == 1)
    first, second, _ = sorted(release.pods("broker"))
    before = release.uid(first)
    evict(release, first)
    with pytest.raises(CommandFailed, match=r"disruption budget"):
        evict(release, second)
    wait_until("the broker to be replaced", lambda: release.uid(first) not in {None, before}, 90)
    release.wait_ready()


def evict(release: Release, pod: str) -> None:
    """Evict a pod, as `kubectl drain` does."""
    eviction = f'{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{pod}"}}}}'
    path = f"/api/v1/namespaces/{release.namespace}/pods/{pod}/eviction"
    release.cluster.kubectl("create", f"--raw={path}", "-f", "-", text=eviction)
