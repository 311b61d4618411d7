"""What to do about a Topic resource. Pure.

A resource owns the topic of its name: managers then refuse everybody else who wants to change or delete it. It becomes
the owner of one that nobody owns, however that was made, and never of one that another resource owns.

Records are deleted in one case: the resource is being deleted, its policy is Delete, and the topic that managers know
is the very one (by id) that its status names, and is owned by it. In all other doubts the topic stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flotilla_operator import conditions
from flotilla_operator.conditions import Condition
from flotilla_operator.names import FINALIZER
from flotilla_operator.steps import DeleteTopic, Plan, PutTopic, ReleaseTopic, SetFinalizers, Step, Tell
from flotilla_operator.topics import conditions as judging
from flotilla_operator.topics import status
from flotilla_operator.topics.wish import REPLICATION, Resource, Wish, read_wish
from flotilla_operator.world import READY, Topic, World

_REFUSED = "Refused"
_PARTLY = {"PartitionsOnlyGrow", "ReplicationFixed"}  # the rest of the spec counts all the same


@dataclass(frozen=True)
class Observed:
    """What a plan is made from, besides the resource."""

    world: World | None  # None while managers are away
    away: str = ""  # why they are
    is_gone: bool = False  # there are no managers any more, and will not be
    rival: str | None = None  # an older resource for a topic of the same name
    refusal: str | None = None  # what managers said to what this spec asks for
    may_ask: bool = True  # whether it is time to ask for the same again
    has_racks: bool = True  # whether managers know the racks of all brokers
    waits_for: str | None = None  # why they have not done it yet
    called: Mapping[str, str] | None = None  # what brokers are called, by id
    brokers: int = 0  # as many as there are to be, by their resources


def plan_topic(resource: Resource, observed: Observed, now: str) -> Plan:
    """Decide about one resource. `now` is the time, as Kubernetes writes it."""
    is_leaving = "deletionTimestamp" in resource["metadata"]
    try:
        wish = read_wish(resource)
    except ValueError as error:
        if is_leaving:  # nothing was ever made of it
            return Plan(_release(resource))
        return Plan((), _status(resource, judging.absent(("SpecInvalid", str(error))), {}, now))
    if is_leaving:
        return Plan(_farewell(resource, wish, observed))
    return _plan(resource, wish, observed, now)


def _plan(resource: Resource, wish: Wish, observed: Observed, now: str) -> Plan:
    steps: list[Step] = [*_finalizers(resource, wish)]
    if observed.world is None:
        kept = {key: value for key, value in (resource.get("status") or {}).items() if key != "conditions"}
        return Plan(tuple(steps), _status(resource, judging.unknown(observed.away), kept, now))
    found = observed.world.topics_by_name.get(wish.name)
    trouble = _trouble(wish, found, observed) or _too_early(wish, found, observed.world, observed)
    is_asked = not wish.is_mirror and (found is None or wish.differs(found))
    if is_asked and (trouble is None or trouble[0] in _PARTLY or (trouble[0] == _REFUSED and observed.may_ask)):
        steps.append(PutTopic(wish.name, wish.body(found)))
        asked = ("BeingMade", "managers are asked to make it")
        asked = asked if found is None else ("BeingChanged", "managers are asked to change it")
        trouble = trouble or (asked if observed.waits_for is None else ("Waiting", observed.waits_for))
    if found is None:
        waiting = trouble or ("Missing", "there is no such topic")
        return Plan(tuple(steps), _status(resource, judging.absent(waiting), {"topicName": wish.name}, now))
    views, called = status.look(observed.world, found), observed.called or {}
    shown = judging.judge(found, views, trouble, called)
    figures = status.figures(found, views, called)
    if trouble is not None and trouble[0] in {"NameTaken", "OwnedByAnother"}:
        figures.pop("topicId")  # it is not its own
    return Plan(tuple(steps), _status(resource, shown, figures, now))


def _finalizers(resource: Resource, wish: Wish) -> list[Step]:
    """One finalizer, where records go with the resource; none otherwise: what nobody waits for cannot hang."""
    has = tuple(resource["metadata"].get("finalizers") or ())
    if wish.deletes and FINALIZER not in has:
        return [SetFinalizers((*has, FINALIZER))]
    if not wish.deletes and FINALIZER in has:
        return [SetFinalizers(tuple(one for one in has if one != FINALIZER))]
    return []


def _trouble(wish: Wish, found: Topic | None, observed: Observed) -> tuple[str, str] | None:
    """Say what keeps the topic from being as the spec says: a reason and a message."""
    if observed.rival is not None:
        return "NameTaken", f"{observed.rival} is older, and is for the topic '{wish.name}', too"
    if found is None:
        return (_REFUSED, observed.refusal) if observed.refusal is not None else None
    if found.owner not in {None, wish.owner}:
        return "OwnedByAnother", f"the topic '{wish.name}' belongs to {found.owner}"
    fixed = _what_cannot_change(wish, found)
    if fixed is None and observed.refusal is not None and (wish.differs(found) or found.state != READY):
        return _REFUSED, observed.refusal
    return fixed


def _too_early(wish: Wish, found: Topic | None, world: World, observed: Observed) -> tuple[str, str] | None:
    """Say what a new topic waits for: on which brokers its partitions are is decided when it is made, and stays.

    While a cluster starts, managers know few of its brokers, and not their racks, and would place a topic on those.
    """
    if found is not None or wish.is_mirror:
        return None
    needed = wish.replication if wish.replication is not None else min(REPLICATION, observed.brokers)
    if world.places < needed:
        reason = "Waiting" if observed.brokers >= needed else "TooFewBrokers"  # more are on their way, or none
        known = conditions.count(world.places, "broker")
        return reason, f"each partition is to be on {needed} brokers; {known} registered so far"
    return None if observed.has_racks else ("Waiting", "managers are being told the racks of brokers")


def _what_cannot_change(wish: Wish, found: Topic) -> tuple[str, str] | None:
    if wish.partitions is not None and wish.partitions < len(found.partitions):
        text = f"the topic has {len(found.partitions)} partitions; there can only be more than that"
        return "PartitionsOnlyGrow", text
    if wish.replication is not None and wish.replication != found.replication:
        text = f"each partition is on {conditions.count(found.replication, 'broker')}, which cannot be changed"
        return "ReplicationFixed", text
    return None


def _farewell(resource: Resource, wish: Wish, observed: Observed) -> tuple[Step, ...]:
    """Let a resource go; before that, delete the records if that is wanted, and certain."""
    release = _release(resource)
    if not release or observed.is_gone or not wish.deletes:
        return release
    found = observed.world.topics_by_name.get(wish.name) if observed.world is not None else None
    if observed.world is None or (found is not None and found.state != READY):
        return ()  # managers will be back; what is being made can be deleted then
    own_id = (resource.get("status") or {}).get("topicId")
    if found is None:
        return release
    if found.id != own_id or found.owner != wish.owner:
        text = f"the topic '{wish.name}' is not the one that this resource had; it stays"
        return (*release, Tell("TopicKept", text, warning=True))
    return (
        DeleteTopic(wish.name, found.id, wish.owner),
        *release,  # before it is told: in a namespace that is being deleted, nothing can be
        Tell("TopicDeleted", f"the topic '{wish.name}' was deleted with its records"),
    )


def _release(resource: Resource) -> tuple[Step, ...]:
    has = tuple(resource["metadata"].get("finalizers") or ())
    return (SetFinalizers(tuple(one for one in has if one != FINALIZER)),) if FINALIZER in has else ()


def plan_releases(world: World, namespace: str, owners: frozenset[str]) -> tuple[Step, ...]:
    """Let topics go whose resources are gone: they stay, and belong to nobody."""
    prefix = f"Topic {namespace}/"
    return tuple(
        ReleaseTopic(topic.name, topic.owner)
        for topic in world.topics_by_name.values()
        if topic.owner is not None and topic.owner.startswith(prefix) and topic.owner not in owners
    )


def _status(resource: Resource, shown: tuple[Condition, ...], figures: Mapping[str, Any], now: str) -> dict[str, Any]:
    before = (resource.get("status") or {}).get("conditions") or []
    generation = resource["metadata"].get("generation", 0)
    written = conditions.write(shown, before, generation, now)
    return {
        "observedGeneration": generation,
        "conditions": written,
        **figures,
    }
