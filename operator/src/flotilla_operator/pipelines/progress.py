"""What drivers tell: how far they are, and why they ended. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from flotilla_operator.world import World

_PARTITIONS_MAX = 1000  # of more, offsets are not shown
_OFFSETS_BYTES_MAX = 256 << 10  # nor those with names as long as no topic has; Kubernetes takes a megabyte or so
_YEAR_MIN = 1970
_TEXT_MAX = 2000
_TIME_MAX = 40


# What a status may have in it.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Offsets = Annotated[dict[Name, dict[Name, Count]], msgspec.Meta(max_length=1000)]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver tells of the last micro-batch that it has committed. It may be anybody's code: all is checked."""

    time: str
    batch: Count = 0
    records: Count = 0
    records_per_second: Count = 0
    offsets: Offsets = {}

    def __post_init__(self) -> None:
        if len(self.time) > _TIME_MAX or self.moment is None:
            raise ValueError("it has no time")

    @property
    def moment(self) -> str | None:
        """The time, as Kubernetes has it."""
        try:
            found = datetime.strptime(self.time, "%Y-%m-%dT%H:%M:%S%z").astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        return found.strftime("%Y-%m-%dT%H:%M:%SZ") if found.year >= _YEAR_MIN else None


class Farewell(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver writes down when it ends."""

    failure: str | None = None
    progress: Progress | None = None


def read_progress(data: bytes) -> Progress | None:
    """Read what a driver answers; None if it has not got anywhere yet. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Progress | None)


def read_farewell(text: str) -> Farewell:
    """Read what a driver has left. One that could not write has left the end of its log."""
    try:
        return msgspec.json.decode(text.encode(), type=Farewell)
    except (msgspec.DecodeError, ValueError, RecursionError):  # it may be anybody's
        lines = [line for line in text.strip().splitlines() if line.strip()]
        return Farewell(failure="\n".join(lines[-5:])[-_TEXT_MAX:] or None)


def figures(found: Progress | None, before: Mapping[str, Any], world: World | None) -> dict[str, Any]:
    """Show how far a pipeline is, and how far it is behind, also while no driver tells anything."""
    kept = {key: before[key] for key in ("offsets", "lag", "lastProgress") if key in before}
    if found is not None:
        kept["lastProgress"] = {
            "time": found.moment,
            "batch": found.batch,
            "records": found.records,
            "recordsPerSecond": found.records_per_second,
        }
        if _is_too_much(found.offsets):
            kept = {"lastProgress": kept["lastProgress"]}
        elif found.offsets:  # a driver that has ended has no room for very many
            kept["offsets"] = found.offsets
    lag = _lag(kept.get("offsets") or {}, world)
    return kept if lag is None else {**kept, "lag": lag}


def _is_too_much(offsets: Mapping[str, Mapping[str, int]]) -> bool:
    count = sum(map(len, offsets.values()))
    return count > _PARTITIONS_MAX or len(msgspec.json.encode(offsets)) > _OFFSETS_BYTES_MAX


def _lag(offsets: Mapping[str, Mapping[str, int]], world: World | None) -> int | None:
    """Count the records behind those that are committed. Of a partition that was not read, that is all of it."""
    if world is None or not offsets:
        return None
    total = 0
    for name in offsets:
        topic = world.topics_by_name.get(name)
        for one in topic.partitions if topic is not None else ():
            told = [world.replicas.get((topic.id, one.index, member)) for member in one.members]  # type: ignore[union-attr]
            known = [replica for replica in told if replica is not None]
            if not known:
                return None  # managers that have just started know little
            at = offsets[name].get(str(one.index), min(replica.first_offset for replica in known))
            total += max(0, max(replica.next_offset for replica in known) - at)
    return total
