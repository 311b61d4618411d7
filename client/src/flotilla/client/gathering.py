"""Many records of one call, sorted by where they go, and how far they have got.

Sizes are added up once, in C loops, so that how many records fit somewhere is a search and a slice: nothing is done
per record in Python unless records have keys.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from flotilla.client.deliveries import Deliveries, Part
from flotilla.client.errors import RecordInvalid, TopicMissing
from flotilla.client.parcels import PARCEL_BYTES, RECORD_BYTES, Parcel, Topic, check_bytes, check_time, measure_headers
from flotilla.client.partitioning import partition_of
from flotilla.records import Headers

T = TypeVar("T")

_with_place = RECORD_BYTES.__add__


@dataclass(slots=True, eq=False)
class Group:
    """Records that go to the same partition; None is the one whose turn it is."""

    partition: int | None
    positions: Sequence[int]
    values: list[bytes]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    timestamps_ms: list[int] | None
    ends: list[int]  # bytes of the first n records, by n
    at: int = 0  # records before are taken

    @property
    def next_bytes(self) -> int:
        """What the next record takes."""
        return self.ends[self.at + 1] - self.ends[self.at]

    def count_fitting(self, room: int) -> int:
        """Tell how many of the next records fit."""
        return bisect_right(self.ends, self.ends[self.at] + room) - 1 - self.at

    def move(self, parcel: Parcel, count: int) -> int:
        """Put the next records into a parcel, and tell how many bytes they take."""
        start, end = self.at, self.at + count
        self.at = end
        parcel.extend(
            self.values[start:end],
            None if self.keys is None else self.keys[start:end],
            None if self.headers is None else self.headers[start:end],
            None if self.timestamps_ms is None else self.timestamps_ms[start:end],
        )
        size = self.ends[end] - self.ends[start]
        parcel.bytes += size
        return size


class Many:
    """The records of one call. Raises RecordInvalid, before any of them is taken."""

    def __init__(
        self,
        values: Iterable[bytes],
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[Headers] | None = None,
        timestamps_ms: Iterable[int] | None = None,
        partition: int | None = None,
    ) -> None:
        self._values = _all_bytes(values, "a value")
        self._keys = None if keys is None else _keys(keys)
        self._headers = None if headers is None else list(headers)
        self._times = None if timestamps_ms is None else list(timestamps_ms)
        self._partition = partition
        self._topic: Topic | None = None
        self._parts: list[Part] = []
        self.groups: list[Group] = []  # those with records that are not taken yet
        self._sizes = self._measure()

    def _measure(self) -> list[int]:
        columns = {"keys": self._keys, "headers": self._headers, "timestamps_ms": self._times}
        for name, column in columns.items():
            if column is not None and len(column) != len(self._values):
                raise RecordInvalid(f"{name} has {len(column)} items for {len(self._values)} values; expected as many")
        for time in self._times or ():
            check_time(time)
        sizes = list(map(_with_place, map(len, self._values)))
        if self._keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, self._keys, strict=True)]
        if self._headers is not None:
            sizes = [size + measure_headers(own) for size, own in zip(sizes, self._headers, strict=True)]
        return sizes

    def plan(self, topic: Topic) -> None:
        """Sort the records by partition, once. Raises RecordInvalid, or TopicMissing if it is another topic by now."""
        if self._topic is topic:
            return
        if self._topic is not None:
            raise TopicMissing(f"topic '{topic.info.name}' was removed, and made again", "unknown_partition", {})
        self._check_large(topic)
        self.groups = [self._group(partition, at) for partition, at in self._sort(topic)]
        self._topic = topic

    def _check_large(self, topic: Topic) -> None:
        room = topic.bytes_limit - PARCEL_BYTES
        if max(self._sizes, default=0) <= room:
            return
        for at, size in enumerate(self._sizes):
            if size > room:
                topic.check_alone(
                    self._values[at],
                    None if self._keys is None else self._keys[at],
                    () if self._headers is None else self._headers[at],
                    None if self._times is None else self._times[at],
                )

    def _sort(self, topic: Topic) -> list[tuple[int | None, Sequence[int]]]:
        if self._partition is not None:
            return [(topic.lane(self._partition).index, range(len(self._values)))] if self._values else []
        if self._keys is None:
            return [(None, range(len(self._values)))] if self._values else []
        count = len(topic.lanes)
        places: dict[int | None, list[int]] = {}
        for at, key in enumerate(self._keys):
            # Those without a key go to one partition, for good: in turns, they could overtake others of this call.
            places.setdefault(topic.at if key is None else partition_of(key, count), []).append(at)
        return list(places.items())

    def _group(self, partition: int | None, at: Sequence[int]) -> Group:
        return Group(
            partition,
            at,
            _pick(self._values, at),
            None if self._keys is None else _pick(self._keys, at),
            None if self._headers is None else _pick(self._headers, at),
            None if self._times is None else _pick(self._times, at),
            list(accumulate(_pick(self._sizes, at), initial=0)),
        )

    def note(self, parcel: Parcel, group: Group, count: int) -> None:
        """Remember where the last records of a group went."""
        positions = group.positions[group.at - count : group.at]
        self._parts.append(Part(parcel.fate, len(parcel) - count, positions))
        if group.at == len(group.values):
            self.groups.pop(0)

    @property
    def deliveries(self) -> Deliveries:
        """What becomes of those that are taken."""
        return Deliveries(len(self._values), self._parts)


def _pick(items: list[T], at: Sequence[int]) -> list[T]:
    return items if isinstance(at, range) else [items[one] for one in at]


def _all_bytes(given: Iterable[object], name: str) -> list[bytes]:
    if isinstance(given, str | bytes | bytearray | memoryview):
        raise RecordInvalid(f"there is one {type(given).__name__} where many values were expected")
    items = list(given)
    if set(map(type, items)) <= {bytes}:
        return items  # type: ignore[return-value]  # all of them are
    return [check_bytes(item, name) for item in items]


def _keys(given: Iterable[bytes | None]) -> list[bytes | None]:
    items = list(given)
    if set(map(type, items)) <= {bytes, type(None)}:
        return items
    return [None if item is None else check_bytes(item, "a key") for item in items]
