"""A producer's accumulator without an event loop: the test controls time and wake-ups."""

from dataclasses import dataclass, field

from flotilla.client.accumulator import Accumulator
from flotilla.client.cluster import PartitionInfo, TopicInfo
from flotilla.client.deliveries import Delivery, Outcome
from flotilla.client.producer_batches import PartitionQueue, ProducerBatch
from flotilla.records import Compression

ID = bytes(range(16))


def make_info(partitions: int = 3, id_: str = "id-1", **more: int | str) -> TopicInfo:
    members = tuple(PartitionInfo(index, 1, ("b0",), "b0") for index in range(partitions))
    return TopicInfo("t", id_, members, **more)  # type: ignore[arg-type]  # limits and hints


@dataclass
class AccumulatorHarness:
    """An accumulator, and the outcomes and wake-ups that it reported."""

    batch_bytes: int = 2000
    buffer_bytes: int = 1 << 20
    linger_s: float = 0.0
    compression: Compression | None = Compression.NONE
    woken: list[PartitionQueue] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.accumulator = Accumulator(
            batch_bytes=self.batch_bytes,
            buffer_bytes=self.buffer_bytes,
            linger_s=self.linger_s,
            compression=self.compression,
            wake=self.woken.append,
            make_outcome=Outcome,
            clock=lambda: self.now,
        )
        self.accumulator.update_topic(make_info())

    def add(self, value: bytes | bytearray, **more: object) -> Delivery:
        delivery = self.accumulator.add("t", value, **more)  # type: ignore[arg-type]  # any option
        assert delivery is not None
        return delivery

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        batch = self.accumulator.take(queue)
        assert isinstance(batch, ProducerBatch)
        return batch

    def take_all(self) -> list[ProducerBatch]:
        """Take all batches as the event loop does, until no queue has more."""
        found: list[ProducerBatch] = []
        queues, self.woken[:] = list(self.woken), []
        for queue in queues:
            while (batch := self.accumulator.take(queue)) is not None:
                assert isinstance(batch, ProducerBatch)
                found.append(batch)
        return found
