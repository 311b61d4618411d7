"""The settings of brokers, as variables. A change of them changes the pods' template, which has their checksum."""

import hashlib
from typing import Any

from flotilla_operator.brokers.spec import BrokerSet


def make(wanted: BrokerSet) -> dict[str, Any]:
    """Make the ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": wanted.labels,
            "ownerReferences": [wanted.owner],
        },
        "data": variables(wanted),
    }


def variables(wanted: BrokerSet) -> dict[str, str]:
    """Write settings as variables."""
    return {f"FLOTILLA_{name.upper()}": value for name, value in wanted.config.items()}


def checksum(wanted: BrokerSet) -> str:
    """What changes when a setting does."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(variables(wanted).items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
