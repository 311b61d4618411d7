"""What can go wrong with the batches of producers.

ProducerError
├── ProducerRefused         a batch does not follow what its producer sent before; nothing of it was written now
│   ├── SequenceReused      sequence_reused: the sequence belongs to another batch
│   ├── SequenceGap         sequence_gap: records before this batch are missing
│   ├── SequenceOverlap     sequence_overlap: the sequence was passed, by batches that are not remembered
│   ├── EpochStale          epoch_stale: a newer epoch of the producer has written
│   └── ProducerUnknown     unknown_producer: a producer that is not known starts above 0
├── ProducerTableMisuse     the caller broke a rule of the table (a truncation of committed entries, ...)
└── ProducerTableMalformed  bytes that are not a saved table

To send a refused batch again is of no use, unless a gap before it was filled. A refusal speaks of this attempt only:
whether an earlier attempt of the same batch was written is as unknown after it as it was before.
"""

from typing import ClassVar


class ProducerError(Exception):
    """The root of everything that the table of producers raises."""


class ProducerRefused(ProducerError):
    """A batch does not follow what its producer sent before.

    The text says what was expected, what came, and what the client should do.

    Attributes:
        code: names the reason for programs; it never changes.
        details: what programs need to know besides.
    """

    code: ClassVar[str]

    def __init__(self, message: str, **details: int) -> None:
        super().__init__(message)
        self.details = details


class SequenceReused(ProducerRefused):
    """A remembered batch starts at this sequence, and it is another one; the detail `count` is how long that is."""

    code = "sequence_reused"


class SequenceGap(ProducerRefused):
    """The batch starts above the sequence that is next."""

    code = "sequence_gap"


class SequenceOverlap(ProducerRefused):
    """The batch starts below the sequence that is next, and not where a remembered batch does.

    Its detail `remembered_from` is where the oldest that is remembered starts: what lies before was passed.
    """

    code = "sequence_overlap"


class EpochStale(ProducerRefused):
    """A newer epoch of the producer has written."""

    code = "epoch_stale"


class ProducerUnknown(ProducerRefused):
    """The producer is not known, and its batch does not start at 0."""

    code = "unknown_producer"


class ProducerTableMisuse(ProducerError):
    """The caller broke a rule of the table. Nothing was changed."""


class ProducerTableMalformed(ProducerError):
    """The bytes are not a saved table, or not one of a version that is known here."""
