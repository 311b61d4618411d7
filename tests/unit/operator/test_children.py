"""The children of a Broker as golden text: a change of them replaces broker pods, so it must be deliberate.

To rewrite the text: FLOTILLA_GOLDEN=write pytest tests/unit/operator/test_children.py
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flotilla_operator.brokers.children import make_children
from flotilla_operator.brokers.children.statefulset import needs_recreation
from flotilla_operator.brokers.spec import BrokerInstallation, read_broker_set

from .builders import CLUSTER, broker_resource

_GOLDEN = Path(__file__).parent / "testdata"
_TLS = replace(CLUSTER, tls_secret="certificates", image_pull_secrets=("registry",), auth="off")  # noqa: S106 - a name
_ALL = {
    "replicas": 5,
    "image": "registry.example.com/flotilla:2",
    "imagePullPolicy": "Always",
    "storage": {"size": "50Gi", "storageClass": "fast"},
    "claimRetention": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    "rack": {"topologyKey": "zone"},
    "config": {"segment_bytes": "64MiB", "connections_max": 100},
    "resources": {"requests": {"cpu": "200m"}, "limits": {"memory": "2Gi"}},
    "template": {
        "labels": {"team": "logs"},
        "annotations": {"note": "x"},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "serviceAccountName": "mine",
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "spread": {"hosts": "DoNotSchedule", "zones": "Off"},
        "terminationGracePeriodSeconds": 90,
    },
}


def children(installation: BrokerInstallation, spec: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = read_broker_set(broker_resource(**spec), installation)
    return make_children(wanted, wanted.replicas, [wanted.owner])


@pytest.mark.parametrize(("name", "installation", "spec"), [("defaults", CLUSTER, {}), ("everything", _TLS, _ALL)])
def test_children_match_the_golden_text(name: str, installation: BrokerInstallation, spec: dict[str, Any]) -> None:
    text = yaml.safe_dump_all(children(installation, spec), sort_keys=False)
    path = _GOLDEN / f"{name}.yaml"
    if os.environ.get("FLOTILLA_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_changed_setting_changes_the_pod_template() -> None:
    before, after = (children(CLUSTER, {"config": {"log_level": level}})[-1] for level in ("info", "debug"))
    assert before["spec"]["template"] != after["spec"]["template"]
    assert not needs_recreation({**before, "spec": before["spec"]}, after)


def test_statefulset_is_recreated_for_another_storage_class_but_not_for_another_unit_of_size() -> None:
    """Kubernetes writes 1024Gi as 1Ti: as a change, it would recreate the StatefulSet again and again."""
    small, fast, large = ({"size": "1Ti"}, {"size": "1Ti", "storageClass": "fast"}, {"size": "1024Gi"})
    before = children(CLUSTER, {"storage": small})[-1]
    assert needs_recreation(before, children(CLUSTER, {"storage": fast})[-1])
    assert not needs_recreation(before, children(CLUSTER, {"storage": large})[-1])


def test_disruption_budget_is_owned_by_all_sets_without_a_controller() -> None:
    wanted = read_broker_set(broker_resource(), CLUSTER)
    owners = [wanted.owner, {**wanted.owner, "name": "fast", "uid": "uid-fast"}]
    (budget,) = [one for one in make_children(wanted, 3, owners) if one["kind"] == "PodDisruptionBudget"]
    assert [one["name"] for one in budget["metadata"]["ownerReferences"]] == ["flotilla-broker", "fast"]
    assert not any(one["controller"] for one in budget["metadata"]["ownerReferences"])
