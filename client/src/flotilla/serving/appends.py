"""Several batches for several partitions in one request, and how each of them ended: as brokers and managers have it.

The body is a msgpack list of [topic, partition, batch], of the type `application/vnd.flotilla.appends`. Each is
answered for itself: ok, failed, or unknown.
"""

from typing import Annotated, Any

import msgspec

from flotilla.serving.errors import Refusal

APPENDS_TYPE = b"application/vnd.flotilla.appends"
PARTITION_MAX = (1 << 32) - 1
_APPENDS_MAX = 1024
_IN_DOUBT = {"unknown_outcome", "internal"}


class Append(msgspec.Struct, frozen=True, array_like=True):
    """One batch, and where it goes."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
    batch: memoryview


_decoder: msgspec.msgpack.Decoder[list[Append]] = msgspec.msgpack.Decoder(list[Append])


def read_appends(body: bytes) -> list[Append]:
    """Read a request. Raises Refusal."""
    try:
        appends = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal("bad_request", f"the body is no list of [topic, partition, batch]: {error}") from error
    if not 1 <= len(appends) <= _APPENDS_MAX:
        raise Refusal("bad_request", f"there are {len(appends)} appends; from 1 to {_APPENDS_MAX} are taken")
    return appends


def check_batch_size(topic: str, size: int, bytes_max: int | None) -> None:
    """Refuse a batch that is larger than its topic takes."""
    if bytes_max is not None and size > bytes_max:
        text = f"the batch has {size} bytes; topic {topic!r} takes up to {bytes_max}"
        raise Refusal("too_large", text, topic=topic, bytes=size, bytes_max=bytes_max)


def appended(base_offset: int, append_time_ms: int | None) -> dict[str, Any]:
    """Write that a batch is stored. A retry has its offset, but no time."""
    return {"status": "ok", "base_offset": base_offset, "append_time_ms": append_time_ms}


def result(append: Append, answer: dict[str, Any] | Refusal) -> dict[str, Any]:
    """Write how one of several ended."""
    where = {"topic": append.topic, "partition": append.partition}
    if isinstance(answer, Refusal):
        status = "unknown" if answer.code in _IN_DOUBT else "failed"
        return {**where, "status": status, "error": answer.to_dict()}
    return {**where, **answer}
