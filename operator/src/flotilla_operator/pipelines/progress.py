"""Reports of drivers: their progress, and the cause of their end. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from flotilla_operator.cluster_state import ClusterState

_PARTITIONS_MAX = 1000  # with more, the status has no offsets
_OFFSETS_BYTES_MAX = 256 << 10  # Kubernetes limits objects to about 1 MB
_YEAR_MIN = 1970
_TEXT_MAX = 2000
_TIME_MAX = 40


# Types that are valid in a status.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Offsets = Annotated[dict[Name, dict[Name, Count]], msgspec.Meta(max_length=1000)]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The last micro-batch that a driver committed. Drivers run code of users, so every field is validated."""

    time: str
    batch: Count = 0
    records: Count = 0
    records_per_second: Count = 0
    offsets: Offsets = {}

    def __post_init__(self) -> None:
        if len(self.time) > _TIME_MAX or self.moment is None:
            raise ValueError("time is missing or invalid")

    @property
    def moment(self) -> str | None:
        """The time in the format of Kubernetes."""
        try:
            found = datetime.strptime(self.time, "%Y-%m-%dT%H:%M:%S%z").astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        return found.strftime("%Y-%m-%dT%H:%M:%SZ") if found.year >= _YEAR_MIN else None


class TerminationMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The termination message of a driver."""

    failure: str | None = None
    progress: Progress | None = None


def read_progress(data: bytes) -> Progress | None:
    """Decode the progress of a driver; None before its first micro-batch. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Progress | None)


def read_termination_message(text: str) -> TerminationMessage:
    """Decode a termination message. Kubernetes uses the end of the log if the driver wrote none."""
    try:
        return msgspec.json.decode(text.encode(), type=TerminationMessage)
    except (msgspec.DecodeError, ValueError, RecursionError):  # not valid, or not JSON
        lines = [line for line in text.strip().splitlines() if line.strip()]
        return TerminationMessage(failure="\n".join(lines[-5:])[-_TEXT_MAX:] or None)


def status_fields(found: Progress | None, before: Mapping[str, Any], state: ClusterState | None) -> dict[str, Any]:
    """Build the progress in the status: offsets and lag are kept while no driver runs."""
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
        elif found.offsets:  # a termination message may be too short for them
            kept["offsets"] = found.offsets
    lag = _lag(kept.get("offsets") or {}, state)
    return kept if lag is None else {**kept, "lag": lag}


def _is_too_much(offsets: Mapping[str, Mapping[str, int]]) -> bool:
    count = sum(map(len, offsets.values()))
    return count > _PARTITIONS_MAX or len(msgspec.json.encode(offsets)) > _OFFSETS_BYTES_MAX


def _lag(offsets: Mapping[str, Mapping[str, int]], state: ClusterState | None) -> int | None:
    """Count the records after the committed offsets; for a partition that was not read, all records."""
    if state is None or not offsets:
        return None
    total = 0
    for name in offsets:
        topic = state.topics_by_name.get(name)
        if topic is None:
            continue
        for one in topic.partitions:
            reported = [state.replicas.get((topic.id, one.index, member)) for member in one.members]
            known = [replica for replica in reported if replica is not None]
            if not known:
                return None  # restarted managers have no reports yet
            at = offsets[name].get(str(one.index), min(replica.first_offset for replica in known))
            total += max(0, max(replica.next_offset for replica in known) - at)
    return total
