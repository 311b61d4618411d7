"""What is known of brokers, and changed by the writer: one change at a time, each from what the database says then.

A change that was made from an older look could take back another one: a heartbeat that arrives while somebody removes
its broker must not bring that back. Placing replicas takes the same turn, so that none goes to a broker that is being
removed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from flotilla.serving.errors import Refusal
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.model import Broker, Snapshot, replicas_per_broker
from flotilla_manager.view import View
from flotilla_manager.writer.reports import Beat

BROKERS_MAX = 1000  # a broker takes addresses of little more

Decision = Callable[[Broker | None, Snapshot], Broker]


class Brokers:
    """The writer's hand on what is known of brokers."""

    def __init__(self, database: AsyncMetadata, view: View, turn: asyncio.Lock) -> None:
        self._database = database
        self._view = view
        self._turn = turn

    async def change(self, epoch: int, id_: str, decide: Decision) -> Broker:
        """Decide about a broker, from what is known now; to decide for what is there changes nothing.

        Raises what `decide` raises, and MetadataError.
        """
        await self._view.refresh()  # while the database is away, everybody fails here, and nobody in turn
        async with self._turn:
            await self._view.refresh()
            snapshot = self._view.snapshot
            assert snapshot is not None  # noqa: S101 - it has just been read
            known = snapshot.brokers_by_id.get(id_)
            broker = decide(known, snapshot)
            if broker != known:
                await self._database.call(self._database.store.put_broker, epoch, broker)
                await self._view.refresh()
        return broker


# -- decisions ------------------------------------------------------------------------------------------------


def hear(beat: Beat) -> Decision:
    """Take a broker's word about itself. One that was removed stays so; a new one needs room."""

    def decide(known: Broker | None, snapshot: Snapshot) -> Broker:
        if known is not None and known.removed:
            return known
        if known is None:
            check_room(snapshot)
        return beat.to_broker(known)

    return decide


def add(beat: Beat) -> Decision:
    """Let a broker take part, whatever was decided about it before."""

    def decide(known: Broker | None, snapshot: Snapshot) -> Broker:
        if known is None or known.removed:
            check_room(snapshot)
        return replace(beat.to_broker(known), removed=False, wanted=True)

    return decide


def remove(known: Broker | None, snapshot: Snapshot) -> Broker:
    """Do without a broker that holds nothing."""
    broker = registered(known)
    held = replicas_per_broker(snapshot.topics).get(broker.id, 0)
    if held:
        replicas = "1 replica" if held == 1 else f"{held} replicas"
        raise Refusal("conflict", f"Broker {broker.id} holds {replicas}; it can be removed when it holds none.")
    return replace(broker, removed=True, active=False)


def cordon(*, cordoned: bool) -> Decision:
    """Keep new replicas and leaders away from a broker, or let them come."""
    return lambda known, _: replace(registered(known), cordoned=cordoned)


def instruct(*, rack: str | None, wanted: bool, cordoned: bool) -> Decision:
    """Take an operator's word about a broker."""

    def decide(known: Broker | None, _: Snapshot) -> Broker:
        broker = registered(known)
        removed = broker.removed and not wanted  # one that is wanted again takes part again
        return replace(broker, rack=rack or broker.rack, wanted=wanted, cordoned=cordoned, removed=removed)

    return decide


def registered(broker: Broker | None) -> Broker:
    """Raise Refusal unless a broker is known."""
    if broker is None:
        raise Refusal("not_found", "No such broker has registered.")
    return broker


def check_room(snapshot: Snapshot) -> None:
    """Refuse one broker more than there can be."""
    count = sum(not broker.removed for broker in snapshot.brokers)
    if count >= BROKERS_MAX:
        text = f"{count} brokers are registered; {BROKERS_MAX} is the limit. Remove those that are gone."
        raise Refusal("conflict", text)


def find(snapshot: Snapshot, host: str) -> Broker:
    """Find a broker by its address or its id. Raises Refusal.

    A broker that has lost its disk comes back under a new id, at the address of the old one: the one that lives is
    meant, unless the id is given.
    """
    here = [broker for broker in snapshot.brokers if host in _names(broker) and not broker.removed]
    if not here:
        raise Refusal("bad_request", f"No broker is registered at {host}.")
    return next((broker for broker in here if broker.active), here[-1])


def _names(broker: Broker) -> set[str]:
    return {broker.id, broker.url, broker.address}
