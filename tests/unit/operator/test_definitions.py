"""The CRDs match the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from flotilla.limits import (
    DAY_MS,
    PARTITIONS_DEFAULT,
    PARTITIONS_MAX,
    REPLICATION_DEFAULT,
    REPLICATION_MAX,
    RETENTION_MS_DEFAULT,
    TOPIC_BATCH_BYTES_MIN,
    TOPIC_NAME_LENGTH_MAX,
    TOPIC_NAME_RULE,
)
from flotilla.records import BATCH_BYTES_MAX
from flotilla.units import parse_size
from flotilla_broker.settings import Settings
from flotilla_operator.brokers.children import make_children
from flotilla_operator.brokers.instances import (
    DISK_LOST,
    FAILED,
    LAGGING,
    LEAVING,
    PENDING,
    RUNNING,
    STARTING,
    UNREACHABLE,
)
from flotilla_operator.brokers.spec import read_broker_set
from flotilla_operator.names import GROUP, VERSION

from .builders import CLUSTER, broker_resource

_ROOT = Path(__file__).resolve().parents[3]
_CRDS = _ROOT / "crds"
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


def test_crds_link_to_the_files_of_the_chart() -> None:
    """CRDs exist once: an edit of either path changes the same file, and the chart can be packaged without links."""
    chart = _ROOT / "helm" / "flotilla" / "crds"
    expected = {f"{kind}.{GROUP}.yaml": chart / f"{kind}.{GROUP}.yaml" for kind in ("brokers", "pipelines", "topics")}
    assert {path.name: path.resolve() for path in _CRDS.iterdir()} == expected
    assert set(chart.iterdir()) == set(expected.values())


@pytest.mark.parametrize("name", NAMES)
def test_crds_have_subresources_and_printer_columns(name: str) -> None:
    spec = load(name)["spec"]
    (version,) = spec["versions"]
    assert (spec["group"], version["name"], spec["scope"]) == (GROUP, VERSION, "Namespaced")
    assert spec["names"]["categories"] == ["flotilla"]
    assert version["subresources"]["status"] == {}
    assert {"Ready", "Reason", "Age", "Message"} <= {one["name"] for one in version["additionalPrinterColumns"]}


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
def test_every_spec_field_has_a_limit(name: str) -> None:
    """Validation rules cost time of the API server, and input of users is not trusted."""
    for path, node in walk(schema(name, "spec")):
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "integer":
            assert {"minimum", "maximum"} <= node.keys(), path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


@pytest.mark.parametrize("name", [*NAMES, "pipelines"])
def test_every_field_has_a_description(name: str) -> None:
    """`kubectl explain` shows it."""
    fields = [one for part in ("spec", "status") for one in walk(schema(name, part), part)]
    assert [path for path, node in fields if not path.endswith("[]") and "description" not in node] == []


def test_crd_limits_match_the_servers() -> None:
    spec = schema("topics", "spec")["properties"]
    assert spec["partitions"]["maximum"] == PARTITIONS_MAX
    assert spec["replication"]["maximum"] == REPLICATION_MAX
    limits = spec["config"]["properties"]["batchBytesMax"]
    assert (limits["minimum"], limits["maximum"]) == (TOPIC_BATCH_BYTES_MIN, BATCH_BYTES_MAX)
    assert_is_topic_name(spec["topicName"])


def test_pipeline_crd_accepts_the_topic_names_of_the_servers() -> None:
    assert_is_topic_name(schema("pipelines", "spec", "topics")["items"])


def assert_is_topic_name(node: dict[str, Any]) -> None:
    """Check that a CRD has the rule of the servers: the length is a limit of its own."""
    assert node["pattern"] == "^" + TOPIC_NAME_RULE.replace(f"{{0,{TOPIC_NAME_LENGTH_MAX - 1}}}", "*") + "$"
    assert node["maxLength"] == TOPIC_NAME_LENGTH_MAX


@pytest.mark.parametrize(
    ("field", "default"), [("partitions", PARTITIONS_DEFAULT), ("replication", REPLICATION_DEFAULT)]
)
def test_crd_describes_the_defaults_of_the_servers(field: str, default: int) -> None:
    """The CRD sets no default, so that the field stays unset in the resource, and the managers' default applies."""
    found = schema("topics", "spec", field)
    assert "default" not in found
    assert re.search(rf"\(default: {default}[,)]", found["description"])


def test_crd_describes_the_default_retention_of_the_servers() -> None:
    found = schema("topics", "spec", "retention")
    assert "default" not in found
    assert f": {RETENTION_MS_DEFAULT // DAY_MS} days, no size limit." in found["description"]


@pytest.mark.parametrize("unit", ["", "Ki", "Mi", "Gi", "Ti", "KiB", "MiB", "GiB", "TiB"])
def test_crd_accepts_every_unit_of_a_size(unit: str) -> None:
    pattern = schema("topics", "spec", "retention", "size")["pattern"]
    assert re.search(pattern, f"10{unit}")
    assert parse_size(f"10{unit}") >= 10


@pytest.mark.parametrize("size", ["", "0", "0Mi", "-1", "1.5Gi", "Mi", "1M", "1MB", "10 Mi", "1iB", "1Pi", "Unlimited"])
def test_crd_rejects_invalid_sizes(size: str) -> None:
    assert not re.search(schema("topics", "spec", "retention", "size")["pattern"], size)


def test_crd_phases_match_the_operator() -> None:
    phases = schema("brokers", "status", "brokers")["items"]["properties"]["phase"]["enum"]
    assert set(phases) == {PENDING, STARTING, RUNNING, LAGGING, UNREACHABLE, FAILED, LEAVING, DISK_LOST}


def test_crd_rejects_settings_that_the_operator_sets() -> None:
    (rule,) = [
        one["rule"] for one in schema("brokers", "spec", "config")["x-kubernetes-validations"] if "data" in one["rule"]
    ]
    refused = {word.strip(" '") for word in rule.split("[")[1].split("]")[0].split(",")}
    assert refused <= set(Settings.__dataclass_fields__), "what is refused is a setting"
    wanted = read_broker_set(broker_resource(), CLUSTER)
    (container,) = make_children(wanted, 3, [wanted.owner])[-1]["spec"]["template"]["spec"]["containers"]
    given = {one["name"].removeprefix("FLOTILLA_").lower() for one in container["env"] if "FLOTILLA" in one["name"]}
    assert given <= refused
