"""The claim for a checkpoint. It stays when its Pipeline goes, unless that says otherwise. Pure."""

from typing import Any

from flotilla_operator.pipelines.wish import DELETE, DRIVER, Pipeline


def make(wanted: Pipeline) -> dict[str, Any] | None:
    """Make the claim, if the pipeline has one of its own."""
    checkpoint = wanted.spec.get("checkpoint") or {}
    volume = checkpoint.get("volume") or {}
    if "size" not in volume:
        return None
    spec: dict[str, Any] = {
        "accessModes": [volume.get("accessMode", "ReadWriteOnce")],
        "resources": {"requests": {"storage": volume["size"]}},
    }
    if volume.get("storageClass"):
        spec["storageClassName"] = volume["storageClass"]
    is_ours = checkpoint.get("deletionPolicy") == DELETE
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": wanted.claim,
            "namespace": wanted.installation.namespace,
            "labels": wanted.labels(DRIVER),
            "ownerReferences": [wanted.owner] if is_ours else [],
        },
        "spec": spec,
    }
