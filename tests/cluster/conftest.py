"""Fixtures of the cluster tests: a real Kubernetes cluster, and Flotilla installed on it once for all tests.

By default the tests start their own cluster (see `harness`). If KUBECONFIG and FLOTILLA_IMAGES are set, they use that
cluster. FLOTILLA_IMAGES is an image prefix such as `registry.example.com/`, or empty for images that were loaded into
kind. FLOTILLA_HTTP and FLOTILLA_HTTPS (host:port) are the ingress controller. On a cluster that the tests did not
start, they work in namespaces that they create and delete, and exit at once if one of these exists already.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from cluster.harness import cluster as own
from cluster.harness.cluster import Cluster
from cluster.harness.machine import missing_requirement
from support.release import Release
from support.walk import first_hour, follow

DEFINED = ("brokers.flotilla.dev", "pipelines.flotilla.dev", "topics.flotilla.dev")
_NAMESPACES = ("doomed", "flotilla", "older", "secure")


@pytest.fixture(scope="session")
def shown(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which output is shown at once: the first build takes minutes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    disabled: Callable[[], AbstractContextManager[None]] = capture.global_and_fixture_disabled
    return disabled


@pytest.fixture(scope="session")
def cluster(shown: Callable[[], AbstractContextManager[None]]) -> Iterator[Cluster]:
    """The cluster: the one of KUBECONFIG, or one that is started for the tests."""
    if "KUBECONFIG" in os.environ and "FLOTILLA_IMAGES" in os.environ:
        given = _given_cluster()
        existing = [name for name in _NAMESPACES if given.kubectl("get", "namespace", name, "--ignore-not-found")]
        if existing:
            pytest.exit(f"namespaces {', '.join(existing)} exist: the tests would delete them; delete them first")
        with contextlib.closing(given):
            yield given
        return
    missing = missing_requirement()
    if missing is not None and os.environ.get("CLUSTER") == "1":
        pytest.exit(missing, returncode=1)  # it was requested explicitly
    if missing is not None:
        pytest.skip(missing)
    with ExitStack() as stack:
        with shown():
            found = stack.enter_context(own.running())
        yield found


def _given_cluster() -> Cluster:
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
    """Run tests that need a bare cluster first, before Flotilla is installed."""
    items.sort(key=lambda item: "bare_cluster" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="module")
def bare_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster without Flotilla, before and after the tests of a module that request it."""
    if not cluster.is_ours:
        pytest.skip("the tests do not delete CRDs of a cluster that they did not start")
    assert "flotilla.dev" not in cluster.kubectl("get", "customresourcedefinitions")
    yield cluster
    cluster.kubectl("delete", "customresourcedefinition", *DEFINED)


@pytest.fixture(scope="session")
def walked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str] | None:
    """Result of the commands for new users on an empty cluster; None if the images have other names."""
    return None if cluster.image_prefix else follow(cluster, tmp_path_factory.mktemp("walk"), first_hour())


@pytest.fixture(scope="session")
def release(
    cluster: Cluster, walked: subprocess.CompletedProcess[str] | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """Flotilla with the default values of the chart, installed on an empty cluster."""
    registry = cluster.image_prefix.rstrip("/")
    values = {"image": {"registry": registry}, "spark": {"image": {"registry": registry}}}
    made = Release(cluster, tmp_path_factory.mktemp("release"), values)
    if walked is None:
        made.install()
    elif walked.returncode != 0:
        pytest.fail(f"the commands of the docs failed:\n{walked.stdout}{walked.stderr}\n{made.describe()}")
    yield made
    if not cluster.is_ours:
        made.remove()


@pytest.fixture(scope="session")
def token(release: Release) -> str:
    """A token with all scopes."""
    return release.token()
