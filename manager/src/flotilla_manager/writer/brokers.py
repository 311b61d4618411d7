"""Changes of brokers, one at a time, each decided from a fresh snapshot.

A change that is decided from an older snapshot could revert another one: a heartbeat that arrives while its broker is
removed must not add it again. Placement uses the same lock, so that no replica is placed on a broker that is being
removed.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields, replace

from flotilla.protocol.errors import Refusal, not_found
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Broker, Snapshot, replicas_per_broker
from flotilla_manager.writer.reports import Heartbeat

logger = logging.getLogger(__name__)

BROKERS_MAX = 1000  # below PEERS_MAX of brokers (1024)

Decision = Callable[[Broker | None, Snapshot], Broker]


class BrokerRegistry:
    """Changes brokers in the database."""

    def __init__(self, database: AsyncMetadata, metadata: MetadataCache, lock: asyncio.Lock) -> None:
        self._database = database
        self._metadata = metadata
        self._lock = lock

    async def change(self, epoch: int, id_: str, decide: Decision) -> Broker:
        """Apply a decision to a broker. Writes nothing if the broker stays the same.

        Raises the errors of `decide`, and MetadataError.
        """
        await self._metadata.refresh()  # without the database, requests fail here and not one by one under the lock
        async with self._lock:
            await self._metadata.refresh()
            snapshot = self._metadata.snapshot
            assert snapshot is not None  # noqa: S101 - refreshed above
            known = snapshot.brokers_by_id.get(id_)
            broker = decide(known, snapshot)
            if broker != known:
                await self._database.call(self._database.store.put_broker, epoch, broker)
                line = change_line(known, broker)
                if line is not None:
                    logger.info("%s", line)
                await self._metadata.refresh()
        return broker


# -- decisions ------------------------------------------------------------------------------------------------


def from_heartbeat(heartbeat: Heartbeat) -> Decision:
    """Update a broker from its heartbeat, or register it. A removed broker stays removed."""

    def decide(known: Broker | None, snapshot: Snapshot) -> Broker:
        if known is not None and known.removed:
            return known
        if known is None:
            check_broker_limit(snapshot)
        return heartbeat.to_broker(known)

    return decide


def add(heartbeat: Heartbeat) -> Decision:
    """Register a broker, also if it was removed."""

    def decide(known: Broker | None, snapshot: Snapshot) -> Broker:
        if known is None or known.removed:
            check_broker_limit(snapshot)
        return replace(heartbeat.to_broker(known), removed=False, wanted=True)

    return decide


def remove(known: Broker | None, snapshot: Snapshot) -> Broker:
    """Remove a broker that holds no replicas."""
    broker = registered(known)
    held = replicas_per_broker(snapshot.topics).get(broker.id, 0)
    if held:
        replicas = "1 replica" if held == 1 else f"{held} replicas"
        raise Refusal(
            "conflict", f"Broker {broker.label} holds {replicas}; only a broker without replicas can be removed."
        )
    return replace(broker, removed=True, active=False)


def cordon(*, cordoned: bool) -> Decision:
    """Cordon or uncordon a broker."""
    return lambda known, _: replace(registered(known), cordoned=cordoned)


def configure(*, rack: str | None, wanted: bool, cordoned: bool) -> Decision:
    """Set rack, `wanted` and `cordoned`, as the operator requests."""

    def decide(known: Broker | None, _: Snapshot) -> Broker:
        broker = registered(known)
        removed = broker.removed and not wanted  # a wanted broker is not removed
        return replace(broker, rack=rack or broker.rack, wanted=wanted, cordoned=cordoned, removed=removed)

    return decide


def change_line(before: Broker | None, after: Broker) -> str | None:
    """Return the log line of a change; None for a broker that became inactive, which the reconciler logs."""
    subject, address = f"broker={after.label} id={after.id}", f"url={after.url} rack={after.rack}"
    if before is None:
        return f"broker registered {subject} {address}"
    if before.removed != after.removed:
        return f"broker removed {subject}" if after.removed else f"broker added {subject} {address}"
    names = [field.name for field in fields(Broker) if getattr(before, field.name) != getattr(after, field.name)]
    if names == ["cordoned"]:
        return f"broker {'cordoned' if after.cordoned else 'uncordoned'} {subject}"
    if names == ["active"] and not after.active:
        return None
    return f"broker updated {subject} " + " ".join(f"{name}={getattr(after, name)!r}" for name in names)


def registered(broker: Broker | None) -> Broker:
    """Return the broker. Raises Refusal if it is None."""
    if broker is None:
        raise not_found("broker", "The broker is not registered.")
    return broker


def check_broker_limit(snapshot: Snapshot) -> None:
    """Check that another broker can be registered. Raises Refusal."""
    count = sum(not broker.removed for broker in snapshot.brokers)
    if count >= BROKERS_MAX:
        text = f"{count} brokers are registered; the limit is {BROKERS_MAX}. Remove unused brokers."
        raise Refusal("conflict", text)


def find(snapshot: Snapshot, reference: str) -> Broker:
    """Find a broker by name, address or id. Raises Refusal.

    A broker that lost its disk returns with a new id at the same address. An address means the active one.
    """
    present = [broker for broker in snapshot.brokers if not broker.removed]
    here = [broker for broker in present if reference in {broker.id, broker.url, broker.address}]
    here = here or [broker for broker in present if broker.name == reference]
    if not here:
        text = f"No broker has the name, address or id {reference!r}; `flotilla brokers list` shows all."
        raise Refusal("bad_request", text)
    active = [broker for broker in here if broker.active]
    if len({broker.address for broker in active}) > 1:
        raise Refusal("bad_request", f"Several brokers have the name {reference}; use the address or the id of one.")
    return active[0] if active else here[-1]
