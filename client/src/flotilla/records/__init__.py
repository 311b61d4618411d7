"""Record batches: the one binary shape that messages have, from the producer to disk, consumer and Spark.

A client packs many records into a batch with `encode`. Servers pass it on and store it as it is: they take
several apart with `split`, look at one with `check`, and write its offset into it with `assign`, all without
opening it. A consumer opens it with `decode`: as lists of Python objects, or as columns that Arrow takes
without a copy.

The package is pure: bytes in, bytes out; no clock, no files, no network, no state. It accepts only what it
would have written itself, and refuses everything else with an error that says what is wrong (see
`flotilla.records.errors`), before it spends memory on what the input claims. It does not know of topics,
partitions or replicas, and it never retries.

The format, byte for byte, is told in `docs/record-batch.md`. What this module exports is its whole interface.
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
