"""The OpenAPI document and the metrics of a manager: summaries, tags, names."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flotilla_manager.api.app import make_app
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.manager import Manager
from flotilla_manager.metadata import open_store
from flotilla_manager.settings import Settings

T = TypeVar("T")
RENAMED = {
    "flotilla_kept_record_bytes": "flotilla_record_cache_bytes",
    "flotilla_listeners": "flotilla_tail_streams",
    "flotilla_known_producers": "flotilla_cached_producers",
}


def with_manager(folder: Path, read_api: Callable[[Manager], T]) -> T:
    async def run() -> T:
        manager = Manager(Settings(), open_store(f"sqlite:///{folder}/metadata.db"), lambda _: None)
        try:
            return read_api(manager)
        finally:
            await manager.close()

    return asyncio.run(run())


def read_openapi(manager: Manager) -> dict[str, Any]:
    found: dict[str, Any] = make_app(manager).rest.app.openapi()  # type: ignore[attr-defined]
    return found


def test_openapi_operations_have_a_summary_and_a_documented_tag(tmp_path: Path) -> None:
    document = with_manager(tmp_path, read_openapi)
    tags = {tag["name"] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert set(operation["tags"]) <= tags, (method, path)
            assert operation["summary"], (method, path)
            assert not operation["summary"].endswith("."), (method, path)
    assert document["paths"]["/topics"]["post"]["summary"] == "Create a topic"
    assert document["paths"]["/v1/groups/{name}/join"]["post"]["summary"] == "Join a group"


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_renamed_metrics_are_exported_under_both_names(tmp_path: Path, old: str, new: str) -> None:
    text = with_manager(tmp_path, lambda manager: Metrics(manager).to_bytes().decode())
    assert f"\n{old} 0.0" in text
    assert f"\n{new} 0.0" in text
