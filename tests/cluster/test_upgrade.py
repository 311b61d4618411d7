"""Upgrade of an installation from before the operator beside another one, whose chart has installed the CRDs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness.cluster import Cluster
from support.release import Release

from .test_takeover import BROKERS, claims, installed, upgrade_chart


@pytest.fixture
def older(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """An installation of the old chart."""
    with installed(cluster, tmp_path) as made:
        yield made


@pytest.mark.usefixtures("release")
def test_upgrade_with_existing_crds(older: Release) -> None:
    """Helm creates the Broker itself, without a hook."""
    before = claims(older)
    upgrade_chart(older)
    assert claims(older) == before
    older.upgrade("--set=brokers.config.log_level=debug")
    older.wait_condition(BROKERS, "Updated")
    assert older.get(BROKERS)["spec"]["config"] == {"log_level": "debug"}
