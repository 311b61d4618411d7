"""Batches whose identity the caller gives: whoever does the same work again does not store it twice.

For programs that begin again where a checkpoint says, such as the tasks of a Spark query. They give what they do a
producer id and an epoch of its own, cut the same records into the same batches, and send these in the same order. Then
a batch that was stored before is recognised by its sequence, and by its checksum as long as partitions remember it. One
that has the sequence of another, and other records, is refused: the work was not the same.

A producer makes batches as records come, and so never the same ones twice; that is why this is not a producer.
"""

import asyncio
from collections.abc import Sequence

from flotilla.client.engine import Engine
from flotilla.client.errors import ConfigInvalid, DeliveryFailed, Refused
from flotilla.client.runner import Runner
from flotilla.records import PRODUCER_ID_BYTES, Compression, Headers, encode

_PASSED = "sequence_overlap"
_COMPRESSIONS = {"none": Compression.NONE, "zstd": Compression.ZSTD}


class AsyncAppender:
    """Appends batches as one producer in one epoch. Made and used on the loop of its client."""

    def __init__(
        self, engine: Engine, producer_id: bytes, epoch: int, *, delivery_s: float = 60.0, compression: str = "none"
    ) -> None:
        if len(producer_id) != PRODUCER_ID_BYTES or not any(producer_id):
            raise ConfigInvalid(f"producer_id must be {PRODUCER_ID_BYTES} bytes, and not all zero")
        if compression not in _COMPRESSIONS:
            raise ConfigInvalid("compression must be none or zstd")
        self._engine = engine
        self._producer_id = producer_id
        self._epoch = epoch
        self._delivery_s = delivery_s
        self._compression = _COMPRESSIONS[compression]
        self._sequences: dict[tuple[str, int], int] = {}

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
        partition are sent one after the other. Raises DeliveryFailed, DeliveryUnknown, RecordInvalid, BatchTooLarge,
        TopicMissing, NotAllowed, ServerUnreachable.
        """
        place = (topic, partition)
        sequence = self._sequences.get(place, 0)
        batch = await asyncio.to_thread(
            encode,
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=timestamps_ms,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            compression=self._compression,
        )
        info = await self._engine.cluster.find(topic)
        deadline = self._engine.clock() + self._delivery_s
        try:
            found = await self._engine.router.append(info, partition, batch, deadline=deadline)
        except DeliveryFailed as error:
            if not (isinstance(error.__cause__, Refused) and error.__cause__.code == _PASSED):
                raise
            offset = None
        else:
            offset = found.base_offset
        self._sequences[place] = sequence + len(values)
        return offset


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
