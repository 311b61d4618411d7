"""Where records wait for their turn: one lane for each partition, with a limit on the bytes of all of them.

Any thread adds records; the loop takes parcels. A lock keeps them apart, and is held for a few list operations at a
time. The loop is told of a lane only when it has work and had none: while a request is under way, records gather, and
whoever answers for the lane looks again when it is done.

Invariants:

- Within a lane, records leave in the order in which they came.
- A lane that has records is busy: somebody was told, and has not said yet that nothing is left.
- `bytes` is what was added and not settled; beyond the limit there is a single record that is larger than it, at most.
"""

import os
import threading
import weakref
from collections.abc import Callable

from flotilla.client.cluster import TopicInfo
from flotilla.client.deliveries import Delivery, Failure, Fate, call
from flotilla.client.errors import ClientForked, FlotillaError, TopicMissing
from flotilla.client.gathering import Group, Many
from flotilla.client.parcels import (
    PARCEL_BYTES,
    RECORD_BYTES,
    Lane,
    Parcel,
    Topic,
    check_bytes,
    check_time,
    measure_headers,
)
from flotilla.client.partitioning import partition_of
from flotilla.records import Compression, Headers


class TopicUnknown(Exception):
    """Nothing is known of the topic yet: look it up, and try again. It reaches no user."""


class Accumulator:
    """Records on their way into batches."""

    def __init__(
        self,
        *,
        batch_bytes: int,
        buffer_bytes: int,
        linger_s: float,
        compression: Compression | None,
        wake: Callable[[Lane], object],
        make_fate: Callable[[str, int], Fate],
        clock: Callable[[], float],
    ) -> None:
        """Make it. `wake` is called from any thread; the clock is read in any thread."""
        self._batch_bytes = batch_bytes
        self._bytes_max = buffer_bytes
        self._linger_s = linger_s
        self._compression = compression
        self._wake = wake
        self._make_fate = make_fate
        self._clock = clock
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._pending: dict[Parcel, None] = {}
        self._room: list[Callable[[], object]] = []
        self._flushes = 0
        self.bytes = 0
        self.releases = 0  # how often there was more room than before
        self.refusal: Callable[[], FlotillaError] | None = None  # why nothing is taken any more
        _all.add(self)

    # -- records in, from any thread -----------------------------------------------------------------------

    def add(  # noqa: C901, PLR0912 - runs for each record, where a call costs as much as all the rest
        self,
        name: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery | None:
        """Take a record; None if there is no room. Raises RecordInvalid, TopicUnknown, or what `refuse` was given.

        What is usual is done in line; the rest is left to others.
        """
        if self.refusal is not None:
            raise self.refusal()
        if type(value) is not bytes:
            value = check_bytes(value, "value")
        size = len(value) + RECORD_BYTES
        if key is not None:
            if type(key) is not bytes:
                key = check_bytes(key, "key")
            size += len(key)
        if headers:
            size += measure_headers(headers)
        if timestamp_ms is not None:
            check_time(timestamp_ms)
        with self._lock:
            topic = self._topics.get(name)
            if topic is None:
                raise TopicUnknown
            if self.bytes + size > self._bytes_max and self.bytes:
                if size + PARCEL_BYTES > topic.bytes_limit:
                    topic.check_alone(value, key, headers, timestamp_ms)
                return None
            if partition is not None:
                lane = topic.lane(partition)
            elif key is not None:
                lane = topic.lanes[partition_of(key, len(topic.lanes))]
            else:
                lane = topic.lanes[topic.at]
            parcel = lane.open
            if (
                parcel is None
                or parcel.bytes + size > topic.bytes_max
                or (timestamp_ms is None) is not (parcel.timestamps_ms is None)
            ):
                if size + PARCEL_BYTES > topic.bytes_limit:
                    topic.check_alone(value, key, headers, timestamp_ms)
                is_free = key is None and partition is None
                parcel = self._open(topic, None if is_free else lane, size, is_timed=timestamp_ms is not None)
                lane = parcel.lane
            index = len(parcel.values)
            if headers or timestamp_ms is not None or parcel.headers is not None:
                _append(parcel, value, key, headers, timestamp_ms)
            else:
                parcel.values.append(value)
                keys = parcel.keys
                if key is not None and keys is None:
                    parcel.keys = keys = [None] * index
                if keys is not None:
                    keys.append(key)
            parcel.bytes += size
            self.bytes += size
            is_news = not lane.is_busy
            lane.is_busy = True
        if is_news:
            self._wake(lane)
        return Delivery(parcel.fate, index)

    def add_many(self, name: str, many: Many) -> bool:
        """Take as many records as there is room for, and tell whether that is all. Raises as `add` does."""
        if self.refusal is not None:
            raise self.refusal()
        while True:
            with self._lock:
                topic = self._topics.get(name)
                if topic is None:
                    raise TopicUnknown
                many.plan(topic)
                if not many.groups:
                    return True
                lane = self._move(topic, many, many.groups[0])
                if lane is None:
                    return False
                is_news = not lane.is_busy
                lane.is_busy = True
            if is_news:
                self._wake(lane)

    def _move(self, topic: Topic, many: Many, group: Group) -> Lane | None:
        """Move records into one parcel, as many as fit, and return its lane."""
        room = self._bytes_max - self.bytes if self.bytes else max(self._bytes_max, group.next_bytes)
        if group.next_bytes > room:
            return None
        lane = None if group.partition is None else topic.lane(group.partition)
        parcel = self._open(topic, lane, group.next_bytes, is_timed=group.timestamps_ms is not None)
        count = max(1, group.count_fitting(min(room, topic.bytes_max - parcel.bytes)))
        self.bytes += group.move(parcel, count)
        many.note(parcel, group, count)
        return parcel.lane

    def _open(self, topic: Topic, lane: Lane | None, size: int, *, is_timed: bool) -> Parcel:
        """Find the parcel that takes a record of a size, or make it; without a lane, where the turn is."""
        while True:
            chosen = topic.lanes[topic.at] if lane is None else lane
            parcel = chosen.open
            if parcel is None:
                fate = self._make_fate(topic.info.name, chosen.index)
                chosen.open = Parcel(chosen, fate, self._clock(), is_timed=is_timed)
                self._pending[chosen.open] = None
                return chosen.open
            if parcel.bytes + size <= topic.bytes_max and is_timed is (parcel.timestamps_ms is not None):
                return parcel
            chosen.closed.append(parcel)
            self._close(chosen)
            if chosen.is_lingering:
                chosen.is_lingering = False
                self._wake(chosen)

    def _close(self, lane: Lane) -> None:
        lane.open = None
        if lane.topic.at == lane.index:
            lane.topic.turn()

    def when_room(self, releases: int, callback: Callable[[], object]) -> None:
        """Have something called when there is more room than there was at so many releases."""
        with self._lock:
            if self.releases == releases and self.refusal is None:
                self._room.append(callback)
                return
        call(callback)

    # -- parcels out, on the loop --------------------------------------------------------------------------

    def take(self, lane: Lane) -> Parcel | float | None:
        """Take the next parcel of a lane; or how long to wait for it; None if there is none, and it is not busy."""
        with self._lock:
            lane.is_lingering = False
            if lane.closed:
                return lane.closed.popleft()
            parcel = lane.open
            if parcel is None:
                lane.is_busy = False
                return None
            if self._linger_s and not self._flushes:
                left_s = parcel.opened_at + self._linger_s - self._clock()
                if left_s > 0:
                    lane.is_lingering = True
                    return left_s
            self._close(lane)
            return parcel

    def seal(self, lane: Lane) -> None:
        """Close the parcel that is open: records that come from now on travel in another one."""
        with self._lock:
            if lane.open is not None:
                lane.closed.append(lane.open)
                self._close(lane)

    def settle(self, parcel: Parcel, end: int | Failure) -> None:
        """Say how the records of a parcel ended, and make room for others."""
        with self._lock:
            self.bytes -= parcel.bytes - PARCEL_BYTES
            self.releases += 1
            self._pending.pop(parcel, None)
            room, self._room = self._room, []
        parcel.fate.settle(end)
        for callback in room:
            call(callback)

    def learn(self, info: TopicInfo) -> None:
        """Take note of a topic. One that was made again is another one: records for the old one fail."""
        with self._lock:
            known = self._topics.get(info.name)
            if known is not None and known.info.id == info.id:
                known.update(info)
                return
            if known is not None:
                known.gone = _removed(info.name)
            self._topics[info.name] = Topic(info, self._batch_bytes, self._compression)

    def drop(self, topic: Topic) -> None:
        """Forget a topic that was removed: records that are there for it fail."""
        with self._lock:
            topic.gone = topic.gone or _removed(topic.info.name)
            if self._topics.get(topic.info.name) is topic:
                del self._topics[topic.info.name]

    def begin_flush(self) -> list[Parcel]:
        """Let nothing linger until `end_flush`, and return the parcels that are not settled."""
        with self._lock:
            self._flushes += 1
            lanes = {parcel.lane for parcel in self._pending if parcel.lane.is_lingering}
            for lane in lanes:
                lane.is_lingering = False
            pending = list(self._pending)
        for lane in lanes:
            self._wake(lane)
        return pending

    def end_flush(self) -> None:
        """Let records linger again."""
        with self._lock:
            self._flushes -= 1

    def refuse(self, refusal: Callable[[], FlotillaError]) -> None:
        """Take nothing from now on; whoever waits for room is told."""
        with self._lock:
            self.refusal = self.refusal or refusal
            room, self._room = self._room, []
        for callback in room:
            call(callback)

    def pending(self) -> list[Parcel]:
        """Return the parcels that are not settled, in the order in which they were begun."""
        with self._lock:
            return list(self._pending)


def _append(parcel: Parcel, value: bytes, key: bytes | None, headers: Headers, timestamp_ms: int | None) -> None:
    parcel.extend(
        (value,),
        None if key is None else (key,),
        (headers,) if headers else None,
        None if timestamp_ms is None else (timestamp_ms,),
    )


def _removed(name: str) -> TopicMissing:
    return TopicMissing(f"topic '{name}' was removed", "unknown_partition", {})


_all: weakref.WeakSet[Accumulator] = weakref.WeakSet()


def _after_fork() -> None:
    """Close what the parent had, without touching its locks: another thread may have held them."""
    for accumulator in list(_all):
        accumulator.refusal = ClientForked


os.register_at_fork(after_in_child=_after_fork)
