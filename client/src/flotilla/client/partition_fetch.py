"""The fetch state of one partition of a consumer: position, prefetched batches, and a cursor over a batch."""

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import chain

from flotilla.client.cluster import TopicInfo
from flotilla.client.errors import DataInvalid, FlotillaError
from flotilla.client.positions import ConsumerBatch, ConsumerRecord, TopicPartition
from flotilla.records import BatchInvalid


class PartitionFetch:
    """Position and prefetched batches of one partition of a consumer."""

    def __init__(self, topic: TopicInfo, index: int, offset: int) -> None:
        self.topic = topic
        self.index = index
        self.topic_partition = TopicPartition(topic.name, index)
        self.position = offset  # offset of the next record to return
        self.processed = offset  # offset below which all records are processed: the next to commit
        self.version = 0  # increased whenever taken batches become invalid
        self.is_paused = False
        self.is_stopped = False  # permanently: no further record of it is returned
        self.is_announced = False  # `on_assigned` was called for it
        self.is_lost = False  # another member may own it
        self.next_fetch_offset = offset
        self.error: FlotillaError | None = None
        self.completed: deque[CompletedFetch] = deque()
        self.buffered_bytes = 0
        self.has_room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def mark_processed(self) -> None:
        """Mark all returned records as processed."""
        self.processed = self.position


class CompletedFetch:
    """The remaining batches of a fetch response. Its memory is released after the last one is taken."""

    __slots__ = ("batches", "size")

    def __init__(self, batches: list[memoryview], size: int) -> None:
        batches.reverse()  # so that the first is popped from the end
        self.batches = batches
        self.size = size


class BatchCursor:
    """A batch that was taken from the fetcher, and is returned as a whole or record by record."""

    __slots__ = ("_records", "_version", "batch", "fetch", "is_open")

    def __init__(self, fetch: PartitionFetch, version: int, batch: ConsumerBatch) -> None:
        self.fetch = fetch
        self.batch = batch
        self.is_open = True  # False: the consumer has to poll before the next record
        self._version = version
        self._records: Iterator[ConsumerRecord] | None = None

    @property
    def is_valid(self) -> bool:
        """Whether its records may be returned: no seek, pause or removal since it was taken."""
        return self.fetch.version == self._version

    def records(self) -> Iterator[ConsumerRecord]:
        """Iterate over the remaining records. Requesting a record marks those before it as processed.

        Raises DataInvalid.
        """
        if self._records is None:
            try:
                self._records = iter(self.batch)
            except BatchInvalid as error:  # headers of records are decoded only here
                text = f"{self.fetch.topic_partition}: batch at offset {self.batch.offset} is damaged: {error}"
                raise DataInvalid(text) from error
        fetch = self.fetch
        for record in self._records:
            if not self.is_open:
                self._records = chain((record,), self._records)
                return
            fetch.processed = offset = record.offset
            fetch.position = offset + 1
            yield record

    def rest(self) -> ConsumerBatch | None:
        """Return the remaining records as a batch; None if there are none, or the cursor is invalid."""
        fetch, batch = self.fetch, self.batch
        if not self.is_valid or fetch.position >= batch.next_offset:
            return None
        start = max(batch.start, fetch.position - batch.batch.header.base_offset)
        fetch.position = batch.next_offset
        self._records = iter(())
        return ConsumerBatch(batch.topic, batch.partition, batch.batch, start)
