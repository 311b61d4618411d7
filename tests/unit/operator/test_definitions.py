"""The definitions of our resources say what the rest of the code does."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flotilla.limits import PARTITIONS_MAX, REPLICATION_MAX, TOPIC_BATCH_BYTES_MIN, TOPIC_NAME_RULE
from flotilla.records import BATCH_BYTES_MAX
from flotilla_broker.settings import Settings
from flotilla_operator.brokers.children import make_children
from flotilla_operator.brokers.members import (
    DISK_LOST,
    FAILED,
    LAGGING,
    LEAVING,
    PENDING,
    RUNNING,
    STARTING,
    UNREACHABLE,
)
from flotilla_operator.brokers.spec import read_set
from flotilla_operator.names import GROUP, VERSION

from .worlds import CLUSTER, broker_resource

_CRDS = Path(__file__).resolve().parents[3] / "crds"
NAMES = ("brokers", "topics")


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_CRDS / f"{name}.{GROUP}.yaml").read_text(encoding="utf-8"))
    return found


def schema(name: str, *path: str) -> Any:  # noqa: ANN401 - any part of it
    (version,) = load(name)["spec"]["versions"]
    found = version["schema"]["openAPIV3Schema"]
    for key in path:
        found = found["properties"][key]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_definitions_are_whole(name: str) -> None:
    spec = load(name)["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], version["name"], spec["scope"]) == (GROUP, VERSION, "Namespaced")
    assert spec["names"]["categories"] == ["flotilla"]
    assert version["subresources"]["status"] == {}
    assert {"Ready", "Reason", "Age", "Why"} <= {one["name"] for one in version["additionalPrinterColumns"]}


def walk(node: Any, path: str = "spec") -> list[tuple[str, dict[str, Any]]]:  # noqa: ANN401
    """All fields of a schema."""
    found = [(path, node)]
    for key, one in node.get("properties", {}).items():
        found += walk(one, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            found += walk(node[key], f"{path}[]")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_users_say_has_a_limit(name: str) -> None:
    """Rules cost the API server time, and what comes from users is hostile until it is checked."""
    for path, node in walk(schema(name, "spec")):
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "integer":
            assert {"minimum", "maximum"} <= node.keys(), path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


def test_limits_are_those_of_the_servers() -> None:
    spec = schema("topics", "spec")["properties"]
    assert spec["partitions"]["maximum"] == PARTITIONS_MAX
    assert spec["replication"]["maximum"] == REPLICATION_MAX
    limits = spec["config"]["properties"]["batchBytesMax"]
    assert (limits["minimum"], limits["maximum"]) == (TOPIC_BATCH_BYTES_MIN, BATCH_BYTES_MAX)
    assert spec["topicName"]["pattern"] == "^" + TOPIC_NAME_RULE.replace("{0,199}", "*") + "$"
    assert spec["topicName"]["maxLength"] == 200


def test_phases_are_those_that_there_are() -> None:
    phases = schema("brokers", "status", "brokers")["items"]["properties"]["phase"]["enum"]
    assert set(phases) == {PENDING, STARTING, RUNNING, LAGGING, UNREACHABLE, FAILED, LEAVING, DISK_LOST}


def test_settings_that_the_operator_sets_cannot_be_set_by_users() -> None:
    (rule,) = [
        one["rule"] for one in schema("brokers", "spec", "config")["x-kubernetes-validations"] if "data" in one["rule"]
    ]
    refused = {word.strip(" '") for word in rule.split("[")[1].split("]")[0].split(",")}
    assert refused <= set(Settings.__dataclass_fields__), "what is refused is a setting"
    wanted = read_set(broker_resource(), CLUSTER)
    (container,) = make_children(wanted, 3, [wanted.owner])[-1]["spec"]["template"]["spec"]["containers"]
    given = {one["name"].removeprefix("FLOTILLA_").lower() for one in container["env"] if "FLOTILLA" in one["name"]}
    assert given <= refused
