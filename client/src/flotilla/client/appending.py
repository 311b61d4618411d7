"""Batches whose identity the caller gives: whoever does the same work again does not store it twice.

For programs that begin again where a checkpoint says, such as the tasks of a Spark query. They give what they do a
producer id and an epoch of its own, cut the same records into the same batches, and send these in the same order. Then
a batch that was stored before is recognised by its sequence, and by its checksum as long as partitions remember it,
which they do of the last five. One that has the sequence of another, and other records, or that begins or ends within
another, is refused: the work was not the same.

A producer makes batches as records come, and so never the same ones twice; that is why this is not a producer.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from flotilla.client.engine import Engine
from flotilla.client.errors import ConfigInvalid, DeliveryFailed, RecordInvalid, Refused, TopicMissing
from flotilla.client.runner import Runner
from flotilla.records import (
    PRODUCER_ID_BYTES,
    BatchTooLarge,
    Column,
    Compression,
    Headers,
    encode,
    encode_columns,
)
from flotilla.records import RecordInvalid as RecordRefused

_PASSED = "sequence_overlap"
_COMPRESSIONS = {"none": Compression.NONE, "zstd": Compression.ZSTD}


class AsyncAppender:
    """Appends batches as one producer in one epoch. Made and used on the loop of its client."""

    def __init__(
        self, engine: Engine, producer_id: bytes, epoch: int, *, delivery_s: float = 60.0, compression: str = "none"
    ) -> None:
        if len(producer_id) != PRODUCER_ID_BYTES or not any(producer_id):
            raise ConfigInvalid(f"producer_id must be {PRODUCER_ID_BYTES} bytes, and not all zero")
        self._engine = engine
        self._producer_id = producer_id
        self._epoch = epoch
        self._delivery_s = delivery_s
        self._compression = _to_compression(compression)
        self._sequences: dict[tuple[str, int], int] = {}
        self._turns: dict[tuple[str, int], asyncio.Lock] = {}

    async def append(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> int | None:
        """Append one batch behind those before it; return the offset of its first record.

        None is for a batch that was stored so long ago that its partition does not remember where. Batches for one
        partition are sent one after the other. Raises DeliveryFailed, DeliveryUnknown, RecordInvalid, TopicMissing,
        NotAllowed, ServerUnreachable.
        """
        pack = partial(
            encode, values, keys=keys, headers=headers, timestamps_ms=timestamps_ms, compression=self._compression
        )
        return await self._append(topic, partition, len(values), pack)

    async def append_columns(
        self,
        topic: str,
        partition: int,
        values: Column,
        *,
        keys: Column | None = None,
        headers: Column | None = None,
        compression: str | None = None,
    ) -> int | None:
        """Append one batch whose records lie in columns: see `flotilla.records.encode_columns`; else as `append`."""
        kind = self._compression if compression is None else _to_compression(compression)
        pack = partial(encode_columns, values, keys=keys, headers=headers, compression=kind)
        return await self._append(topic, partition, len(values.offsets) - 1, pack)

    async def _append(self, topic: str, partition: int, count: int, pack: Callable[..., bytearray]) -> int | None:
        place = (topic, partition)
        async with self._turns.setdefault(place, asyncio.Lock()):
            sequence = self._sequences.get(place, 0)
            identity = {"producer_id": self._producer_id, "producer_epoch": self._epoch, "base_sequence": sequence}
            try:
                batch = await asyncio.to_thread(pack, **identity)
            except (RecordRefused, BatchTooLarge) as error:
                raise RecordInvalid(str(error)) from error
            info = await self._engine.cluster.find(topic)
            if partition >= len(info.partitions):
                info = await self._engine.cluster.refresh(topic)
            if not 0 <= partition < len(info.partitions):
                text = f"there is no partition {partition} of '{topic}': it has {len(info.partitions)}"
                raise TopicMissing(text, "unknown_partition", {})
            deadline = self._engine.clock() + self._delivery_s
            try:
                offset = (await self._engine.router.append(info, partition, batch, deadline=deadline)).base_offset
            except DeliveryFailed as error:
                if not _was_passed(error, sequence + count):
                    raise
                offset = None
            self._sequences[place] = sequence + count
            return offset


def _to_compression(name: str) -> Compression:
    if name not in _COMPRESSIONS:
        raise ConfigInvalid("compression must be none or zstd")
    return _COMPRESSIONS[name]


def _was_passed(error: DeliveryFailed, end: int) -> bool:
    """Tell whether a batch up to this sequence was stored before: it ends where what is remembered begins, or before.

    One that does not was cut in another way than what is stored, and so has other records.
    """
    cause = error.__cause__
    if not isinstance(cause, Refused) or cause.code != _PASSED:
        return False
    known = cause.details.get("remembered_from")
    return isinstance(known, int) and end <= known


class Appender:
    """The same for code without a loop."""

    def __init__(self, runner: Runner, appender: AsyncAppender) -> None:
        self._runner = runner
        self._appender = appender

    def append(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> int | None:
        """Append one batch; see `AsyncAppender.append`."""
        return self._runner.run(
            self._appender.append(topic, partition, values, keys=keys, headers=headers, timestamps_ms=timestamps_ms)
        )

    def append_columns(
        self,
        topic: str,
        partition: int,
        values: Column,
        *,
        keys: Column | None = None,
        headers: Column | None = None,
        compression: str | None = None,
    ) -> int | None:
        """Append one batch; see `AsyncAppender.append_columns`."""
        return self._runner.run(
            self._appender.append_columns(topic, partition, values, keys=keys, headers=headers, compression=compression)
        )
