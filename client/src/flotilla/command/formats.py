r"""How records are written out: as values, as keys and values, as JSON, or by a template. Pure: records in, bytes out.

A template is turned into one pattern of bytes once, and a batch into columns, so that a record costs little more than
its own formatting. Bytes are written as they are; only JSON, which is text, has base64 for what is no text, under a
name that says so, as in the HTTP API.

A template is text with fields in it:

    %t  topic           %k  key, or nothing               %h  headers, as in a=1,b=2
    %p  partition       %v  value                         %%  a percent sign
    %o  offset          %T  time in ms since 1970: the producer's, else when it was stored

and `\n`, `\t`, `\r`, `\0`, `\\` for what is hard to type. There is no newline but those that it has.
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
    """Writes records out."""

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Write a batch, or the first records of it. Raises BatchInvalid if headers are asked for, and damaged."""


def parse_format(text: str, separator: bytes = TAB) -> Format:
    """Find the format that is meant; raises ValueError."""
    if text == "value":
        return Values()
    if text == "json":
        return Json()
    if text == "key-value":
        return Template(b"%b" + separator.replace(b"%", b"%%") + b"%b\n", (_keys, _values))
    if "%" in text:
        return _parse_template(text)
    raise ValueError(f"{text!r} is no format; write {', '.join(NAMES)}, or a template as in '%p %o %k %v\\n'")


@dataclass(frozen=True)
class Values:
    """A value per line: the fast way."""

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Write the values."""
        return b"\n".join([*batch.values[:limit], b""])


@dataclass(frozen=True)
class Template:
    """A pattern, and what is filled into it."""

    pattern: bytes
    columns: tuple[Callable[[ConsumerBatch], Iterable[bytes | int]], ...]

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Fill the pattern for each record."""
        rows = zip(*(column(batch) for column in self.columns), strict=False)  # some columns have no end
        records = len(batch) if limit is None else min(limit, len(batch))
        return b"".join(map(self.pattern.__mod__, islice(rows, records)))


@dataclass(frozen=True)
class Json:
    """A JSON object per line."""

    def write(self, batch: ConsumerBatch, limit: int | None = None) -> bytes:
        """Write the objects. What a record does not have is left out."""
        return _encoder.encode_lines([_for_json(record) for record in islice(batch, limit)])


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
            raise ValueError(f"the format has {match[0]!r}; there are {known}, and \\n \\t \\r \\0 \\\\")
    if not columns:
        raise ValueError(f"the format {text!r} shows nothing of a record; it needs a field, as in '%v\\n'")
    return Template(pattern, tuple(columns))


# -- JSON ---------------------------------------------------------------------------------------------------------


def _for_json(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a ConsumerRecord, of which mypy knows more than islice
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
