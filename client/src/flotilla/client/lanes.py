"""One partition of a consumer: where it is, what came for it, and how a batch of it is handed out."""

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import chain

from flotilla.client.cluster import TopicInfo
from flotilla.client.errors import DataInvalid, FlotillaError
from flotilla.client.positions import ConsumerBatch, ConsumerRecord, Place
from flotilla.records import BatchInvalid


class Lane:
    """One partition of a consumer: where it is, and what came for it."""

    def __init__(self, topic: TopicInfo, index: int, offset: int) -> None:
        self.topic = topic
        self.index = index
        self.place = Place(topic.name, index)
        self.position = offset  # the next to hand out
        self.done = offset  # everything before it is finished with
        self.version = 0
        self.is_paused = False
        self.is_stopped = False  # for good: nothing of it is handed out any more
        self.is_told = False  # the user knows that it is there
        self.is_lost = False  # somebody else has it
        self.fetch_at = offset
        self.error: FlotillaError | None = None
        self.answers: deque[Answer] = deque()
        self.held_bytes = 0
        self.room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def finish(self) -> None:
        """Note that the user is done with whatever was handed out."""
        self.done = self.position


class Answer:
    """What is left of an answer. Its bytes are there until its last batch is taken."""

    __slots__ = ("batches", "size")

    def __init__(self, batches: list[memoryview], size: int) -> None:
        batches.reverse()  # so that the first can be taken from the end
        self.batches = batches
        self.size = size


class Chunk:
    """A batch that somebody has taken, to be handed out at once or record by record."""

    __slots__ = ("_records", "_version", "batch", "is_open", "lane")

    def __init__(self, lane: Lane, version: int, batch: ConsumerBatch) -> None:
        self.lane = lane
        self.batch = batch
        self.is_open = True  # else something has to be looked at before the next record
        self._version = version
        self._records: Iterator[ConsumerRecord] | None = None

    @property
    def is_valid(self) -> bool:
        """Whether it may be handed out: nobody has moved the partition since."""
        return self.lane.version == self._version

    def records(self) -> Iterator[ConsumerRecord]:
        """Hand out what is left, record by record. To ask for one says that those before it are done with.

        Raises DataInvalid.
        """
        if self._records is None:
            try:
                self._records = iter(self.batch)
            except BatchInvalid as error:  # the records' own headers are looked at only now
                text = f"{self.lane.place}: the batch at offset {self.batch.offset} cannot be read: {error}"
                raise DataInvalid(text) from error
        lane = self.lane
        for record in self._records:
            if not self.is_open:
                self._records = chain((record,), self._records)
                return
            lane.done = offset = record.offset
            lane.position = offset + 1
            yield record

    def rest(self) -> ConsumerBatch | None:
        """Hand out what is left as a batch; None if nothing is, or it may not be handed out any more."""
        lane, batch = self.lane, self.batch
        if not self.is_valid or lane.position >= batch.next_offset:
            return None
        start = max(batch.start, lane.position - batch.batch.header.base_offset)
        lane.position = batch.next_offset
        self._records = iter(())
        return ConsumerBatch(batch.topic, batch.partition, batch.batch, start)
