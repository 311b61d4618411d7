"""Producer state of a partition, by which it detects duplicate batches.

For each producer, the table has the epoch, the last batches of that epoch, and the append time of the last one. It is a
function of the partition's log only: replicas with the same entries have the same table, so a new leader detects
duplicates of batches that were sent to the old one.

Entries may be truncated until they are committed. So there is a committed part, which is final, and a tail with the
batches of uncommitted entries. A lookup searches the tail first. A truncation removes batches from the end of the tail,
and a commit moves them from its start to the committed part. Expiry is an entry of the log, too. It affects only the
committed part, because later entries must survive it.

Invariants:

- The remembered batches of a producer have one epoch and are contiguous. A batch that does not continue the previous
  one resets the producer: the leader accepted it, so it has a newer epoch, or the leader had removed the producer by an
  expiry that this replica has not committed yet.
- Committed producers are in the order of their last batches in the log. Append times never decrease in a log, so this
  is also the order of their last activity, and producers expire from the start.

A partition may have 100,000 producers. So a committed producer is a single row of packed bytes: it takes a quarter of
the memory of objects, the garbage collector does not traverse it, and it is stored as it is.

The table does not wait, does not use a clock, and proposes nothing: the caller does.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain, islice
from struct import Struct
from typing import Final, Self

import msgspec

from flotilla.producers.errors import (
    EpochStale,
    InvalidProducerTable,
    ProducerTableMisuse,
    ProducerUnknown,
    SequenceGap,
    SequenceOverlap,
    SequenceReused,
)
from flotilla.records import NO_PRODUCER, PRODUCER_ID_BYTES, BatchHeader

FORMAT: Final = 1
"""Version of the encoded table."""
BATCHES_REMEMBERED: Final = 5
"""Per producer; a client has at most this number of batches in flight to a partition."""

_HEAD: Final = Struct("<qqq")  # start of a row: epoch, append time of the last batch, next sequence
_BATCH: Final = Struct("<IIqq")  # then its batches, oldest first: count, crc, base offset, entry
_KEPT_BYTES: Final = (BATCHES_REMEMBERED - 1) * _BATCH.size  # batches of a row that stay when one is added
_ROWS: Final = {
    _HEAD.size + batches * _BATCH.size: Struct(_HEAD.format + batches * "IIqq")
    for batches in range(1, BATCHES_REMEMBERED + 1)
}


class Retry(msgspec.Struct, frozen=True):
    """A duplicate: the batch is already in the log.

    It is durable once entry `index` is committed. Until then the entry may be truncated and replaced; so wait for it by
    index and term, as for a new entry.
    """

    index: int
    base_offset: int


class _Batch(msgspec.Struct, frozen=True, gc=False):
    epoch: int
    base_sequence: int
    count: int
    crc: int
    base_offset: int
    index: int

    @property
    def next_sequence(self) -> int:
        return self.base_sequence + self.count


class _Added(msgspec.Struct, frozen=True, gc=False):
    """A batch of an uncommitted entry."""

    producer_id: bytes
    batch: _Batch
    time_ms: int


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    version: int
    producers: msgspec.Raw  # version 1: list of producer id + row, in order


_encode = msgspec.msgpack.Encoder().encode
_decode_saved = msgspec.msgpack.Decoder(_Saved).decode
_decode_producers = msgspec.msgpack.Decoder(list[bytes]).decode


class ProducerTable:
    """The last batches of the producers of a partition.

    Args:
        committed_index: index of the last committed entry; entries up to it added no producers.
    """

    def __init__(self, committed_index: int = 0) -> None:
        self._committed_index = committed_index
        self._committed: OrderedDict[bytes, bytes] = OrderedDict()  # rows by producer id
        self._tail: deque[_Added] = deque()  # in the order of the log
        self._tail_of: dict[bytes, deque[_Batch]] = {}  # the same batches by producer; never an empty deque

    def __len__(self) -> int:
        """Return the number of committed producers."""
        return len(self._committed)

    @property
    def committed_index(self) -> int:
        """Index of the last committed entry."""
        return self._committed_index

    # -- checks -------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader) -> Retry | None:
        """Check a batch of a client against all entries, also uncommitted ones.

        Append each batch before checking the next one: the table does not know batches that were only checked.

        Returns:
            None if the batch is new and in sequence, or has no producer; its position if it is a duplicate.

        Raises:
            ProducerRefused: one of its subclasses, by cause.
        """
        if header.producer_id == NO_PRODUCER:
            return None
        known = self._last(header.producer_id)
        if known is None:
            _check_first(header)
        elif known[0] != header.producer_epoch:
            _check_epoch(header, known[0])
        elif known[1] != header.base_sequence:
            return self._find(header, known[1])
        return None

    def _last(self, producer_id: bytes) -> tuple[int, int] | None:
        """Return the epoch of a producer and its next sequence."""
        if tail := self._tail_of.get(producer_id):
            return tail[-1].epoch, tail[-1].next_sequence
        if row := self._committed.get(producer_id):
            epoch, _, next_sequence = _HEAD.unpack_from(row)
            return epoch, next_sequence
        return None

    def _find(self, header: BatchHeader, expected: int) -> Retry:
        """Find a duplicate of a batch that does not have the expected sequence. Raises ProducerRefused."""
        if header.base_sequence > expected:
            raise SequenceGap(
                f"{_name(header)}: expected sequence {expected}, got {header.base_sequence}; "
                f"send the missing batches first, or raise the epoch and start at 0"
            )
        starts = []
        for batch in self._remembered(header.producer_id, header.producer_epoch, expected):
            if batch.base_sequence == header.base_sequence:
                return _check_same(header, batch, expected)
            starts.append(batch.base_sequence)
        raise SequenceOverlap(
            f"{_name(header)}: expected sequence {expected}, got {header.base_sequence}, where none of the last "
            f"batches starts (they start at {', '.join(map(str, reversed(starts)))}); it is unknown whether these "
            f"records were written before: to send them anyway, raise the epoch and start at 0",
            remembered_from=starts[-1],
        )

    def _remembered(self, producer_id: bytes, epoch: int, next_sequence: int) -> Iterator[_Batch]:
        """Yield the remembered batches of a producer, newest first, given its epoch and next sequence."""
        batches = chain(
            reversed(self._tail_of.get(producer_id, ())),
            _unpack(self._committed.get(producer_id, b"")),
        )
        for batch in islice(batches, BATCHES_REMEMBERED):
            if (batch.epoch, batch.next_sequence) != (epoch, next_sequence):
                return
            yield batch
            next_sequence = batch.base_sequence

    # -- the log ------------------------------------------------------------------------------------------

    def append(self, index: int, header: BatchHeader, base_offset: int, time_ms: int) -> None:
        """Add a batch of the uncommitted entry `index`.

        The batch is not checked: the leader checked it before it appended the entry.
        """
        index_min = self._tail[-1].batch.index if self._tail else self._committed_index + 1
        if index < index_min:
            raise ProducerTableMisuse(
                f"a batch of entry {index} cannot be appended: the next may be of entry {index_min} or later"
            )
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER:
            return
        batch = _Batch(header.producer_epoch, header.base_sequence, header.count, header.crc, base_offset, index)
        self._tail.append(_Added(producer_id, batch, time_ms))
        self._tail_of.setdefault(producer_id, deque()).append(batch)

    def truncate(self, index: int) -> None:
        """Remove the entries from `index` on."""
        if index <= self._committed_index:
            raise ProducerTableMisuse(
                f"entry {index} cannot be truncated: entries up to {self._committed_index} are committed"
            )
        while self._tail and self._tail[-1].batch.index >= index:
            producer_id = self._tail.pop().producer_id
            self._tail_of[producer_id].pop()
            self._drop_if_empty(producer_id)

    def commit(self, index: int) -> None:
        """Commit the entries up to `index`. Idempotent."""
        while self._tail and self._tail[0].batch.index <= index:
            added = self._tail.popleft()
            self._tail_of[added.producer_id].popleft()
            self._drop_if_empty(added.producer_id)
            self._record(added)
        self._committed_index = max(self._committed_index, index)

    def _drop_if_empty(self, producer_id: bytes) -> None:
        if not self._tail_of[producer_id]:
            del self._tail_of[producer_id]

    def _record(self, added: _Added) -> None:
        producer_id, batch = added.producer_id, added.batch
        row = self._committed.get(producer_id, b"")
        continued = row and _HEAD.unpack_from(row)[::2] == (batch.epoch, batch.base_sequence)
        kept = row[max(_HEAD.size, len(row) - _KEPT_BYTES) :] if continued else b""
        self._committed[producer_id] = (
            _HEAD.pack(batch.epoch, added.time_ms, batch.next_sequence)
            + kept
            + _BATCH.pack(batch.count, batch.crc, batch.base_offset, batch.index)
        )
        self._committed.move_to_end(producer_id)

    # -- expiry -------------------------------------------------------------------------------------------

    def expiry_due(self, now_ms: int, *, age_ms_max: int, count_max: int) -> int | None:
        """Return the expiry that the leader should propose.

        Returns:
            The argument of `expire` that removes producers inactive for longer than `age_ms_max`, and the least
            recently active ones above `count_max`. Producers with the same time of their last batch expire together.
            None if no producer has to expire.
        """
        if not self._committed:
            return None
        oldest_ms = _time_ms(next(iter(self._committed.values())))
        before_ms = max(oldest_ms, now_ms - age_ms_max)
        excess = len(self._committed) - count_max
        if excess > 0:
            last_to_go = next(islice(self._committed.values(), excess - 1, None))
            before_ms = max(before_ms, _time_ms(last_to_go) + 1)
        return before_ms if before_ms > oldest_ms else None

    def expire(self, before_ms: int) -> int:
        """Remove producers whose last committed batch is older than `before_ms`; return their number.

        Expiry is part of the log: call it for an expiry entry when exactly the entries up to it are committed, so that
        all replicas remove the same producers. Batches of later entries stay.
        """
        count = len(self._committed)
        while self._committed and _time_ms(next(iter(self._committed.values()))) < before_ms:
            self._committed.popitem(last=False)
        return count - len(self._committed)

    # -- encoding -----------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Encode the committed part. Equal tables have equal encodings.

        If the entry `committed_index` is an expiry, call `expire` for it first.
        """
        return _encode((FORMAT, [producer_id + row for producer_id, row in self._committed.items()]))

    @classmethod
    def decode(cls, data: bytes, committed_index: int) -> Self:
        """Decode a table that was encoded when the entries up to `committed_index` were committed.

        Raises:
            InvalidProducerTable: the bytes are not an encoded table.
        """
        table = cls(committed_index)
        for item in _decode_items(data):
            producer_id, row = item[:PRODUCER_ID_BYTES], item[PRODUCER_ID_BYTES:]
            if producer_id == NO_PRODUCER or producer_id in table._committed:
                raise InvalidProducerTable(f"producer id {producer_id.hex()} is reserved or duplicate")
            _check_row(producer_id, row, committed_index)
            table._committed[producer_id] = row
        return table


def _name(header: BatchHeader) -> str:
    return f"producer {header.producer_id.hex()}, epoch {header.producer_epoch}"


def _check_first(header: BatchHeader) -> None:
    if header.base_sequence:
        raise ProducerUnknown(
            f"{_name(header)}: unknown, or expired after a long time without batches; expected sequence 0, "
            f"got {header.base_sequence}; raise the epoch and start at 0"
        )


def _check_epoch(header: BatchHeader, known: int) -> None:
    """Check a batch of another epoch than the current one."""
    if header.producer_epoch < known:
        raise EpochStale(
            f"{_name(header)}: expected epoch {known} or above, got {header.producer_epoch}; "
            f"stop if another instance of this producer has taken over, else raise the epoch above {known} "
            f"and start at 0"
        )
    if header.base_sequence:
        raise SequenceGap(
            f"{_name(header)}: expected sequence 0, as the epoch before was {known}, got {header.base_sequence}; "
            f"start the new epoch at 0"
        )


def _check_same(header: BatchHeader, batch: _Batch, expected: int) -> Retry:
    """Check a batch with the sequence of a remembered one."""
    if (header.count, header.crc) != (batch.count, batch.crc):
        raise SequenceReused(
            f"{_name(header)}: sequence {batch.base_sequence} is taken; expected the same {batch.count} records "
            f"with CRC {batch.crc:#010x}, got {header.count} with {header.crc:#010x}; repeat a batch byte for byte, "
            f"and send other records as sequence {expected}",
            count=batch.count,
        )
    return Retry(batch.index, batch.base_offset)


def _unpack(row: bytes) -> Iterator[_Batch]:
    """Yield the batches of a row, newest first."""
    if not row:
        return
    epoch, _, sequence = _HEAD.unpack_from(row)
    for at in range(len(row) - _BATCH.size, _HEAD.size - 1, -_BATCH.size):
        count, crc, base_offset, index = _BATCH.unpack_from(row, at)
        sequence -= count
        yield _Batch(epoch, sequence, count, crc, base_offset, index)


def _time_ms(row: bytes) -> int:
    time_ms: int = _HEAD.unpack_from(row)[1]
    return time_ms


def _decode_items(data: bytes) -> list[bytes]:
    try:
        saved = _decode_saved(data)
        if saved.version != FORMAT:
            raise InvalidProducerTable(f"the table has version {saved.version}; only version {FORMAT} is supported")
        return _decode_producers(saved.producers)
    except (msgspec.DecodeError, RecursionError) as error:  # RecursionError: deeply nested arrays
        raise InvalidProducerTable(f"not a saved table: {error}") from error


def _check_row(producer_id: bytes, row: bytes, committed_index: int) -> None:
    layout = _ROWS.get(len(row))
    if layout is None:
        raise InvalidProducerTable(f"producer {producer_id.hex()}: {len(row)} bytes are not a row")
    fields = layout.unpack(row)
    counts, indexes = fields[3::4], list(fields[6::4])
    if min(fields) < 0 or 0 in counts or sum(counts) > fields[2]:
        raise InvalidProducerTable(f"producer {producer_id.hex()}: a number is out of its range")
    if indexes[-1] > committed_index or indexes != sorted(indexes):
        raise InvalidProducerTable(
            f"producer {producer_id.hex()}: entries {indexes} are not in order up to {committed_index}"
        )
