"""Queries, headers and body limits of HTTP requests, for servers and the fake of `flotilla.testing`. Pure."""

import re
from functools import lru_cache
from urllib.parse import parse_qsl

from flotilla.limits import INT64_MAX
from flotilla.protocol.errors import Refusal

Headers = list[tuple[bytes, bytes]]
Buffer = bytes | bytearray | memoryview

JSON = (b"content-type", b"application/json")
NOT_JSON = "body: content-type must be application/json"
_JSON_TYPE = re.compile(rb"application/([^;]+\+)?json\s*(;|$)", re.IGNORECASE)
_QUERY_BYTES_MAX = 4096


@lru_cache(maxsize=4096)
def parse_query(query: bytes) -> dict[str, str]:
    """Parse a query string. Cached: clients repeat the same ones. Raises Refusal."""
    if len(query) > _QUERY_BYTES_MAX:
        raise Refusal("bad_request", f"the query has {len(query)} bytes; {_QUERY_BYTES_MAX} is the limit")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), max_num_fields=20)
    except ValueError as error:
        raise Refusal("bad_request", f"the query cannot be read: {error}") from error
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refusal("bad_request", f"{_doubled(pairs)[:40]!r} is in the query twice; give it once")
    return found


def _doubled(pairs: list[tuple[str, str]]) -> str:
    names = [name for name, _ in pairs]
    return next(name for name in names if names.count(name) > 1)


def is_json(content_type: bytes | None) -> bool:
    """Return whether a content type is JSON, by the rule of FastAPI."""
    return content_type is not None and _JSON_TYPE.match(content_type) is not None


def number(query: dict[str, str], name: str, default: int | None, largest: int = INT64_MAX) -> int:
    """Return a number from a query; without a default it is required. Raises Refusal."""
    text = query.get(name)
    if text is None:
        if default is None:
            raise Refusal("bad_request", f"{name} is missing")
        return default
    if not text.isdecimal() or not text.isascii() or int(text) > largest:
        raise Refusal("bad_request", f"{name} is {text[:40]!r}; it must be a number from 0 to {largest}")
    return int(text)


def check_size(size: int, bytes_max: int) -> None:
    """Raise Refusal if a body is too large."""
    if size > bytes_max:
        raise Refusal("too_large", f"the request has more than {bytes_max} bytes, the limit", bytes_max=bytes_max)
