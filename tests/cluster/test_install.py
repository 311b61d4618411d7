"""An installation from nothing: what is there, what it may do, and what the API server thinks of the manifests."""

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


def test_it_installs_and_its_own_test_passes(release: Release) -> None:
    """`helm install` gives a working system: `helm test` sends records through it."""
    release.wait_ready()
    said = release.cluster.helm("test", release.name, f"--namespace={release.namespace}", "--timeout=5m")
    assert "Phase:          Succeeded" in said


def test_notes_say_what_to_do_next(release: Release) -> None:
    notes = release.cluster.helm("get", "notes", release.name, f"--namespace={release.namespace}")
    assert "flotilla tokens create" in notes
    assert "helm test" in notes


def test_pods_have_no_rights_and_no_token(release: Release) -> None:
    """Pods run as somebody without rights, on a read-only root; only the operator can speak with Kubernetes."""
    for pod in release.get("pods")["items"]:
        name, spec = pod["metadata"]["name"], pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        speaks = [volume for volume in spec["volumes"] if "projected" in volume]
        assert bool(speaks) == (pod["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"), name
        for container in spec["containers"]:
            context = {**spec.get("securityContext", {}), **container["securityContext"]}
            assert context["runAsNonRoot"] is True, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


def test_nothing_in_a_pod_can_be_written_but_its_volumes(release: Release) -> None:
    writes = "import os, sys; open(sys.argv[1], 'w').close(); os.remove(sys.argv[1])"
    for component in ("broker", "writer", "reader", "operator"):
        pod = release.pods(component)[0]
        release.exec(pod, "python3", "-c", writes, "/tmp/x")  # noqa: S108 - the pod's own
        for place in ("/x", "/opt/flotilla/x", "/etc/x"):
            with pytest.raises(CommandFailed, match=r"Read-only file system|Permission denied"):
                release.exec(pod, "python3", "-c", writes, place)


@pytest.mark.usefixtures("release")  # which brings the definitions of our resources
@pytest.mark.parametrize("name", _VALUES)
def test_manifests_are_valid(cluster: Cluster, name: str) -> None:
    """The API server itself takes what the chart renders, for the values that matter."""
    rendered = cluster.helm("template", "other", str(CHART), "--namespace=default", "--no-hooks", *_VALUES[name])
    said = cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "--namespace=default", "-f", "-", text=rendered
    )
    assert said.count("(server dry run)") == rendered.count("\nkind: ")


def test_bad_values_are_refused_with_the_key(cluster: Cluster) -> None:
    with pytest.raises(CommandFailed, match=r"brokers"):
        cluster.helm("template", "x", str(CHART), "--set=brokers.replicas=many")
    with pytest.raises(CommandFailed, match=r"brokres"):
        cluster.helm("template", "x", str(CHART), "--set=brokres.replicas=3")


def test_a_second_eviction_has_to_wait(release: Release) -> None:
    """The disruption budget of brokers lets one go at a time."""
    release.wait_ready()

    def allowed() -> int:
        return int(release.get("poddisruptionbudget", "flotilla-broker")["status"]["disruptionsAllowed"])

    wait_until("the budget to allow one to go", lambda: allowed() == 1)
    first, second, _ = sorted(release.pods("broker"))
    before = release.uid(first)
    evict(release, first)
    with pytest.raises(CommandFailed, match=r"disruption budget"):
        evict(release, second)
    wait_until("it to come back", lambda: release.uid(first) not in {None, before}, 90)
    release.wait_ready()


def evict(release: Release, pod: str) -> None:
    """Ask for a pod to be moved away, as `kubectl drain` does."""
    eviction = f'{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{pod}"}}}}'
    path = f"/api/v1/namespaces/{release.namespace}/pods/{pod}/eviction"
    release.cluster.kubectl("create", f"--raw={path}", "-f", "-", text=eviction)
