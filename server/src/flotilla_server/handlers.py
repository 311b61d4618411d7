"""Error responses of FastAPI routes, in the format of all errors."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from flotilla.limits import TOPIC_NAME_HELP, TOPIC_NAME_RULE
from flotilla.protocol.asgi import NOT_JSON, is_json
from flotilla.protocol.errors import Refusal, internal_error, unknown_path
from flotilla_server.asgi import header

_NAME_PATTERN = f"^{TOPIC_NAME_RULE}$"  # of topics and groups
_SHOWN_LENGTH_MAX = 60  # of an invalid value in a message
_NOT_FOUND, _OTHER_METHODS = 404, 405
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def add_handlers(app: FastAPI) -> None:
    """Return every error of a route in this format."""
    app.add_exception_handler(Refusal, on_refusal)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_mistake)


async def on_refusal(_: Request, error: Exception) -> JSONResponse:
    """Return an error response."""
    if not isinstance(error, Refusal):
        raise error
    return JSONResponse(error.to_dict(), error.status, error.headers)


def describe_invalid(error: Exception) -> str:
    """Describe validation errors of FastAPI in one sentence."""
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    return "; ".join(map(_describe, problems)) or "invalid request"


def _describe(problem: Mapping[str, Any]) -> str:
    where = ".".join(map(str, problem["loc"]))
    if problem.get("ctx", {}).get("pattern") == _NAME_PATTERN:
        return f"{where} {str(problem['input'])[:_SHOWN_LENGTH_MAX]!r}: {TOPIC_NAME_HELP}"
    return f"{where}: {problem['msg']}"


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    return await on_refusal(
        request, Refusal("bad_request", _describe_unread(request, error) or describe_invalid(error))
    )


def _describe_unread(request: Request, error: Exception) -> str | None:
    """Describe a body that FastAPI did not parse because of its content type, such as the default of `curl -d`."""
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    is_unread = any(problem["loc"] == ("body",) and isinstance(problem["input"], bytes) for problem in problems)
    return NOT_JSON if is_unread and not is_json(header(request.scope, b"content-type")) else None


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error.__cause__, Refusal):  # a too large body, raised while FastAPI read it
        return await on_refusal(request, error.__cause__)
    status = error.status_code if isinstance(error, HTTPException) else 400
    if status in {_NOT_FOUND, _OTHER_METHODS}:
        methods = filter(partial(_takes, request), _METHODS) if status == _OTHER_METHODS else ()
        return await on_refusal(request, unknown_path(request.url.path, methods))
    return await on_refusal(request, Refusal("bad_request", "invalid request"))


def _takes(request: Request, method: str) -> bool:
    """Whether the path has a route for this method."""
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


async def _on_mistake(request: Request, _: Exception) -> JSONResponse:
    """Return `internal`; FastAPI raises the error again afterwards, and the application logs it."""
    return await on_refusal(request, internal_error())
