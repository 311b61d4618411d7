"""The limits of a partition."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """What all partitions of a broker share."""

    entry_bytes: int = 1 << 20  # small batches share an entry up to this size; a larger one has its own
    producers_max: int = 100_000  # remembered at a time
    producer_age_ms: int = 7 * 24 * 3600 * 1000  # a producer that sends nothing for so long is forgotten
