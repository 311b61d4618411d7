"""What the chart's hooks run: `python -m flotilla_operator.prepare upgrade` or `delete`.

Before an upgrade: the definitions of our resources are brought up to date, which Helm never does; what the chart of an
older version made and the operator looks after now is marked to be kept, or Helm would delete it. And the Broker is
made, if Helm cannot: it is not defined yet when Helm looks. What Helm finds made by somebody else it takes over as it
is, without looking for differences; so one that was made here is changed here once more, and then it is Helm's.

Before Flotilla is removed: the operator goes; Topics are let go, since nobody will be there to do it later; drivers of
Pipelines end, and so does the Broker. Records and checkpoints stay.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from flotilla.serving import logs
from flotilla_operator.errors import OperatorError
from flotilla_operator.kube import BROKER, DEFINITION, POD, TOPIC, Data, Kube, NotFound
from flotilla_operator.letting_go import let_go
from flotilla_operator.names import API_VERSION, COMPONENT, GROUP
from flotilla_operator.pipelines.wish import DRIVER
from flotilla_operator.steps import Remove

logger = logging.getLogger("flotilla_operator.prepare")

MADE = {f"{GROUP}/made-by": "hook"}
KEEP = {"helm.sh/resource-policy": "keep"}
_KINDS = {"statefulset": "StatefulSet", "service": "Service", "poddisruptionbudget": "PodDisruptionBudget"}
_ESTABLISHED_S = 60
_LOOK_S = 0.5
_GONE_S = 120
_TRIES = 3


async def upgrade(
    kube: Kube, definitions: Sequence[Data], kept: Sequence[str], manifest: Data, *, only_change: bool
) -> None:
    """Do what is done before an upgrade. Raises OperatorError."""
    for definition in definitions:
        await kube.apply(definition)
        await _wait_established(kube, definition["metadata"]["name"])
        logger.info("%s is up to date", definition["metadata"]["name"])
    for one in kept:
        kind, _, name = one.partition("/")
        if await kube.annotate(_KINDS[kind], name, KEEP):
            logger.info("%s is kept: the operator looks after it", one)
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if not only_change:
        await kube.apply(_marked(manifest))
        logger.info("%s %s is made", kind, name)
    elif _is_marked(await kube.get(kind, name)):
        await kube.apply(manifest)
        logger.info("%s %s, which a hook has made, is as the chart says, and Helm's from now on", kind, name)


def _marked(manifest: Data) -> Data:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **MADE}}}


def _is_marked(found: Data | None) -> bool:
    said = ((found or {}).get("metadata") or {}).get("annotations") or {}
    return said.items() >= MADE.items()


async def _wait_established(kube: Kube, name: str) -> None:
    async with asyncio.timeout(_ESTABLISHED_S):
        while not _is_established(await kube.get(DEFINITION, name)):  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(_LOOK_S)


def _is_established(definition: dict[str, Any] | None) -> bool:
    held = ((definition or {}).get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in held)


async def delete(kube: Kube, cluster: str, operator: str, labels: Mapping[str, str], broker: str) -> None:
    """Do what is done before Flotilla is removed. Raises OperatorError.

    The operator goes first: it would say again what is taken back here.
    """
    await kube.scale("Deployment", operator, 0)
    async with asyncio.timeout(_GONE_S):
        while any(map(_runs, await kube.list(POD, labels))):  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(_LOOK_S)
    for one in await kube.list(POD, {**labels, COMPONENT: DRIVER}):
        await kube.remove(Remove("v1", POD, one["metadata"]["name"], one["metadata"]["uid"]))
    try:
        found = await kube.get(BROKER, broker)
        await _let_go(kube, cluster)
    except NotFound:  # somebody has removed the definitions, and all resources with them
        return
    if found is not None:
        await kube.remove(Remove(API_VERSION, BROKER, broker, found["metadata"]["uid"]))


async def _let_go(kube: Kube, cluster: str) -> None:
    for _ in range(_TRIES):
        topics = await kube.list(TOPIC)
        if await let_go(kube, [one for one in topics if one["spec"].get("cluster") == cluster]):
            return


def _runs(pod: Data) -> bool:
    """Tell whether a pod is there; those that were evicted from a node stay for somebody to look at."""
    return (pod.get("status") or {}).get("phase") not in {"Failed", "Succeeded"}


def _read(path: str) -> Data:
    found: Data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return found


def _read_all(folder: str) -> list[Data]:
    return [_read(str(path)) for path in sorted(Path(folder).glob("*.yaml"))]


def main(arguments: Sequence[str]) -> int:
    """Read the arguments, and do it."""
    parser = argparse.ArgumentParser(prog="python -m flotilla_operator.prepare", description=__doc__.partition("\n")[0])
    parser.add_argument("--namespace", required=True, help="where Flotilla is")
    commands = parser.add_subparsers(dest="command", required=True)
    before_upgrade = commands.add_parser("upgrade", help="before an upgrade")
    before_upgrade.add_argument("--definitions", type=_read_all, required=True, help="a folder with those to apply")
    before_upgrade.add_argument("--keep", action="append", default=[], metavar="KIND/NAME", help="what Helm must keep")
    before_upgrade.add_argument("--apply", type=_read, required=True, metavar="FILE", help="a resource to apply")
    before_upgrade.add_argument("--only-change", action="store_true", help="it is Helm's, unless a hook has made it")
    before_delete = commands.add_parser("delete", help="before Flotilla is removed")
    before_delete.add_argument("--cluster", required=True, help="the name of the installation")
    before_delete.add_argument("--operator", required=True, help="the operator's Deployment")
    before_delete.add_argument("--broker", required=True, help="the Broker that the chart has made")
    before_delete.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="labels of its pods")
    options = parser.parse_args(arguments)
    logs.set_up("info", "prepare")
    try:
        asyncio.run(_run(options))
    except (OperatorError, TimeoutError, OSError) as error:
        logger.critical("%s", error or "it took too long")
        return 1
    return 0


async def _run(options: argparse.Namespace) -> None:
    kube = Kube(options.namespace, "flotilla-upgrade")
    try:
        if options.command == "upgrade":
            await upgrade(kube, options.definitions, options.keep, options.apply, only_change=options.only_change)
        else:
            labels = dict(one.split("=", 1) for one in options.label)
            await delete(kube, options.cluster, options.operator, labels, options.broker)
    finally:
        await kube.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
