"""Settings of partitions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Settings of all partitions of a broker."""

    entry_bytes: int = 1 << 20  # batches share an entry up to this size
    producers_max: int = 100_000  # in the producer table
    producer_age_ms: int = 7 * 24 * 3600 * 1000  # idle time after which a producer is removed from the table
