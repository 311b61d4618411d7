"""The errors of record batches, one tree.

    RecordsError (a ValueError)
    ├── RecordInvalid             an argument of `encode` breaks a rule; the text names it and the rule
    ├── AssignmentInvalid         `assign` was given an offset or a time that cannot be
    └── BatchInvalid              bytes that are not a batch
        ├── BatchTruncated        the bytes end before the batch does
        ├── TrailingBytes         more bytes follow where one batch was expected
        ├── BadMagic              the first bytes are not those of a batch
        ├── UnsupportedVersion    a batch, of a version that is not known here
        ├── BatchTooLarge         more bytes or records than a limit allows; `encode` raises it too
        ├── BadHeader             a field of the header contradicts the format or another field
        ├── CrcMismatch           the bytes are not those that the producer encoded
        ├── BadPadding            bytes that must be zero are not
        ├── DecompressionFailed   the stored body is not one zstd frame of the size that was declared
        └── BadBody               the columns contradict the header or themselves
            └── BadRecordHeaders  the headers of a record are not encoded as they must be

None of them passes with time, so none is worth a retry. A text says what is wrong, where, and what was
expected. It never holds a key, a value or a header: those may be secret, and logs are not.
"""


class RecordsError(ValueError):
    """The root: everything that `flotilla.records` raises on purpose."""


class RecordInvalid(RecordsError):
    """An argument of `encode` breaks a rule."""


class AssignmentInvalid(RecordsError):
    """An offset or an append time is out of range."""


class BatchInvalid(RecordsError):
    """The bytes are not a batch."""


class BatchTruncated(BatchInvalid):
    """The bytes end before the batch does."""


class TrailingBytes(BatchInvalid):
    """More bytes follow where exactly one batch was expected."""


class BadMagic(BatchInvalid):
    """The first bytes are not those of a batch."""


class UnsupportedVersion(BatchInvalid):
    """The batch has a version that is not known here."""


class BatchTooLarge(BatchInvalid):
    """The batch has, or would have, more bytes or records than a limit allows."""


class BadHeader(BatchInvalid):
    """A field of the header contradicts the format or another field."""


class CrcMismatch(BatchInvalid):
    """The bytes are not those that the producer encoded."""


class BadPadding(BatchInvalid):
    """Bytes that must be zero are not."""


class DecompressionFailed(BatchInvalid):
    """The stored body is not one zstd frame of the declared size."""


class BadBody(BatchInvalid):
    """The columns of the body contradict the header or themselves."""


class BadRecordHeaders(BadBody):
    """The headers of a record are not encoded as they must be."""
