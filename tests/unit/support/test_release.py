import json
from pathlib import Path
from typing import Any, cast

from cluster.harness.cache import CommandFailed
from cluster.harness.cluster import Cluster
from support.release import Release


class FakeCluster:
    """Runs no kubectl: it knows one driver pod, and no kind `pipelines`, as with an older chart."""

    def kubectl(self, *words: str, seconds: float = 0, text: str | None = None) -> str:
        del seconds, text
        if "pipelines" in words:
            raise CommandFailed("the server doesn't have a resource type pipelines")
        return f"output of {words[1]} {words[2]}"

    def get(self, *words: str, namespace: str) -> dict[str, Any]:
        del words, namespace
        return {"items": [{"metadata": {"name": "stats-driver"}}]}


def test_description_of_a_release_has_pipelines_and_driver_logs_and_survives_unknown_kinds(tmp_path: Path) -> None:
    release = Release(cast("Cluster", FakeCluster()), tmp_path, {})
    assert json.loads((tmp_path / "flotilla.json").read_text()) == {}
    text = release.describe()
    assert "output of get brokers" in text
    assert "== kubectl describe pipelines\nthe server doesn't have a resource type pipelines" in text
    assert "output of describe pods" in text
    assert "output of logs stats-driver" in text
