"""A real Kubernetes, with Flotilla on it: made once for all tests here.

Without more, the tests make a cluster of their own (see `harness`). With KUBECONFIG and FLOTILLA_IMAGES (a prefix such
as `registry.example.com/`, empty for images that were loaded into kind), they use that one; FLOTILLA_HTTP and
FLOTILLA_HTTPS (host:port) are its ingress controller.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.harness import cluster as own
from cluster.harness import images
from cluster.harness.cluster import Cluster
from cluster.harness.machine import what_is_missing
from support.release import Release


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Kubernetes itself."""
    if "KUBECONFIG" in os.environ and "FLOTILLA_IMAGES" in os.environ:
        yield _given()
        return
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    with own.running() as found:
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
    )


@pytest.fixture(scope="session")
def values(cluster: Cluster) -> dict[str, Any]:
    """What the chart is told: our images, and requests that three brokers on a small machine can have."""
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "2Gi"}}
    of_harness = cluster.image_prefix == f"{images.PREFIX}/"
    registry = cluster.image_prefix.rstrip("/")
    found: dict[str, Any] = {
        "image": {"registry": registry, **({"tag": "test"} if of_harness else {}), "pullPolicy": "IfNotPresent"},
        "brokers": {"resources": small},
        "writer": {"resources": small},
        "readers": {"resources": small},
        "postgresql": {"resources": small, **({"image": images.POSTGRESQL} if of_harness else {})},
    }
    return found


@pytest.fixture(scope="session")
def release(cluster: Cluster, values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Flotilla, installed from nothing."""
    made = Release(cluster, tmp_path_factory.mktemp("release"), values)
    made.install()
    return made


@pytest.fixture(scope="session")
def token(release: Release) -> str:
    """A token that may do everything."""
    return release.token()
