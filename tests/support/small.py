"""A second, small release without an ingress, in its own namespace."""

from pathlib import Path
from typing import Any

from cluster.harness.cluster import Cluster
from cluster.harness.images import CHART
from support.release import Release


def small_release(
    cluster: Cluster,
    folder: Path,
    namespace: str,
    *,
    chart: Path = CHART,
    has_operator: bool = True,
    image_tag: str = "",
    **values: Any,  # noqa: ANN401
) -> Release:
    """Make a release that is not installed yet."""
    few = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    parts = ("brokers", "writer", "postgresql", *(("operator",) if has_operator else ()))
    given = {
        "image": {"registry": cluster.image_prefix.rstrip("/"), "tag": image_tag},
        "ingress": {"enabled": False},
        "readers": {"replicas": 1, "resources": few},
        **{part: {"resources": few} for part in parts},
        **values,
    }
    return Release(cluster, folder, given, namespace, chart)
