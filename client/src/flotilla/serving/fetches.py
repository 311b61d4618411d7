"""What a fetch asks for, and the headers of its answer: as brokers have it, and `flotilla.testing`. Pure."""

from flotilla.serving.appends import PARTITION_MAX
from flotilla.serving.asgi import Headers, number, parse_query
from flotilla.serving.errors import Refusal

BYTES_DEFAULT = 1 << 20
_PARAMETERS = {"topic", "partition", "offset", "timestamp_ms", "max_bytes", "wait_ms", "replica"}


def read_query(query_string: bytes) -> dict[str, str]:
    """Read what is asked for, and refuse what would be ignored silently. Raises Refusal."""
    query = parse_query(query_string)
    unknown = sorted(query.keys() - _PARAMETERS)
    if unknown:
        raise Refusal("bad_request", f"{unknown[0][:40]!r} is not known; there are {', '.join(sorted(_PARAMETERS))}")
    if "offset" in query and "timestamp_ms" in query:
        raise Refusal("bad_request", "there is an offset and a timestamp_ms; one of them says where to begin")
    if query.get("replica", "leader") not in {"leader", "any"}:
        raise Refusal("bad_request", f"replica is {query['replica'][:40]!r}; it must be leader or any")
    return query


def place(query: dict[str, str]) -> tuple[str, int]:
    """Tell which partition is meant, by its topic and its number. Raises Refusal."""
    return query.get("topic", ""), number(query, "partition", None, PARTITION_MAX)


def headers(offset: int, first_offset: int, next_offset: int) -> Headers:
    """Write the headers of an answer that begins at `offset`, of a partition with these ends."""
    return [
        (b"content-type", b"application/vnd.flotilla.batch"),
        (b"cache-control", b"no-store"),
        (b"flotilla-offset", str(offset).encode()),
        (b"flotilla-first-offset", str(first_offset).encode()),
        (b"flotilla-next-offset", str(next_offset).encode()),
    ]
