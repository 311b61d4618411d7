"""Record batches as JSON, for clients without the binary format. Pure.

Values, keys and header values are text if they are valid UTF-8, otherwise base64 in a field `…_base64`. JSON is slower
than the binary format: it needs Python objects for each record.
"""

import base64
import binascii
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from flotilla.limits import INT64_MAX, SEQUENCE_MAX
from flotilla.protocol.errors import Refusal
from flotilla.records import (
    NO_PRODUCER,
    BatchHeader,
    BatchInvalid,
    RecordInvalid,
    RecordsError,
    check,
    decode,
    encode,
    split,
)

_OPEN_BYTES_MAX = 32 << 20


class JsonHeader(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A header of a record."""

    name: str
    value: str | None = None
    value_base64: str | None = None


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A record to append."""

    value: str | None = None
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    timestamp_ms: Annotated[int, Meta(ge=-INT64_MAX, le=INT64_MAX)] | None = None
    headers: Annotated[tuple[JsonHeader, ...], Meta(max_length=256)] = ()


class JsonBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A batch to append."""

    records: Annotated[tuple[JsonRecord, ...], Meta(min_length=1, max_length=100_000)]
    producer_id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$(?!\n)")] | None = None
    producer_epoch: Annotated[int, Meta(ge=0, le=INT64_MAX)] = 0
    base_sequence: Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)] = 0


_decoder = msgspec.json.Decoder(JsonBatch)


def read_batch(body: bytes) -> bytearray:
    """Encode a batch from JSON. Raises Refusal."""
    try:
        given = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("bad_request", f"the body is not a batch in JSON: {error}") from error
    try:
        return _encode(given)
    except RecordsError as error:
        raise Refusal("bad_batch", str(error)) from error


def _encode(given: JsonBatch) -> bytearray:
    records = given.records
    times = [one.timestamp_ms for one in records if one.timestamp_ms is not None]
    if times and len(times) < len(records):
        raise RecordInvalid("either all records have a timestamp_ms, or none")
    values = [_bytes(one.value, one.value_base64, f"value of record {at}") for at, one in enumerate(records)]
    keys = [_optional(one.key, one.key_base64, f"key of record {at}") for at, one in enumerate(records)]
    headers = [
        tuple((each.name, _bytes(each.value, each.value_base64, f"header of record {at}")) for each in one.headers)
        for at, one in enumerate(records)
    ]
    return encode(
        values,
        keys=keys if any(key is not None for key in keys) else None,
        headers=headers if any(headers) else None,
        timestamps_ms=times or None,
        producer_id=NO_PRODUCER if given.producer_id is None else bytes.fromhex(given.producer_id),
        producer_epoch=given.producer_epoch,
        base_sequence=given.base_sequence,
    )


def _bytes(text: str | None, encoded: str | None, what: str) -> bytes:
    found = _optional(text, encoded, what)
    if found is None:
        raise RecordInvalid(f"the {what} is missing: give it as text, or as base64")
    return found


def _optional(text: str | None, encoded: str | None, what: str) -> bytes | None:
    if text is not None and encoded is not None:
        raise RecordInvalid(f"the {what} is given twice, as text and as base64")
    if encoded is None:
        try:
            return None if text is None else text.encode()
        except UnicodeEncodeError as error:
            raise RecordInvalid(f"the {what} contains an unpaired surrogate; use base64") from error
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RecordInvalid(f"the {what} is not base64: {error}") from error


def write_fetched(body: bytes, offset: int, first_offset: int, end_offset: int) -> bytes:
    """Encode the response to a fetch from `offset` on, with the range of offsets of the partition. Raises Refusal."""
    records, next_offset = write_records(body, offset)
    return msgspec.json.encode(
        {"records": records, "next_offset": next_offset, "first_offset": first_offset, "end_offset": end_offset}
    )


def write_records(body: bytes, offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the records from `offset` on as JSON types, and the next offset to fetch. Raises Refusal.

    Skips batches that their producer encoded incorrectly.
    """
    found: list[dict[str, Any]] = []
    size = 0
    try:
        for part in split(body):
            header = BatchHeader.from_bytes(part)
            if found and size + header.body_bytes > _OPEN_BYTES_MAX:
                break
            size += header.body_bytes
            found += _open(part, offset)
            offset = max(offset, header.next_offset)
    except BatchInvalid as error:
        raise Refusal("unavailable", f"a broker sent records that cannot be read: {error}") from error
    return found, offset


def _open(part: memoryview, offset: int) -> list[dict[str, Any]]:
    try:
        records = list(decode(part))
    except BatchInvalid:
        check(part)  # raises if the batch was damaged in transit
        return []
    return [
        {
            "offset": one.offset,
            "append_time_ms": one.append_time_ms,
            **({} if one.timestamp_ms is None else {"timestamp_ms": one.timestamp_ms}),
            **({} if one.key is None else _text("key", one.key)),
            **_text("value", one.value),
            **(
                {"headers": [{"name": name, **_text("value", value)} for name, value in one.headers]}
                if one.headers
                else {}
            ),
        }
        for one in records
        if one.offset >= offset
    ]


def _text(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
