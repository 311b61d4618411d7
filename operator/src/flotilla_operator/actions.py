"""Running the actions of plans, one by one. The next reconcile plans failed actions again."""

import hashlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from flotilla_operator.brokers.ownership import describe_foreign_owner
from flotilla_operator.control_client import ControlClient
from flotilla_operator.errors import Rejected
from flotilla_operator.kubernetes_client import KubernetesClient
from flotilla_operator.plans import (
    Action,
    Apply,
    Create,
    Delete,
    DeleteTopic,
    EmitEvent,
    Evict,
    Label,
    Manifest,
    PutBroker,
    PutTopic,
    ReleaseTopic,
    RemoveBroker,
    SetFinalizers,
)

logger = logging.getLogger(__name__)


class ActionRunner:
    """Runs actions against Kubernetes and the managers."""

    def __init__(self, kubernetes: KubernetesClient, control: ControlClient, now: Callable[[], str]) -> None:
        self._kubernetes = kubernetes
        self._control = control
        self._now = now
        self._applied: dict[
            tuple[str, str], tuple[str, str]
        ] = {}  # digest of a manifest, and `applied_state_of` the object

    async def run(self, kind: str | None, resource: dict[str, Any] | None, action: Action) -> bool:
        """Run one action; return whether it changed anything. Raises Unavailable, Rejected.

        `kind` and `resource` are None for actions that belong to no resource: these emit no events and set no
        finalizers.
        """
        match action:
            case Apply():
                return await self._apply(action)
            case EmitEvent():
                assert kind is not None  # noqa: S101 - only plans of resources have this action
                assert resource is not None  # noqa: S101
                await self._kubernetes.emit_event(kind, resource, action, self._now())
                return False
            case Create():
                is_done = await self._create(action)
            case Evict():
                is_done = await self._kubernetes.evict(action)
            case SetFinalizers(finalizers):
                assert kind is not None  # noqa: S101 - only plans of resources have this action
                assert resource is not None  # noqa: S101
                await self._kubernetes.set_finalizers(kind, resource, finalizers)
                is_done = True
            case Delete():
                is_done = await self._kubernetes.delete(action)
            case Label():
                await self._kubernetes.label(action)
                is_done = True
            case _:
                await self._change_cluster(action)
                is_done = True
        if is_done:
            logger.info("%s", action)
        return is_done

    async def _change_cluster(self, action: PutTopic | DeleteTopic | ReleaseTopic | PutBroker | RemoveBroker) -> None:
        match action:
            case PutTopic(name, body):
                await self._control.put_topic(name, body)
            case DeleteTopic(name, topic_id, owner):
                await self._control.delete_topic(name, topic_id, owner)
            case ReleaseTopic(name, owner):
                await self._control.release_topic(name, owner)
            case PutBroker(broker_id=broker_id, body=body):
                await self._control.put_broker(broker_id, body)
            case RemoveBroker(broker_id=broker_id):
                await self._control.remove_broker(broker_id)

    async def _create(self, action: Create) -> bool:
        if await self._kubernetes.create(action):
            return True
        manifest = action.manifest
        if action.must_be_owned:
            _require_owned(manifest, await self._kubernetes.get(manifest["kind"], manifest["metadata"]["name"]))
        return False

    async def _apply(self, action: Apply) -> bool:
        """Apply a manifest, unless the same one was applied and no watch reported another change since."""
        manifest = action.manifest
        key = (manifest["kind"], manifest["metadata"]["name"])
        digest = hashlib.sha256(msgspec.json.encode(manifest)).hexdigest()
        before = self._applied.get(key)
        if before is not None and before[0] == digest and not action.is_unwatched:
            return False
        is_unknown = before is None or action.if_exists or action.is_unwatched
        current = await self._kubernetes.get(*key) if is_unknown else None
        if current is None and action.if_exists:
            return False
        _require_owned(manifest, current)
        applied = await self._kubernetes.apply(manifest)
        self._applied[key] = digest, applied_state_of(applied)
        logger.info("object applied kind=%s name=%s", *key)
        return True

    def detect_drift(self, kind: str, resource: Manifest, *, is_deleted: bool) -> bool:
        """Process an event of an object; return whether another client changed it, so that it is applied again."""
        key = (kind, resource["metadata"]["name"])
        before = self._applied.get(key)
        is_changed = before is not None and (is_deleted or before[1] != applied_state_of(resource))
        if is_changed:
            del self._applied[key]
        return is_changed

    def forget_applied(self) -> None:
        """Apply all manifests again in the next reconcile."""
        self._applied.clear()


def applied_state_of(resource: Manifest) -> str:
    """Return a text that changes with the spec of an object; for kinds without generation, with any change."""
    metadata = resource["metadata"]
    return f"{metadata['uid']} {metadata.get('generation') or metadata.get('resourceVersion')}"


def _require_owned(manifest: Manifest, current: Manifest | None) -> None:
    foreign = describe_foreign_owner(manifest, current)
    if foreign is not None:
        raise Rejected(foreign)
