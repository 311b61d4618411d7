"""Headers of a record: (name, value) pairs, such as a trace id, encoded as one binary blob.

A blob has for each pair: the length of the name (u16), the name (UTF-8), the length of the value (u32), the value.
Without pairs, it is empty. Order and repeated names are kept. A name is never empty.

Records of one batch often have the same headers, so the functions for columns encode and decode each distinct value
once; records with equal headers share one immutable tuple.
"""

import struct
from collections.abc import Sequence
from typing import Final

from flotilla.records.errors import BadRecordHeaders, RecordInvalid

Headers = tuple[tuple[str, bytes], ...]

HEADERS_PER_RECORD_MAX: Final = 256
HEADER_NAME_BYTES_MAX: Final = 2**16 - 1
_PAIR_ITEMS: Final = 2
_NAME_LENGTH: Final = struct.Struct("<H")
_VALUE_LENGTH: Final = struct.Struct("<I")


def encode_column(rows: Sequence[Headers]) -> list[bytes]:
    """Encode the headers of each record.

    Raises:
        RecordInvalid: the headers of a record are not a tuple of (str, bytes) pairs, or exceed a limit.
    """
    try:
        blobs = {row: encode_headers(row) for row in dict.fromkeys(rows)}
        return [blobs[row] for row in rows]
    except (RecordInvalid, TypeError):
        # A row that cannot be hashed cannot be encoded either: encode one by one to name the invalid record.
        return [_encode_named(index, row) for index, row in enumerate(rows)]


def decode_column(blobs: Sequence[bytes]) -> list[Headers]:
    """Decode the headers of each record.

    Raises:
        BadRecordHeaders: a blob is invalid.
    """
    rows: dict[bytes, Headers] = {}
    for index, blob in enumerate(blobs):
        if blob not in rows:
            try:
                rows[blob] = decode_headers(blob)
            except BadRecordHeaders as error:
                raise BadRecordHeaders(f"headers of record {index}: {error}") from error
    return [rows[blob] for blob in blobs]


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of one record.

    Raises:
        RecordInvalid: they are not a tuple of (str, bytes) pairs, or exceed a limit.
    """
    if type(headers) is not tuple:
        raise RecordInvalid(f"they are a {type(headers).__name__}; expected a tuple of (str, bytes) pairs")
    if len(headers) > HEADERS_PER_RECORD_MAX:
        raise RecordInvalid(f"they are {len(headers)}; at most {HEADERS_PER_RECORD_MAX} are allowed")
    return b"".join([part for pair in headers for part in _encode_pair(pair)])


def decode_headers(blob: bytes) -> Headers:
    """Decode the headers of one record.

    Raises:
        BadRecordHeaders: the blob is invalid.
    """
    pairs: list[tuple[str, bytes]] = []
    position = 0
    while position < len(blob):
        if len(pairs) == HEADERS_PER_RECORD_MAX:
            raise BadRecordHeaders(f"more than {HEADERS_PER_RECORD_MAX} headers, which is the limit")
        name, position = _take(blob, position, _NAME_LENGTH, "name")
        value, position = _take(blob, position, _VALUE_LENGTH, "value")
        pairs.append((_decode_name(name), value))
    return tuple(pairs)


def _encode_named(index: int, row: Headers) -> bytes:
    try:
        return encode_headers(row)
    except RecordInvalid as error:
        raise RecordInvalid(f"headers of record {index}: {error}") from error


def _encode_pair(pair: tuple[str, bytes]) -> tuple[bytes, bytes, bytes, bytes]:
    if type(pair) is not tuple or len(pair) != _PAIR_ITEMS:
        raise RecordInvalid(f"a {type(pair).__name__} is among them; expected (str, bytes) pairs")
    name, value = pair
    if type(name) is not str or type(value) is not bytes:
        raise RecordInvalid(f"a pair is ({type(name).__name__}, {type(value).__name__}); expected (str, bytes)")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise RecordInvalid(f"a name cannot be written as UTF-8: {error.reason}") from None
    if not 1 <= len(encoded) <= HEADER_NAME_BYTES_MAX:
        raise RecordInvalid(f"a name has {len(encoded)} bytes of UTF-8; 1 to {HEADER_NAME_BYTES_MAX} are allowed")
    return _NAME_LENGTH.pack(len(encoded)), encoded, _VALUE_LENGTH.pack(len(value)), value


def _take(blob: bytes, position: int, length: struct.Struct, what: str) -> tuple[bytes, int]:
    """Return the bytes with the length prefix at `position`, and the position after them."""
    start = position + length.size
    if start > len(blob):
        raise BadRecordHeaders(f"the length of a {what} at byte {position} is cut; the blob has {len(blob)} bytes")
    end = start + length.unpack_from(blob, position)[0]
    if end > len(blob):
        raise BadRecordHeaders(f"a {what} at byte {start} has {end - start} bytes; {len(blob) - start} are left")
    return blob[start:end], end


def _decode_name(name: bytes) -> str:
    if not name:
        raise BadRecordHeaders("a name is empty")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        # Without the cause, whose message has the bytes.
        raise BadRecordHeaders(f"a name is not UTF-8: {error.reason}") from None
