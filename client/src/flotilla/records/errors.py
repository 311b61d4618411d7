"""Errors of record batches.

    RecordsError (a ValueError)
    ├── RecordInvalid             an argument of `encode` is invalid; the message has the rule
    ├── AssignmentInvalid         an offset or an append time for `assign` is out of range
    └── BatchInvalid              the bytes are not a batch
        ├── BatchTruncated        the bytes end before the batch does
        ├── TrailingBytes         more bytes follow where one batch was expected
        ├── BadMagic              the first bytes are not those of a batch
        ├── UnsupportedVersion    the version of the batch is not supported
        ├── BatchTooLarge         more bytes or records than a limit allows; `encode` raises it too
        ├── BadHeader             a field of the header contradicts the format or another field
        ├── CrcMismatch           the bytes are not those that the producer encoded
        ├── BadPadding            bytes that must be zero are not
        ├── DecompressionFailed   the stored body is not one zstd frame of the declared size
        └── BadBody               the columns contradict the header or themselves
            └── BadRecordHeaders  the headers of a record are invalid

All of them are permanent: do not retry. The message has the problem, its position and the expected value. It never has
a key, a value or a header, which may be secret.
"""


class RecordsError(ValueError):
    """Base class of the errors of `flotilla.records`."""


class RecordInvalid(RecordsError):
    """An argument of `encode` is invalid."""


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
    """The version of the batch is not supported."""


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
    """The headers of a record are invalid."""
