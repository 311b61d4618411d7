"""Batches that a producer is filling or has to send, and their queue per partition.

The size of a record is estimated from above: a batch whose estimate is within a limit is within it when encoded.
Records are validated here, before they are accepted.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from flotilla.client.cluster import TopicInfo
from flotilla.client.config import COMPRESSION_BY_NAME
from flotilla.client.deliveries import Outcome
from flotilla.client.errors import RecordInvalid, TopicMissing
from flotilla.records import BATCH_BYTES_MAX, Compression, Headers, RecordsError, encode
from flotilla.records.headers import encode_headers

RECORD_OVERHEAD_BYTES = (
    24  # upper bound: offsets in the columns of values, keys, headers and timestamps, and a validity bit
)
BATCH_OVERHEAD_BYTES = 256  # upper bound: header of the batch, and padding of columns
_TIME_MAX = 1 << 63


class ProducerBatch:
    """Records for one partition that are sent in one request."""

    __slots__ = ("bytes", "headers", "keys", "opened_at", "outcome", "queue", "timestamps_ms", "values")

    def __init__(self, queue: "PartitionQueue", outcome: Outcome, opened_at: float, *, is_timed: bool) -> None:
        self.queue = queue
        self.outcome = outcome
        self.opened_at = opened_at  # time of the first record, by `time.monotonic`
        self.bytes = BATCH_OVERHEAD_BYTES
        self.values: list[bytes] = []
        self.keys: list[bytes | None] | None = None  # None until a record has a key
        self.headers: list[Headers] | None = None  # None until a record has headers
        self.timestamps_ms: list[int] | None = [] if is_timed else None  # all records have a timestamp, or none has

    def __len__(self) -> int:
        return len(self.values)

    def extend(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
        timestamps_ms: Sequence[int] | None,
    ) -> None:
        """Add records. Columns that only the new or only the earlier records have are padded."""
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
        """Encode the batch, with the epoch and sequence of its queue."""
        return encode(
            self.values,
            keys=self.keys,
            headers=self.headers,
            timestamps_ms=self.timestamps_ms,
            producer_id=producer_id,
            producer_epoch=self.queue.epoch,
            base_sequence=self.queue.sequence,
            compression=compression,
        )


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The unsent batches of one partition: closed ones in order, then one that is open for more records.

    It is scheduled from the wake-up of the event loop until the sender finds it empty.
    """

    topic: "TopicQueues"
    index: int
    open: ProducerBatch | None = None
    closed: deque[ProducerBatch] = field(default_factory=deque)
    is_scheduled: bool = False
    is_lingering: bool = False  # scheduled, and waiting for more records
    epoch: int = 0  # producer epoch and sequence: only used on the event loop
    sequence: int = 0


class PartitionUnknown(RecordInvalid):
    """The cached metadata has no such partition. It is refreshed once before the error reaches the user."""


class TopicQueues:
    """The queues of a topic, and the partition that records without a key currently go to."""

    def __init__(self, info: TopicInfo, batch_bytes: int, compression: Compression | None) -> None:
        """Create the queues. Without a compression, the setting of the topic applies."""
        self._batch_bytes = batch_bytes
        self._compression = compression
        self.queues: list[PartitionQueue] = []
        self.sticky_partition = 0  # partition of records without a key
        self.deleted_error: TopicMissing | None = None
        self.update(info)

    def update(self, info: TopicInfo) -> None:
        """Update settings and partitions. Partitions are never removed: metadata with fewer of them is stale."""
        self.info = info
        self.queues += [PartitionQueue(self, index) for index in range(len(self.queues), len(info.partitions))]
        self.bytes_limit = min(info.batch_bytes_max or BATCH_BYTES_MAX, BATCH_BYTES_MAX)
        self.bytes_max = min(self._batch_bytes, self.bytes_limit)
        topic_compression = COMPRESSION_BY_NAME.get(info.compression or "none", Compression.NONE)
        self.compression = topic_compression if self._compression is None else self._compression

    def queue(self, partition: int) -> PartitionQueue:
        """Return the queue of a partition. Raises PartitionUnknown."""
        if not 0 <= partition < len(self.queues):
            raise PartitionUnknown(
                f"topic '{self.info.name}' has no partition {partition}, only 0 to {len(self.queues) - 1}"
            )
        return self.queues[partition]

    def advance_sticky_partition(self) -> None:
        """Move on to the next partition for records without a key; skip partitions that have a backlog."""
        count = len(self.queues)
        candidates = ((self.sticky_partition + ahead) % count for ahead in range(1, count + 1))
        self.sticky_partition = next(
            (at for at in candidates if not self.queues[at].closed), (self.sticky_partition + 1) % count
        )

    def check_alone(
        self, value: bytes, key: bytes | None, headers: Headers = (), timestamp_ms: int | None = None
    ) -> None:
        """Check that a large record fits a batch of its own, as it will be encoded. Raises RecordInvalid."""
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
    """Convert a bytes-like object to bytes. Raises RecordInvalid."""
    if type(given) is bytes:
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise RecordInvalid(f"{name} must be bytes, not {type(given).__name__} (for text: text.encode())")


def measure_headers(headers: Headers) -> int:
    """Validate the headers of a record, and return their encoded size. Raises RecordInvalid."""
    try:
        return len(encode_headers(headers))
    except RecordsError as error:
        raise RecordInvalid(f"headers: {error}") from error


def check_time(timestamp_ms: int) -> None:
    """Validate the timestamp of a record. Raises RecordInvalid."""
    if type(timestamp_ms) is not int or not -_TIME_MAX <= timestamp_ms < _TIME_MAX:
        raise RecordInvalid("timestamp_ms must be a 64-bit integer: milliseconds since 1970")
