"""Appenders: append batches under an identity that the caller chooses, so that repeated work is stored once.

For programs that restart from a checkpoint, such as the tasks of a Spark query. The caller derives a producer id and an
epoch from the work, and sends the same records in the same order. A partition recognises a batch that it stored before
by its sequence, and, for the last five batches, by its checksum. A batch with a known sequence and other records is
rejected: the work was not the same.

An earlier attempt may have ended in the middle of a batch. Then its first records are stored, as a shorter batch: they
are sent as such, so that they are recognised, and the rest after them.

A producer forms batches by arrival, and so never the same ones twice; therefore this is not a producer.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from flotilla.client.cluster import TopicInfo
from flotilla.client.config import COMPRESSION_BY_NAME
from flotilla.client.engine import Engine
from flotilla.client.errors import ConfigInvalid, DeliveryFailed, RecordInvalid, Refused, TopicMissing
from flotilla.client.runner import Runner
from flotilla.records import (
    PRODUCER_ID_BYTES,
    BatchTooLarge,
    Column,
    Compression,
    Headers,
    decode_headers,
    encode,
    encode_columns,
)
from flotilla.records import RecordInvalid as EncodingError


class AsyncAppender:
    """Appends batches under a given producer id and epoch. Use it on the event loop of its client."""

    def __init__(
        self, engine: Engine, producer_id: bytes, epoch: int, *, delivery_s: float = 60.0, compression: str = "none"
    ) -> None:
        if len(producer_id) != PRODUCER_ID_BYTES or not any(producer_id):
            raise ConfigInvalid(f"producer_id must be {PRODUCER_ID_BYTES} bytes, not all zero; got {producer_id!r}")
        self._engine = engine
        self._producer_id = producer_id
        self._epoch = epoch
        self._delivery_s = delivery_s
        self._compression = _to_compression(compression)
        self._sequences: dict[tuple[str, int], int] = {}
        self._locks: dict[tuple[str, int], asyncio.Lock] = {}

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
        """Append one batch after the ones before it; return the offset of its first record.

        Returns None if the batch was stored before and the partition no longer has its offset. Batches of one partition
        are sent one after the other. Raises DeliveryFailed, DeliveryUnknown, RecordInvalid, TopicMissing,
        NotAllowed, ServerUnreachable.
        """

        def pack(start: int, stop: int, **identity: Any) -> bytearray:  # noqa: ANN401 - as `encode` has it
            some = slice(start, stop)
            return encode(
                values[some],
                keys=None if keys is None else keys[some],
                headers=None if headers is None else headers[some],
                timestamps_ms=None if timestamps_ms is None else timestamps_ms[some],
                compression=self._compression,
                **identity,
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
        """Append one batch from columns: see `flotilla.records.encode_columns`; otherwise as `append`."""
        kind = self._compression if compression is None else _to_compression(compression)
        count = len(values.offsets) - 1

        def pack(start: int, stop: int, **identity: Any) -> bytearray:  # noqa: ANN401 - as `encode_columns` has it
            if (start, stop) == (0, count):
                return encode_columns(values, keys=keys, headers=headers, compression=kind, **identity)
            # Rare, and lists are easier to cut. Keys or headers that none of these records has are left out.
            own_keys = None if keys is None else keys.to_nullable_list()[start:stop]
            own_headers = None if headers is None else list(map(decode_headers, headers.to_list()[start:stop]))
            return encode(
                values.to_list()[start:stop],
                keys=own_keys if own_keys and any(key is not None for key in own_keys) else None,
                headers=own_headers if own_headers and any(own_headers) else None,
                compression=kind,
                **identity,
            )

        return await self._append(topic, partition, count, pack)

    async def _append(self, topic: str, partition: int, count: int, pack: Callable[..., bytearray]) -> int | None:
        key = (topic, partition)
        async with self._locks.setdefault(key, asyncio.Lock()):
            info = await self._find(topic, partition)
            sequence = self._sequences.get(key, 0)
            found: list[int | None] = []
            at, stop = 0, count
            while at < count or not found:
                identity = {"producer_epoch": self._epoch, "base_sequence": sequence + at}
                try:
                    batch = await asyncio.to_thread(pack, at, stop, producer_id=self._producer_id, **identity)
                except (EncodingError, BatchTooLarge) as error:
                    raise RecordInvalid(str(error)) from error
                deadline = self._engine.clock() + self._delivery_s
                try:
                    appended = await self._engine.router.append(info, partition, batch, deadline=deadline)
                except DeliveryFailed as error:
                    passed, stored = _parse_sequence_error(error, sequence + at)
                    if passed:
                        found.append(None)
                        at, stop = min(count, at + passed), count
                    elif 0 < stored < stop - at:
                        stop = at + stored
                    else:
                        raise
                else:
                    found.append(appended.base_offset)
                    at, stop = stop, count
            self._sequences[key] = sequence + count
            return found[0]

    async def _find(self, topic: str, partition: int) -> TopicInfo:
        """Find a topic that has the partition. Raises TopicMissing, Refused, ServerUnreachable."""
        info = await self._engine.cluster.find(topic)
        if partition >= len(info.partitions):
            info = await self._engine.cluster.refresh(topic)
        if not 0 <= partition < len(info.partitions):
            text = f"topic '{topic}' has no partition {partition}, only 0 to {len(info.partitions) - 1}"
            raise TopicMissing(text, "unknown_partition", {})
        return info


def _to_compression(name: str) -> Compression:
    if name not in COMPRESSION_BY_NAME:
        raise ConfigInvalid(f"compression must be {' or '.join(COMPRESSION_BY_NAME)}, not {name!r}")
    return COMPRESSION_BY_NAME[name]


def _parse_sequence_error(error: DeliveryFailed, sequence: int) -> tuple[int, int]:
    """Return how many records from a sequence are already stored, and the size of the stored batch there."""
    cause = error.__cause__
    if not isinstance(cause, Refused):
        return 0, 0
    known = {"sequence_overlap": "remembered_from", "sequence_reused": "count"}.get(cause.code)
    number = cause.details.get(known) if known is not None else None
    if not isinstance(number, int):
        return 0, 0
    return (max(0, number - sequence), 0) if known == "remembered_from" else (0, number)


class Appender:
    """Appends batches under a given producer id and epoch; the blocking `AsyncAppender`. Thread-safe."""

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
