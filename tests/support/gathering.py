"""An accumulator without a loop: what it is told, and whom it wakes, is up to the test."""

from dataclasses import dataclass, field

from flotilla.client.accumulating import Accumulator
from flotilla.client.cluster import PartitionInfo, TopicInfo
from flotilla.client.deliveries import Delivery, Fate
from flotilla.client.parcels import Lane, Parcel
from flotilla.records import Compression

ID = bytes(range(16))


def make_info(partitions: int = 3, id_: str = "id-1", **more: int | str) -> TopicInfo:
    members = tuple(PartitionInfo(index, 1, ("b0",), "b0") for index in range(partitions))
    return TopicInfo("t", id_, members, **more)  # type: ignore[arg-type]  # limits and hints


@dataclass
class Gathering:
    """An accumulator, and what it was told and told."""

    batch_bytes: int = 2000
    buffer_bytes: int = 1 << 20
    linger_s: float = 0.0
    compression: Compression | None = Compression.NONE
    woken: list[Lane] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.accumulator = Accumulator(
            batch_bytes=self.batch_bytes,
            buffer_bytes=self.buffer_bytes,
            linger_s=self.linger_s,
            compression=self.compression,
            wake=self.woken.append,
            make_fate=Fate,
            clock=lambda: self.now,
        )
        self.accumulator.learn(make_info())

    def add(self, value: bytes | bytearray, **more: object) -> Delivery:
        delivery = self.accumulator.add("t", value, **more)  # type: ignore[arg-type]  # whatever a test adds
        assert delivery is not None
        return delivery

    def take(self, lane: Lane) -> Parcel:
        parcel = self.accumulator.take(lane)
        assert isinstance(parcel, Parcel)
        return parcel

    def take_all(self) -> list[Parcel]:
        """Take whatever is there, as the loop does, until no lane has more."""
        found: list[Parcel] = []
        lanes, self.woken[:] = list(self.woken), []
        for lane in lanes:
            while (parcel := self.accumulator.take(lane)) is not None:
                assert isinstance(parcel, Parcel)
                found.append(parcel)
        return found
