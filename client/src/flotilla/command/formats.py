r"""Output formats of records: values, keys and values, JSON, or a template. Pure: records in, bytes out.

A template is compiled once into a bytes pattern, and batches are formatted by column, for speed. Bytes are written
unchanged; JSON has base64 for bytes that are not UTF-8, in fields with the suffix `_base64`, as in the HTTP API.

A template is text with fields:

    %t  topic           %k  key, or nothing               %h  headers, such as a=1,b=2
    %p  partition       %v  value                         %%  percent sign
    %o  offset          %T  timestamp of the producer, or else of the append, in ms since the Unix epoch

and the escapes `\n`, `\t`, `\r`, `\0`, `\\`. No newline is added.
"""

import base64
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, islice, repeat
from typing import Any, Protocol

import msgspec

from flotilla.client.positions import ConsumerBatch
from flotilla.records import Headers

NAMES = ("value", "key-value", "json")
TAB = b"\t"

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_TOKEN = re.compile(r"%(.?)|\\(.?)|[^%\\]+", flags=re.DOTALL)


class Format(Protocol):
    """Formats records."""

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Format a batch, or its first `limit` records. Raises BatchInvalid if headers are needed and damaged."""


def parse_format(text: str, separator: bytes = TAB) -> Format:
    """Parse the name of a format, or a template; raises ValueError."""
    if text == "value":
        return Values()
    if text == "json":
        return Json()
    if text == "key-value":
        return Template(b"%b" + separator.replace(b"%", b"%%") + b"%b\n", (_keys, _values))
    if "%" in text:
        return _parse_template(text)
    raise ValueError(f"{text!r} is not a format: use {', '.join(NAMES)}, or a template such as '%p %o %k %v\\n'")


@dataclass(frozen=True)
class Values:
    """One value per line."""

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Format the values."""
        return b"\n".join([*batch.values[:limit], b""])


@dataclass(frozen=True)
class Template:
    """A bytes pattern, and the columns to fill in."""

    pattern: bytes
    columns: tuple[Callable[[ConsumerBatch], Iterable[bytes | int]], ...]

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Format each record with the pattern."""
        rows = zip(*(column(batch) for column in self.columns), strict=False)  # some columns are infinite
        records = len(batch) if limit is None else min(limit, len(batch))
        return b"".join(map(self.pattern.__mod__, islice(rows, records)))


@dataclass(frozen=True)
class Json:
    """One JSON object per line."""

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Format the objects; fields that a record does not have are omitted."""
        return _encoder.encode_lines([_to_json(record) for record in islice(batch, limit)])


_encoder = msgspec.json.Encoder()


# -- templates ----------------------------------------------------------------------------------------------------


def _topics(batch: ConsumerBatch) -> Iterable[bytes]:
    return repeat(batch.topic.encode())


def _partitions(batch: ConsumerBatch) -> Iterable[int]:
    return repeat(batch.partition)


def _offsets(batch: ConsumerBatch) -> Iterable[int]:
    return count(batch.offset)


def _keys(batch: ConsumerBatch) -> Iterable[bytes]:
    keys = batch.keys
    return repeat(b"") if keys is None else [key or b"" for key in keys]


def _values(batch: ConsumerBatch) -> Iterable[bytes]:
    return batch.values


def _times(batch: ConsumerBatch) -> Iterable[int]:
    times = batch.batch.timestamps_ms
    return repeat(batch.batch.header.append_time_ms) if times is None else times[batch.start :]


def _all_headers(batch: ConsumerBatch) -> Iterable[bytes]:
    headers = batch.batch.headers
    return repeat(b"") if headers is None else map(_write_headers, headers[batch.start :])


def _write_headers(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + value for name, value in headers)


_FIELDS: dict[str, tuple[bytes, Callable[[ConsumerBatch], Iterable[bytes | int]]]] = {
    "t": (b"%b", _topics),
    "p": (b"%d", _partitions),
    "o": (b"%d", _offsets),
    "k": (b"%b", _keys),
    "v": (b"%b", _values),
    "T": (b"%d", _times),
    "h": (b"%b", _all_headers),
}


def _parse_template(text: str) -> Template:
    pattern, columns = b"", []
    for match in _TOKEN.finditer(text):
        field, escape = match.groups()
        if field is not None and field in _FIELDS:
            part, column = _FIELDS[field]
            pattern += part
            columns.append(column)
        elif field == "%":
            pattern += b"%%"
        elif escape is not None and escape in _ESCAPES:
            pattern += _ESCAPES[escape].encode()
        elif field is None and escape is None:
            pattern += match[0].encode(errors="surrogateescape")
        else:
            known = " ".join(f"%{name}" for name in [*_FIELDS, "%"])
            raise ValueError(
                f"unknown field {match[0]!r} in the template; supported: {known}, and \\n \\t \\r \\0 \\\\"
            )
    if not columns:
        raise ValueError(f"template {text!r} has no field, such as %v")
    return Template(pattern, tuple(columns))


# -- JSON ---------------------------------------------------------------------------------------------------------


def _to_json(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a ConsumerRecord, of which mypy knows more than islice
    topic, partition, offset, timestamp_ms, key, value, headers, append_time_ms = record
    found = {"topic": topic, "partition": partition, "offset": offset, "append_time_ms": append_time_ms}
    if timestamp_ms is not None:
        found["timestamp_ms"] = timestamp_ms
    if key is not None:
        _put(found, "key", key)
    _put(found, "value", value)
    if headers:
        found["headers"] = [_put({"name": name}, "value", own) for name, own in headers]
    return found


def _put(found: dict[str, Any], name: str, value: bytes) -> dict[str, Any]:
    try:
        found[name] = value.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = base64.b64encode(value).decode()
    return found
