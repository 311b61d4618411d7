"""Carrying plans out, step by step. What cannot be done now is left for the next turn."""

import hashlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from flotilla_operator.brokers.children.ours import why_not_ours
from flotilla_operator.control import Control
from flotilla_operator.errors import Refused
from flotilla_operator.kube import Kube
from flotilla_operator.steps import (
    Apply,
    Create,
    DeleteTopic,
    Evict,
    Label,
    Manifest,
    PutBroker,
    PutTopic,
    ReleaseTopic,
    Remove,
    RemoveBroker,
    SetFinalizers,
    Step,
    Tell,
)

logger = logging.getLogger(__name__)


class Actor:
    """The hands of the operator."""

    def __init__(self, kube: Kube, control: Control, now: Callable[[], str]) -> None:
        self._kube = kube
        self._control = control
        self._now = now
        self._applied: dict[tuple[str, str], tuple[str, str]] = {}  # what was applied, and the version that it gave

    async def do(self, kind: str, resource: dict[str, Any] | None, step: Step) -> bool:
        """Carry out one step; tell whether it changed anything. Raises Away, Refused."""
        match step:
            case Apply():
                return await self._apply(step)
            case Tell():
                assert resource is not None  # noqa: S101 - only plans for a resource tell of it
                await self._kube.tell(kind, resource, step, self._now())
                return False
            case SetFinalizers(finalizers):
                assert resource is not None  # noqa: S101
                await self._kube.set_finalizers(kind, resource, finalizers)
            case Create():
                if not await self._kube.create(step):
                    await self._check(step)
                    return False
            case Evict(pod, _, why):
                is_done = await self._kube.evict(step)
                logger.info("%s", why if is_done else f"{pod} stays for now: the disruption budget does not let it go")
                return is_done
            case _:
                await self._order(step)
        logger.info("%s", step)
        return True

    async def _order(self, step: Step) -> None:
        match step:
            case PutTopic(name, body):
                await self._control.put_topic(name, body)
            case DeleteTopic(name, topic_id, owner):
                await self._control.delete_topic(name, topic_id, owner)
            case ReleaseTopic(name, owner):
                await self._control.release_topic(name, owner)
            case PutBroker(broker_id, body):
                await self._control.put_broker(broker_id, body)
            case RemoveBroker(broker_id):
                await self._control.remove_broker(broker_id)
            case Remove():
                await self._kube.remove(step)
            case Label():
                await self._kube.label(step)

    async def _check(self, step: Create) -> None:
        """See that what has the name already is ours, where it must be. Raises Refused."""
        manifest = step.manifest
        found = await self._kube.get(manifest["kind"], manifest["metadata"]["name"]) if step.must_be_ours else None
        foreign = why_not_ours(manifest, found)
        if foreign is not None:
            raise Refused(foreign)

    async def _apply(self, step: Apply) -> bool:
        """Apply a manifest, unless it was applied as it is, and nobody has changed the resource since."""
        manifest = step.manifest
        key = (manifest["kind"], manifest["metadata"]["name"])
        digest = hashlib.sha256(msgspec.json.encode(manifest)).hexdigest()
        before = self._applied.get(key)
        if before is not None and before[0] == digest:
            return False
        there = await self._kube.get(*key) if before is None or step.if_there else None
        if there is None and step.if_there:
            return False
        foreign = why_not_ours(manifest, there)
        if foreign is not None:
            raise Refused(foreign)
        found = await self._kube.apply(manifest)
        self._applied[key] = digest, version_of(found)
        logger.info("applied %s %s", *key)
        return True

    def hear(self, kind: str, resource: Manifest, *, is_gone: bool) -> bool:
        """Hear of a resource: if somebody else has changed it, it is applied again. Tell whether that is so."""
        key = (kind, resource["metadata"]["name"])
        before = self._applied.get(key)
        is_changed = before is not None and (is_gone or before[1] != version_of(resource))
        if is_changed:
            del self._applied[key]
        return is_changed

    def forget(self) -> None:
        """Apply everything again, whatever was heard."""
        self._applied.clear()


def version_of(resource: Manifest) -> str:
    """What changes when somebody changes what a resource should be; of some kinds, with everything else, too."""
    metadata = resource["metadata"]
    return f"{metadata['uid']} {metadata.get('generation') or metadata.get('resourceVersion')}"
