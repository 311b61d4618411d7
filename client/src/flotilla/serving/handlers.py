"""Errors of FastAPI's routes, in the one shape that refusals have."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from flotilla.limits import TOPIC_NAME_RULE, TOPIC_NAME_SAID
from flotilla.serving.asgi import NOT_JSON, header, says_json
from flotilla.serving.errors import Refusal, mistake, not_there

_SAID = {f"^{TOPIC_NAME_RULE}$": TOPIC_NAME_SAID}  # rules that people break by chance, in words
_NOT_FOUND, _OTHER_METHODS = 404, 405
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def add_handlers(app: FastAPI) -> None:
    """Answer every error of a route as a refusal."""
    app.add_exception_handler(Refusal, on_refusal)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_mistake)


async def on_refusal(_: Request, error: Exception) -> JSONResponse:
    """Answer with a refusal."""
    if not isinstance(error, Refusal):
        raise error
    return JSONResponse(error.to_dict(), error.status, error.headers)


def describe_invalid(error: Exception) -> str:
    """Say in one sentence what FastAPI found wrong."""
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    return "; ".join(map(_describe, problems)) or "the request is invalid"


def _describe(problem: Mapping[str, Any]) -> str:
    rule = problem.get("ctx", {}).get("pattern")
    return f"{'.'.join(map(str, problem['loc']))}: {_SAID.get(rule, problem['msg'])}"


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    return await on_refusal(
        request, Refusal("bad_request", _describe_unread(request, error) or describe_invalid(error))
    )


def _describe_unread(request: Request, error: Exception) -> str | None:
    """Tell what is the matter if FastAPI has not even tried to read the body, as curl's -d sends it by itself."""
    problems = error.errors() if isinstance(error, RequestValidationError) else ()
    is_unread = any(problem["loc"] == ("body",) and isinstance(problem["input"], bytes) for problem in problems)
    return NOT_JSON if is_unread and not says_json(header(request.scope, b"content-type")) else None


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error.__cause__, Refusal):  # of a body that was too large, when FastAPI read it
        return await on_refusal(request, error.__cause__)
    status = error.status_code if isinstance(error, HTTPException) else 400
    if status in {_NOT_FOUND, _OTHER_METHODS}:
        methods = filter(partial(_takes, request), _METHODS) if status == _OTHER_METHODS else ()
        return await on_refusal(request, not_there(request.url.path, methods))
    return await on_refusal(request, Refusal("bad_request", "the request is invalid"))


def _takes(request: Request, method: str) -> bool:
    """Tell whether there is a route for this path with another method."""
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


async def _on_mistake(request: Request, _: Exception) -> JSONResponse:
    """Answer; FastAPI raises the error again behind this answer, and the front logs it."""
    return await on_refusal(request, mistake())
