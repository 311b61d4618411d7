"""Routes requests of the fake to handlers, and formats responses and errors.

Routes map a method and a path template to a handler; a name in braces matches one segment of the path. Errors have the
format of the v1 API below /v1, and that of the simple API elsewhere.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeVar

import msgspec

from flotilla.protocol import simple_params
from flotilla.protocol.asgi import JSON, NOT_JSON, Headers, is_json
from flotilla.protocol.errors import Refusal, internal_error, not_found, unknown_path
from flotilla.protocol.params import Reader
from flotilla.protocol.simple import RESPONSE_HEADERS, failure, success, template
from flotilla.testing.http import Request, Response

logger = logging.getLogger(__name__)

T = TypeVar("T")
PathParams = Mapping[str, str]
Result = Response | Mapping[str, Any]  # a mapping is sent as JSON
Handler = Callable[[Request, PathParams], Result | Awaitable[Result]]
Routes = Mapping[tuple[str, str], Handler]  # by method and path

_V1 = "/v1/"
_BATCHES = {"/v1/append": "append: method not allowed, use POST", "/v1/fetch": "fetch: method not allowed, use GET"}
_OPEN, _CLOSE = "{", "}"


class Router:
    """Routes requests to handlers."""

    def __init__(self, *routes: Routes) -> None:
        self._fixed: dict[str, dict[str, Handler]] = {}
        self._templates: dict[tuple[str, ...], dict[str, Handler]] = {}
        for (method, path), handler in (item for one in routes for item in one.items()):
            row = self._templates.setdefault(tuple(path.split("/")), {}) if _OPEN in path else self._row(path)
            row[method] = handler

    def _row(self, path: str) -> dict[str, Handler]:
        return self._fixed.setdefault(path, {})

    async def handle(self, request: Request) -> Response:
        """Handle a request; errors become error responses."""
        try:
            handler, path_params = self._find(request)
            returned = handler(request, path_params)
            result = await returned if isawaitable(returned) else returned
            return result if isinstance(result, Response) else to_json(result)
        except Refusal as refusal:
            return refuse(request.path, refusal)
        except Exception:
            logger.exception("%s %s failed in the fake", request.method, request.path[:200])
            return refuse(request.path, internal_error())

    def _find(self, request: Request) -> tuple[Handler, PathParams]:
        fixed = self._fixed.get(request.path)
        methods, path_params = self._match(request.path) if fixed is None else (fixed, {})
        handler = methods.get(request.method)
        if handler is None:
            raise _unknown(request, list(methods))
        return handler, path_params

    def _match(self, path: str) -> tuple[dict[str, Handler], dict[str, str]]:
        segments = path.split("/")
        for pattern, methods in self._templates.items():
            if len(pattern) == len(segments) and all(
                segment if part.startswith(_OPEN) else part == segment
                for part, segment in zip(pattern, segments, strict=True)
            ):
                pairs = zip(pattern, segments, strict=True)
                return methods, {
                    part.strip(_OPEN + _CLOSE): segment for part, segment in pairs if part.startswith(_OPEN)
                }
        return {}, {}


def _unknown(request: Request, methods: list[str]) -> Refusal:
    if request.path in _BATCHES:
        return Refusal("method_not_allowed", _BATCHES[request.path])
    if request.path.startswith(_V1):
        return unknown_path(request.path, methods)
    row, _ = template(request.path)
    if methods:
        return Refusal("method_not_allowed", f"'{row[:200]}': method not allowed, use {' or '.join(methods)}.")
    return not_found("path", f"Unknown path '{row[:200]}'; see /docs.")


def to_json(found: Mapping[str, Any], headers: Headers | None = None) -> Response:
    """Make a successful response with a JSON body."""
    return Response(200, [JSON] if headers is None else headers, [msgspec.json.encode(found)])


def refuse(path: str, refusal: Refusal) -> Response:
    """Make an error response in the format of the API that the path belongs to."""
    if not path.startswith(_V1):
        status, headers, body = failure(refusal)
        return Response(status, headers, [body])
    headers = [JSON, *((name.encode(), value.encode()) for name, value in refusal.headers.items())]
    return Response(refusal.status, headers, [refusal.to_bytes()])


def read_as(kind: type[T], request: Request) -> T:
    """Decode a JSON body. Raises Refusal if it is invalid, or has another content type."""
    if not is_json(request.headers.get(b"content-type")):
        raise Refusal("bad_request", NOT_JSON)
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("bad_request", f"body: {error}") from error


def simple_handler(kind: type[simple_params.Params], act: Callable[[Any], dict[str, Any]]) -> Handler:
    """Make a handler of the simple API: it reads the parameters, and returns `act` of them as a success."""
    reader = Reader(kind)

    def handle(request: Request, path_params: PathParams) -> Response:
        params = reader.read(request.query, request.body, dict(path_params))
        return Response(200, RESPONSE_HEADERS, [success(act(params))])

    return handle
