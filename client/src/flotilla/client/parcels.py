"""Records that travel together: for one partition, in the order in which they were sent, until they become a batch.

What a record takes is estimated from above, so that a parcel whose estimate is within a limit is within it as a batch.
Everything that can be wrong with a record is found here, before it is taken.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from flotilla.client.cluster import TopicInfo
from flotilla.client.deliveries import Fate
from flotilla.client.errors import RecordInvalid, TopicMissing
from flotilla.records import BATCH_BYTES_MAX, Compression, Headers, RecordsError, encode
from flotilla.records.headers import encode_headers

RECORD_BYTES = 24  # places in the columns of values, keys, headers and times, and a bit of validity, at most
PARCEL_BYTES = 256  # a batch's header, and what columns are padded with, at most
_TIME_MAX = 1 << 63


class Parcel:
    """Records for one partition that gather, and then travel together."""

    __slots__ = ("bytes", "fate", "headers", "keys", "lane", "opened_at", "timestamps_ms", "values")

    def __init__(self, lane: "Lane", fate: Fate, opened_at: float, *, is_timed: bool) -> None:
        self.lane = lane
        self.fate = fate
        self.opened_at = opened_at  # when its first record came, by `time.monotonic`
        self.bytes = PARCEL_BYTES
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None  # until one has a key
        self.headers: list[Headers] | None = None  # until one has headers
        self.timestamps_ms: list[int] | None = [] if is_timed else None  # all have a time, or none has

    def __len__(self) -> int:
        return len(self.values)

    def extend(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
        timestamps_ms: Sequence[int] | None,
    ) -> None:
        """Add records; columns that they alone have, or lack, are filled up."""
        before = len(self.values)
        self.values += values
        if keys is not None or self.keys is not None:
            self.keys = [None] * before if self.keys is None else self.keys
            self.keys += [None] * len(values) if keys is None else keys
        if headers is not None or self.headers is not None:
            self.headers = [()] * before if self.headers is None else self.headers
            self.headers += [()] * len(values) if headers is None else headers
        if timestamps_ms is not None and self.timestamps_ms is not None:
            self.timestamps_ms += timestamps_ms

    def encode(self, producer_id: bytes, compression: Compression) -> bytearray:
        """Make the batch, with the lane's epoch and sequence."""
        return encode(
            self.values,
            keys=self.keys,
            headers=self.headers,
            timestamps_ms=self.timestamps_ms,
            producer_id=producer_id,
            producer_epoch=self.lane.epoch,
            base_sequence=self.lane.sequence,
            compression=compression,
        )


@dataclass(slots=True, eq=False)
class Lane:
    """The way to one partition: a parcel that is open for more records, and those that are closed, in order.

    It is busy from the moment when somebody was told that it has work, until they find that it has no more.
    """

    topic: "Topic"
    index: int
    open: Parcel | None = None
    closed: deque[Parcel] = field(default_factory=deque)
    is_busy: bool = False
    is_lingering: bool = False  # busy, but for waiting for more records
    epoch: int = 0  # the two are the loop's own
    sequence: int = 0


class PartitionUnknown(RecordInvalid):
    """A topic has no such partition, as far as is known here: before anybody is told so, it is looked up anew."""


class Topic:
    """The lanes of a topic, and the one whose turn it is."""

    def __init__(self, info: TopicInfo, batch_bytes: int, compression: Compression | None) -> None:
        """Take what a producer wants; without a compression, the topic's own wish counts."""
        self._batch_bytes = batch_bytes
        self._compression = compression
        self.lanes: list[Lane] = []
        self.at = 0  # where records without a key go
        self.gone: TopicMissing | None = None
        self.update(info)

    def update(self, info: TopicInfo) -> None:
        """Learn of new settings and partitions. There are never fewer: who says so is behind."""
        self.info = info
        self.lanes += [Lane(self, index) for index in range(len(self.lanes), len(info.partitions))]
        self.bytes_limit = min(info.batch_bytes_max or BATCH_BYTES_MAX, BATCH_BYTES_MAX)
        self.bytes_max = min(self._batch_bytes, self.bytes_limit)
        hint = Compression.ZSTD if info.compression == "zstd" else Compression.NONE
        self.compression = hint if self._compression is None else self._compression

    def lane(self, partition: int) -> Lane:
        """Find the lane of a partition; raises PartitionUnknown."""
        if not 0 <= partition < len(self.lanes):
            raise PartitionUnknown(f"topic '{self.info.name}' has {len(self.lanes)} partitions, and no {partition}")
        return self.lanes[partition]

    def turn(self) -> None:
        """Send records without a key elsewhere: to the next partition, but for those that do not keep up."""
        count = len(self.lanes)
        turns = ((self.at + ahead) % count for ahead in range(1, count + 1))
        self.at = next((at for at in turns if not self.lanes[at].closed), (self.at + 1) % count)

    def check_alone(
        self, value: bytes, key: bytes | None, headers: Headers = (), timestamp_ms: int | None = None
    ) -> None:
        """Check that a large record fits a batch of its own, packed as it will be. Raises RecordInvalid."""
        try:
            size = len(
                encode(
                    [value],
                    keys=[key] if key is not None else None,
                    headers=[headers] if headers else None,
                    timestamps_ms=None if timestamp_ms is None else [timestamp_ms],
                    compression=self.compression,
                )
            )
        except RecordsError as error:
            raise RecordInvalid(f"the record is too large: {error}") from error
        if size > self.bytes_limit:
            raise RecordInvalid(
                f"the record is too large: alone in a batch it has {size} bytes; topic '{self.info.name}' takes "
                f"up to {self.bytes_limit}"
            )


def check_bytes(given: object, name: str) -> bytes:
    """Make bytes of what is as good as bytes; raises RecordInvalid."""
    if type(given) is bytes:
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise RecordInvalid(f"{name} is a {type(given).__name__}; expected bytes (for text: text.encode())")


def measure_headers(headers: Headers) -> int:
    """Check a record's headers, and tell how many bytes they take; raises RecordInvalid."""
    try:
        return len(encode_headers(headers))
    except RecordsError as error:
        raise RecordInvalid(f"headers: {error}") from error


def check_time(timestamp_ms: int) -> None:
    """Check a record's time; raises RecordInvalid."""
    if type(timestamp_ms) is not int or not -_TIME_MAX <= timestamp_ms < _TIME_MAX:
        raise RecordInvalid("timestamp_ms must be an int of 64 bits: milliseconds since 1970")
