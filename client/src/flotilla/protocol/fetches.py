"""Parameters of a fetch and headers of its response, for brokers and the fake of `flotilla.testing`. Pure."""

from flotilla.protocol.appends import PARTITION_MAX
from flotilla.protocol.asgi import Headers, number, parse_query
from flotilla.protocol.errors import Refusal

BYTES_DEFAULT = 1 << 20
_PARAMETERS = {"topic", "partition", "offset", "timestamp_ms", "max_bytes", "wait_ms", "replica"}


def read_query(query_string: bytes) -> dict[str, str]:
    """Parse the query. Raises Refusal, also for unknown parameters, which would be ignored silently."""
    query = parse_query(query_string)
    unknown = sorted(query.keys() - _PARAMETERS)
    if unknown:
        raise Refusal("bad_request", f"unknown parameter {unknown[0][:40]!r}; use {', '.join(sorted(_PARAMETERS))}")
    if "offset" in query and "timestamp_ms" in query:
        raise Refusal("bad_request", "offset and timestamp_ms are mutually exclusive")
    if query.get("replica", "leader") not in {"leader", "any"}:
        raise Refusal("bad_request", f"replica is {query['replica'][:40]!r}; it must be leader or any")
    return query


def partition(query: dict[str, str]) -> tuple[str, int]:
    """Return the topic and the number of the partition. Raises Refusal."""
    return query.get("topic", ""), number(query, "partition", None, PARTITION_MAX)


def headers(offset: int, first_offset: int, next_offset: int) -> Headers:
    """Return the headers of a response that starts at `offset`, with the first and next offset of the partition."""
    return [
        (b"content-type", b"application/vnd.flotilla.batch"),
        (b"cache-control", b"no-store"),
        (b"flotilla-offset", str(offset).encode()),
        (b"flotilla-first-offset", str(first_offset).encode()),
        (b"flotilla-next-offset", str(next_offset).encode()),
    ]
