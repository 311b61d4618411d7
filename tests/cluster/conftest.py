"""A real Kubernetes, with Flotilla on it: made once for all tests here.

Without more, the tests make a cluster of their own (see `harness`). With KUBECONFIG and FLOTILLA_IMAGES (a prefix such
as `registry.example.com/`, empty for images that were loaded into kind), they use that one; FLOTILLA_HTTP and
FLOTILLA_HTTPS (host:port) are its ingress controller. On a cluster that is not theirs, tests work in namespaces that
they make and remove, and refuse to begin where these are there already.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from cluster.harness import cluster as own
from cluster.harness.cluster import Cluster
from cluster.harness.machine import what_is_missing
from support.release import Release
from support.walk import follow, readme

DEFINED = ("brokers.flotilla.dev", "pipelines.flotilla.dev", "topics.flotilla.dev")
_NAMESPACES = ("doomed", "flotilla", "older", "secure")


@pytest.fixture(scope="session")
def shown(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """Make a context in which what is printed is seen at once: building takes minutes, the first time."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    disabled: Callable[[], AbstractContextManager[None]] = capture.global_and_fixture_disabled
    return disabled


@pytest.fixture(scope="session")
def cluster(shown: Callable[[], AbstractContextManager[None]]) -> Iterator[Cluster]:
    """Kubernetes itself."""
    if "KUBECONFIG" in os.environ and "FLOTILLA_IMAGES" in os.environ:
        given = _given()
        there = [name for name in _NAMESPACES if given.kubectl("get", "namespace", name, "--ignore-not-found")]
        if there:
            pytest.exit(
                f"{', '.join(there)}: the tests remove namespaces of these names in the end, and did not make them"
            )
        yield given
        return
    missing = what_is_missing()
    if missing is not None and os.environ.get("CLUSTER") == "1":
        pytest.exit(missing, returncode=1)  # somebody asked for it
    if missing is not None:
        pytest.skip(missing)
    with ExitStack() as stack:
        with shown():
            found = stack.enter_context(own.running())
        yield found


def _given() -> Cluster:
    programs = {name: shutil.which(name) for name in ("kubectl", "helm")}
    assert programs["kubectl"] is not None, "kubectl is missing"
    assert programs["helm"] is not None, "helm is missing"
    return Cluster(
        kubeconfig=Path(os.environ["KUBECONFIG"]),
        kubectl_program=programs["kubectl"],
        helm_program=programs["helm"],
        image_prefix=os.environ["FLOTILLA_IMAGES"],
        http=os.environ.get("FLOTILLA_HTTP"),
        https=os.environ.get("FLOTILLA_HTTPS"),
        is_ours=False,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests that need a bare cluster come before all others, which install Flotilla on it."""
    items.sort(key=lambda item: "bare_cluster" not in getattr(item, "fixturenames", ()))


@pytest.fixture
def bare_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """Kubernetes before it has heard of Flotilla, and so again in the end."""
    if not cluster.is_ours:
        pytest.skip("definitions of resources of a cluster that is not ours are left as they are")
    assert "flotilla.dev" not in cluster.kubectl("get", "customresourcedefinitions")
    yield cluster
    cluster.kubectl("delete", "customresourcedefinition", *DEFINED)


@pytest.fixture(scope="session")
def walked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str] | None:
    """How following the README on an empty cluster ended; None where its images have other names."""
    return None if cluster.image_prefix else follow(cluster, tmp_path_factory.mktemp("walk"), readme())


@pytest.fixture(scope="session")
def release(
    cluster: Cluster, walked: subprocess.CompletedProcess[str] | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """Flotilla, installed from nothing, with the chart's own values."""
    registry = cluster.image_prefix.rstrip("/")
    values = {"image": {"registry": registry}, "spark": {"image": {"registry": registry}}}
    made = Release(cluster, tmp_path_factory.mktemp("release"), values)
    if walked is None:
        made.install()
    elif walked.returncode != 0:
        pytest.fail(f"the README did not install it:\n{walked.stdout}{walked.stderr}\n{made.describe()}")
    yield made
    if not cluster.is_ours:
        made.remove()


@pytest.fixture(scope="session")
def token(release: Release) -> str:
    """A token that may do everything."""
    return release.token()
