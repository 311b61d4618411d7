"""Finds what answers a request, and puts answers and refusals into the shapes that they have.

A table says which function answers which method and path; what stands in braces is filled in by one piece of the path.
Below /v1 a refusal has the shape for programs, and elsewhere that for people.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeVar

import msgspec

from flotilla.serving import shapes
from flotilla.serving.asgi import JSON, NOT_JSON, Headers, says_json
from flotilla.serving.errors import Refusal, mistake, not_there
from flotilla.serving.params import Reader
from flotilla.serving.people import ANSWER, failure, success, template
from flotilla.testing.http import Answer, Request

logger = logging.getLogger(__name__)

T = TypeVar("T")
Filled = Mapping[str, str]
Told = Answer | Mapping[str, Any]  # JSON unless it says otherwise
Call = Callable[[Request, Filled], Told | Awaitable[Told]]
Table = Mapping[tuple[str, str], Call]  # by method and path

NUMBER_MAX = (1 << 63) - 1
_PROGRAMS = "/v1/"
_BATCHES = {"/v1/append": "append takes POST", "/v1/fetch": "fetch takes GET"}
_OPEN, _CLOSE = "{", "}"


class Calls:
    """All calls of a fake."""

    def __init__(self, *tables: Table) -> None:
        self._fixed: dict[str, dict[str, Call]] = {}
        self._filled: dict[tuple[str, ...], dict[str, Call]] = {}
        for (method, path), call in (item for table in tables for item in table.items()):
            row = self._filled.setdefault(tuple(path.split("/")), {}) if _OPEN in path else self._row(path)
            row[method] = call

    def _row(self, path: str) -> dict[str, Call]:
        return self._fixed.setdefault(path, {})

    async def answer(self, request: Request) -> Answer:
        """Answer a request; whatever goes wrong is an answer, too."""
        try:
            call, filled = self._find(request)
            told = call(request, filled)
            found = await told if isawaitable(told) else told
            return found if isinstance(found, Answer) else to_json(found)
        except Refusal as refusal:
            return refuse(request.path, refusal)
        except Exception:
            logger.exception("%s %s failed in the fake", request.method, request.path[:200])
            return refuse(request.path, mistake())

    def _find(self, request: Request) -> tuple[Call, Filled]:
        fixed = self._fixed.get(request.path)
        methods, filled = self._fill(request.path) if fixed is None else (fixed, {})
        call = methods.get(request.method)
        if call is None:
            raise _unknown(request, list(methods))
        return call, filled

    def _fill(self, path: str) -> tuple[dict[str, Call], dict[str, str]]:
        pieces = path.split("/")
        for pattern, methods in self._filled.items():
            if len(pattern) == len(pieces) and all(
                piece if part.startswith(_OPEN) else part == piece for part, piece in zip(pattern, pieces, strict=True)
            ):
                places = zip(pattern, pieces, strict=True)
                return methods, {part.strip(_OPEN + _CLOSE): piece for part, piece in places if part.startswith(_OPEN)}
        return {}, {}


def _unknown(request: Request, methods: list[str]) -> Refusal:
    if request.path in _BATCHES:
        return Refusal("method_not_allowed", _BATCHES[request.path])
    if request.path.startswith(_PROGRAMS):
        return not_there(request.path, methods)
    row, _ = template(request.path)
    if methods:
        return Refusal("method_not_allowed", f"'{row[:200]}' takes {' or '.join(methods)}.")
    return Refusal("not_found", f"There is no '{row[:200]}' here; /docs tells what there is.")


def to_json(found: Mapping[str, Any], headers: Headers | None = None) -> Answer:
    """Write a success."""
    return Answer(200, [JSON] if headers is None else headers, [msgspec.json.encode(found)])


def refuse(path: str, refusal: Refusal) -> Answer:
    """Write a refusal in the shape that a path has."""
    if not path.startswith(_PROGRAMS):
        status, headers, body = failure(refusal)
        return Answer(status, headers, [body])
    headers = [JSON, *((name.encode(), value.encode()) for name, value in refusal.headers.items())]
    return Answer(refusal.status, headers, [refusal.to_bytes()])


def read_as(kind: type[T], request: Request) -> T:
    """Read a JSON body as what it should be. Raises Refusal, also if the request does not say that it is JSON."""
    if not says_json(request.headers.get(b"content-type")):
        raise Refusal("bad_request", NOT_JSON)
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("bad_request", f"body: {error}") from error


def for_people(kind: type[shapes.Params], act: Callable[[Any], dict[str, Any]]) -> Call:
    """Make a call for people: it reads its parameters wherever they are, and says that it succeeded."""
    reader = Reader(kind)

    def call(request: Request, filled: Filled) -> Answer:
        params = reader.read(request.query, request.body, dict(filled))
        return Answer(200, ANSWER, [success(act(params))])

    return call
