"""Parser of simple API parameters, from the query string or from a JSON body, for any method. Pure.

A struct declares the parameters of a call. Aliases of their names are accepted, too. An error message has the allowed
names or values.
"""

import re
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from flotilla.limits import TOPIC_NAME_RULE
from flotilla.protocol.errors import Refusal

T = TypeVar("T", bound=msgspec.Struct)

ALIASES = {
    "topic_name": "topic",
    "partition_id": "partition_index",
    "partition_number": "partition_index",
}
_QUERY_BYTES_MAX = 8192
_FIELDS_MAX = 20
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]*)`")
_LOCATION = re.compile(r"^(?P<what>.*?)(?: - at `\$\.(?P<name>[^`]*)`)?$", re.DOTALL)


class Reader:
    """Parses the parameters of a call."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        self._fields = tuple(field.encode_name for field in msgspec.structs.fields(kind))

    def read(self, query: bytes, body: bytes, path: dict[str, str]) -> Any:  # noqa: ANN401 - the struct
        """Parse the parameters. Raises Refusal."""
        if body and not query and not path:
            try:
                return self._decoder.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # aliases or other types: parsed again below
        given = self._rename({**_parse_query(query), **_parse_body(body), **path})
        try:
            return msgspec.convert(given, self._kind, strict=False)
        except msgspec.ValidationError as error:
            raise Refusal("bad_request", self._explain(str(error))) from error

    def _rename(self, given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in given.items():
            known = name if name in self._fields else self._alias(name)
            if known in found and found[known] != value:
                raise Refusal("bad_request", f"'{known}' is given twice, with different values.")
            found[known] = str(value) if known.endswith("_id") and type(value) is int else value
        return found

    def _alias(self, name: str) -> str:
        other = ALIASES.get(name, name)
        if other not in self._fields and other == "topic" and "name" in self._fields:
            return "name"
        return other

    def _explain(self, text: str) -> str:
        unknown, missing = _UNKNOWN.search(text), _MISSING.search(text)
        if unknown is not None:
            known = f"there are: {', '.join(self._fields)}" if self._fields else "it takes none"
            return f"'{unknown['name'][:60]}' is not a parameter of this call; {known}."
        if missing is not None:
            return f"'{missing['name']}' is missing."
        location = _LOCATION.match(text)
        if location is None or location["name"] is None:
            return f"The parameters cannot be read: {text}."
        if "matching regex" in location["what"] and location["name"] in {"name", "topic"}:
            return f"'{location['name']}' is invalid: it must match {TOPIC_NAME_RULE}."
        return f"'{location['name']}' is invalid: {location['what'].replace('`', '')}."


def _parse_query(query: bytes) -> dict[str, Any]:
    if len(query) > _QUERY_BYTES_MAX:
        raise Refusal("bad_request", f"The query has {len(query)} bytes; {_QUERY_BYTES_MAX} is the limit.")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise Refusal("bad_request", f"The query cannot be read: {error}.") from error
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refusal("bad_request", "A parameter is in the query twice.")
    return found


def _parse_body(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("bad_request", f"The body is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise Refusal("bad_request", "The body must be a JSON object with the parameters.")
    return found
