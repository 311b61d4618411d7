"""Record batches: the binary format of records, from producers to disk, consumers and Spark.

A client encodes records as a batch with `encode`. Servers forward and store the batch unchanged: they separate several
batches with `split`, verify one with `check`, and write its base offset with `assign`, all without decoding the body. A
consumer decodes it with `decode`: to lists of Python objects, or to columns for Arrow without a copy.

The package is pure: no clock, no files, no network, no state. It accepts only canonical encodings, and rejects anything
else with a specific error (see `flotilla.records.errors`), before it allocates memory for sizes declared by the input.
It does not know topics, partitions or replicas, and does not retry.

`docs/record-batch.md` specifies the format. The exports of this module are its public API.
"""

from flotilla.records.compression import LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN
from flotilla.records.decoding import Batch, Column, Record, Scan, decode
from flotilla.records.encoding import encode, encode_columns
from flotilla.records.envelope import assign, check, split
from flotilla.records.errors import (
    AssignmentInvalid,
    BadBody,
    BadHeader,
    BadMagic,
    BadPadding,
    BadRecordHeaders,
    BatchInvalid,
    BatchTooLarge,
    BatchTruncated,
    CrcMismatch,
    DecompressionFailed,
    RecordInvalid,
    RecordsError,
    TrailingBytes,
    UnsupportedVersion,
)
from flotilla.records.headers import (
    HEADER_NAME_BYTES_MAX,
    HEADERS_PER_RECORD_MAX,
    Headers,
    decode_headers,
    encode_headers,
)
from flotilla.records.layout import (
    BASE_OFFSET_MAX,
    BASE_SEQUENCE_MAX,
    BATCH_BYTES_MAX,
    BODY_BYTES_MAX,
    HEADER_BYTES,
    NO_PRODUCER,
    NO_TIMESTAMP_MS,
    PRODUCER_ID_BYTES,
    RECORDS_MAX,
    BatchHeader,
    Buffer,
    Compression,
)

__all__ = [
    "BASE_OFFSET_MAX",
    "BASE_SEQUENCE_MAX",
    "BATCH_BYTES_MAX",
    "BODY_BYTES_MAX",
    "HEADERS_PER_RECORD_MAX",
    "HEADER_BYTES",
    "HEADER_NAME_BYTES_MAX",
    "LEVEL_DEFAULT",
    "LEVEL_MAX",
    "LEVEL_MIN",
    "NO_PRODUCER",
    "NO_TIMESTAMP_MS",
    "PRODUCER_ID_BYTES",
    "RECORDS_MAX",
    "AssignmentInvalid",
    "BadBody",
    "BadHeader",
    "BadMagic",
    "BadPadding",
    "BadRecordHeaders",
    "Batch",
    "BatchHeader",
    "BatchInvalid",
    "BatchTooLarge",
    "BatchTruncated",
    "Buffer",
    "Column",
    "Compression",
    "CrcMismatch",
    "DecompressionFailed",
    "Headers",
    "Record",
    "RecordInvalid",
    "RecordsError",
    "Scan",
    "TrailingBytes",
    "UnsupportedVersion",
    "assign",
    "check",
    "decode",
    "decode_headers",
    "encode",
    "encode_columns",
    "encode_headers",
    "split",
]
