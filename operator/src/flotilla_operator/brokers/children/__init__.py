"""The objects that the operator creates for a Broker, in the order in which they are applied."""

from typing import Any

from flotilla_operator.brokers.children import objects, statefulset
from flotilla_operator.brokers.spec import BrokerSet


def make_children(desired: BrokerSet, replicas: int, owners: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make all children; those that pods need come before the StatefulSet. `owners` are all sets of the cluster."""
    account = [] if desired.template.get("serviceAccountName") else [objects.make_service_account(desired)]
    return [
        *account,
        objects.make_config_map(desired),
        objects.make_service(desired),
        objects.make_disruption_budget(desired.installation, owners),
        statefulset.make(desired, replicas),
    ]
