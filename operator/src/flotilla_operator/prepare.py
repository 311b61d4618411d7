"""The chart's hooks: `python -m flotilla_operator.prepare upgrade` or `delete`.

Before an upgrade: apply the CRDs, which Helm installs only once. Mark objects of an older chart that the operator
manages now, or Helm would delete them. Create the Broker if Helm cannot, because the CRD did not exist when Helm
checked. Helm takes over an existing Broker without applying its manifest. So if a hook created the Broker, apply it
again at the next upgrade.

Before an uninstallation: stop the operator, remove the finalizers of Topics, which no operator would remove later,
delete the drivers of Pipelines, and delete the Broker. Records and checkpoints are kept.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from flotilla_operator.errors import NotFound, OperatorError, Rejected
from flotilla_operator.finalizers import remove_finalizers
from flotilla_operator.kubernetes_client import DEFINITION, Data, KubernetesClient
from flotilla_operator.names import BROKER, COMPONENT, FINALIZER, GROUP, POD, TOPIC, belongs_to
from flotilla_operator.pipelines.spec import SPARK_DRIVER
from flotilla_operator.plans import Delete
from flotilla_server import logs

logger = logging.getLogger("flotilla_operator.prepare")

MADE = {f"{GROUP}/made-by": "hook"}
KEEP = {"helm.sh/resource-policy": "keep"}
_KINDS = {"statefulset": "StatefulSet", "service": "Service", "poddisruptionbudget": "PodDisruptionBudget"}
_ESTABLISHED_S = 60
_POLL_S = 0.5
_GONE_S = 120
_TRIES = 3


async def upgrade(
    kubernetes: KubernetesClient, definitions: Sequence[Data], kept: Sequence[str], manifest: Data, *, only_change: bool
) -> None:
    """Prepare an upgrade. Raises OperatorError."""
    for definition in definitions:
        await kubernetes.apply(definition)
        await _wait_established(kubernetes, definition["metadata"]["name"])
        logger.info("CRD applied name=%s", definition["metadata"]["name"])
    for one in kept:
        kind, _, name = one.partition("/")
        if await kubernetes.annotate(_KINDS[kind], name, KEEP):
            logger.info("object marked to be kept by Helm object=%s", one)
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if not only_change:
        await kubernetes.apply(_marked(manifest))
        logger.info("object created kind=%s name=%s", kind, name)
    elif _is_marked(await kubernetes.get(kind, name)):
        await kubernetes.apply(manifest)
        logger.info("object adopted by Helm kind=%s name=%s", kind, name)


def _marked(manifest: Data) -> Data:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **MADE}}}


def _is_marked(found: Data | None) -> bool:
    annotations = ((found or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.items() >= MADE.items()


async def _wait_established(kubernetes: KubernetesClient, name: str) -> None:
    async with asyncio.timeout(_ESTABLISHED_S):
        while not _is_established(await kubernetes.get(DEFINITION, name)):  # noqa: ASYNC110 - polling the API server
            await asyncio.sleep(_POLL_S)


def _is_established(definition: dict[str, Any] | None) -> bool:
    conditions = ((definition or {}).get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def delete(
    kubernetes: KubernetesClient, cluster_name: str, operator: str, labels: Mapping[str, str], broker: str
) -> None:
    """Prepare an uninstallation. Raises OperatorError.

    The operator is stopped first: it would undo the changes.
    """
    await kubernetes.scale("Deployment", operator, 0)
    async with asyncio.timeout(_GONE_S):
        while any(map(_runs, await kubernetes.list(POD, labels))):  # noqa: ASYNC110 - polling the API server
            await asyncio.sleep(_POLL_S)
    for one in await kubernetes.list(POD, {**labels, COMPONENT: SPARK_DRIVER}):
        await kubernetes.delete(Delete(POD, one["metadata"]["name"], one["metadata"]["uid"]))
    try:
        found = await kubernetes.get(BROKER, broker)
        await _remove_finalizers(kubernetes, cluster_name)
    except NotFound:  # the CRDs were deleted, and all resources with them
        return
    if found is not None:
        await kubernetes.delete(Delete(BROKER, broker, found["metadata"]["uid"]))


async def _remove_finalizers(kubernetes: KubernetesClient, cluster_name: str) -> None:
    for _ in range(_TRIES):
        topics = await kubernetes.list(TOPIC)
        if await remove_finalizers(kubernetes, [one for one in topics if belongs_to(one, cluster_name)]):
            return
    raise Rejected(
        f"finalizers of some Topics were not removed in {_TRIES} attempts: run the uninstallation again, or remove "
        f"{FINALIZER} from their metadata.finalizers"
    )


def _runs(pod: Data) -> bool:
    """Whether a pod may still run. Kubernetes keeps evicted pods, which do not."""
    return (pod.get("status") or {}).get("phase") not in {"Failed", "Succeeded"}


def _read(path: str) -> Data:
    found: Data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return found


def _read_all(folder: str) -> list[Data]:
    return [_read(str(path)) for path in sorted(Path(folder).glob("*.yaml"))]


def main(arguments: Sequence[str]) -> int:
    """Parse the arguments and run a hook."""
    parser = argparse.ArgumentParser(prog="python -m flotilla_operator.prepare", description=__doc__.partition("\n")[0])
    parser.add_argument("--namespace", required=True, help="namespace of the installation")
    commands = parser.add_subparsers(dest="command", required=True)
    before_upgrade = commands.add_parser("upgrade", help="prepare an upgrade")
    before_upgrade.add_argument("--definitions", type=_read_all, required=True, help="directory of CRDs to apply")
    before_upgrade.add_argument("--keep", action="append", default=[], metavar="KIND/NAME", help="object to keep")
    before_upgrade.add_argument("--apply", type=_read, required=True, metavar="FILE", help="manifest of the Broker")
    before_upgrade.add_argument("--only-change", action="store_true", help="apply the Broker only if a hook created it")
    before_delete = commands.add_parser("delete", help="prepare an uninstallation")
    before_delete.add_argument("--cluster", required=True, help="name of the installation")
    before_delete.add_argument("--operator", required=True, help="name of the operator's Deployment")
    before_delete.add_argument("--broker", required=True, help="name of the chart's Broker")
    before_delete.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="label of pods")
    options = parser.parse_args(arguments)
    logs.set_up("info", "prepare")
    try:
        asyncio.run(_run(options))
    except (OperatorError, TimeoutError, OSError) as error:
        logger.critical("%s", str(error) or "timed out")
        return 1
    return 0


async def _run(options: argparse.Namespace) -> None:
    kubernetes = await KubernetesClient.connect(options.namespace, "flotilla-upgrade")
    try:
        if options.command == "upgrade":
            await upgrade(kubernetes, options.definitions, options.keep, options.apply, only_change=options.only_change)
        else:
            labels = dict(one.split("=", 1) for one in options.label)
            await delete(kubernetes, options.cluster, options.operator, labels, options.broker)
    finally:
        await kubernetes.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
