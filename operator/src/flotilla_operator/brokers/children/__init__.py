"""The resources that a Broker becomes, one file each. Applied in the order of `make_children`."""

from typing import Any

from flotilla_operator.brokers.children import configmap, pdb, service, serviceaccount, statefulset
from flotilla_operator.brokers.spec import BrokerSet


def make_children(wanted: BrokerSet, replicas: int, owners: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make all children: what pods need comes before the pods. `owners` are all sets of the cluster."""
    account = [] if wanted.template.get("serviceAccountName") else [serviceaccount.make(wanted)]
    return [
        *account,
        configmap.make(wanted),
        service.make(wanted),
        pdb.make(wanted.cluster, owners),
        statefulset.make(wanted, replicas),
    ]
