"""Errors of idempotent producers.

ProducerError
├── ProducerRefused         a batch is out of sequence; it was not appended
│   ├── SequenceReused      sequence_reused: another batch has this sequence
│   ├── SequenceGap         sequence_gap: records before this batch are missing
│   ├── SequenceOverlap     sequence_overlap: the sequence is below those of the stored batches, or inside one of them
│   ├── EpochStale          epoch_stale: the producer has a newer epoch
│   └── ProducerUnknown     unknown_producer: an unknown producer starts above 0
├── ProducerTableMisuse     the caller violated a precondition, such as truncating committed entries
└── InvalidProducerTable    the bytes are not an encoded table

A retry of a refused batch does not help, unless a gap before it was filled. A refusal is about this attempt only:
whether an earlier attempt of the same batch was appended stays unknown.
"""

from typing import ClassVar


class ProducerError(Exception):
    """Base class of the errors."""


class ProducerRefused(ProducerError):
    """A batch is out of sequence.

    The message has the expected and the actual value, and what the client should do.

    Attributes:
        code: the error code, as in `flotilla.net.codes`.
        details: values for clients.
    """

    code: ClassVar[str]

    def __init__(self, message: str, **details: int) -> None:
        super().__init__(message)
        self.details = details


class SequenceReused(ProducerRefused):
    """Another stored batch starts at this sequence; the detail `count` is its number of records."""

    code = "sequence_reused"


class SequenceGap(ProducerRefused):
    """The batch starts above the next sequence."""

    code = "sequence_gap"


class SequenceOverlap(ProducerRefused):
    """The batch starts below the next sequence, but not at the start of a remembered batch.

    The detail `remembered_from` is the first sequence of the oldest remembered batch.
    """

    code = "sequence_overlap"


class EpochStale(ProducerRefused):
    """The producer has a newer epoch."""

    code = "epoch_stale"


class ProducerUnknown(ProducerRefused):
    """The producer is unknown, and its batch does not start at 0."""

    code = "unknown_producer"


class ProducerTableMisuse(ProducerError):
    """The caller violated a precondition. Nothing was changed."""


class InvalidProducerTable(ProducerError):
    """The bytes are not an encoded table, or have an unknown version."""
