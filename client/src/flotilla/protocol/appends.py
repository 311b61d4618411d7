"""Requests with batches for several partitions, and their results. Brokers and managers share it.

The body is a msgpack list of [topic, partition, batch], of the type `application/vnd.flotilla.appends`. Each batch has
its own result: ok, failed or unknown.
"""

from typing import Annotated, Any

import msgspec

from flotilla.protocol.errors import Refusal

APPENDS_TYPE = b"application/vnd.flotilla.appends"
PARTITION_MAX = (1 << 32) - 1
_APPENDS_MAX = 1024
_UNKNOWN_OUTCOME = {"unknown_outcome", "internal"}


class Append(msgspec.Struct, frozen=True, array_like=True):
    """A batch and its partition."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
    batch: memoryview


class AppendResult(msgspec.Struct, frozen=True):
    """A batch that a majority has on disk. The response to a duplicate has no append time."""

    base_offset: int
    append_time_ms: int | None = None


_decoder: msgspec.msgpack.Decoder[list[Append]] = msgspec.msgpack.Decoder(list[Append])


def read_appends(body: bytes) -> list[Append]:
    """Decode the body of a request. Raises Refusal."""
    try:
        appends = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal("bad_request", f"the body is not a list of [topic, partition, batch]: {error}") from error
    if not 1 <= len(appends) <= _APPENDS_MAX:
        raise Refusal("bad_request", f"{len(appends)} appends; a request has from 1 to {_APPENDS_MAX}")
    return appends


def check_batch_size(topic: str, size: int, bytes_max: int | None) -> None:
    """Check the size of a batch against the limit of its topic. Raises Refusal."""
    if bytes_max is not None and size > bytes_max:
        text = f"the batch has {size} bytes; the limit of topic {topic!r} is {bytes_max}"
        raise Refusal("too_large", text, topic=topic, bytes=size, bytes_max=bytes_max)


def appended(base_offset: int, append_time_ms: int | None) -> dict[str, Any]:
    """Return the result of a stored batch. A duplicate has its offset, but no append time."""
    return {"status": "ok", "base_offset": base_offset, "append_time_ms": append_time_ms}


def result(append: Append, outcome: dict[str, Any] | Refusal) -> dict[str, Any]:
    """Return the result of one of several batches."""
    where = {"topic": append.topic, "partition": append.partition}
    if isinstance(outcome, Refusal):
        status = "unknown" if outcome.code in _UNKNOWN_OUTCOME else "failed"
        return {**where, "status": status, "error": outcome.to_dict()}
    return {**where, **outcome}
