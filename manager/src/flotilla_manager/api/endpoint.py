"""ASGI endpoint of the simple API: finds the call, parses parameters, and encodes success and errors.

Plain ASGI, because a framework would take most of the time of a single message.
"""

import logging
import time
from collections.abc import Iterable
from typing import Any

from flotilla.protocol.asgi import Headers
from flotilla.protocol.errors import Refusal, internal_error, not_found
from flotilla.protocol.params import Reader
from flotilla.protocol.simple import RESPONSE_HEADERS, failure, success, template
from flotilla_manager.api.calls import Call
from flotilla_manager.api.forward import Forward
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import DatabaseUnavailable, Fenced, MetadataError, OutcomeUnknown
from flotilla_server import request_ids
from flotilla_server.asgi import ClientDisconnected, Receive, Scope, Send, content_length, read_body, respond
from flotilla_server.authorization import caller_of, require

logger = logging.getLogger(__name__)


class SimpleEndpoint:
    """Endpoint of all calls of the simple API."""

    def __init__(self, manager: Manager, calls: Iterable[Call], forward: Forward, metrics: Metrics) -> None:
        self._manager = manager
        self._forward = forward
        self._metrics = metrics
        self._bytes_max = 2 * manager.settings.message_bytes_max + (64 << 10)  # room for base64 and escapes
        self._by_path: dict[str, dict[str, tuple[Call, Reader]]] = {}
        for call in calls:
            self._by_path.setdefault(call.path, {})[call.method] = (call, Reader(call.params))

    @property
    def paths(self) -> list[str]:
        """Paths without parameters."""
        return [path for path in self._by_path if "{" not in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        began = time.perf_counter()
        path, filled = template(scope["path"])
        status, headers, body = await self._answer(scope, receive, path, filled)
        await respond(send, status, headers, [body])
        self._metrics.answered(path if path in self._by_path else "unknown", status, time.perf_counter() - began)

    async def _answer(
        self, scope: Scope, receive: Receive, path: str, filled: dict[str, str]
    ) -> tuple[int, Headers, bytes]:
        try:
            call, reader = self._find(scope["method"], path)
            check_length(scope, self._bytes_max)
            with self._manager.batchers.in_flight.hold(0) as held:
                body = await read_body(receive, self._bytes_max, held.add)
                if call.by_writer and not self._manager.writer.is_writer:
                    return await self._forward(scope, body)
                return 200, RESPONSE_HEADERS, success(await self._call(call, reader, scope, body, filled))
        except Refusal as refusal:
            return failure(refusal)
        except ClientDisconnected:
            raise
        except Exception:
            status, headers, answer = failure(internal_error())
            if request_ids.current() is None:  # otherwise the front end has set the header
                headers.append((request_ids.HEADER, request_ids.generate().encode()))
            logger.exception("request failed method=%s path=%s", scope["method"], path[:200])
            return status, headers, answer

    async def _call(
        self, call: Call, reader: Reader, scope: Scope, body: bytes, filled: dict[str, str]
    ) -> dict[str, Any]:
        params = reader.read(scope["query_string"], body, filled)
        if call.topic is not None:
            require(scope, call.scope, getattr(params, call.topic))
        try:
            return await (call.answer(params, caller_of(scope)) if call.for_caller else call.answer(params))
        except Fenced as error:
            raise self._manager.writer.give_up_role(error) from error
        except MetadataError as error:
            raise database_refusal(error) from error

    def _find(self, method: str, path: str) -> tuple[Call, Reader]:
        methods = self._by_path.get(path)
        if methods is None:
            raise not_found("path", f"Unknown path '{path[:200]}'; see /docs.")
        found = methods.get(method)
        if found is None:
            raise Refusal("method_not_allowed", f"'{path[:200]}': method not allowed, use {' or '.join(methods)}.")
        return found


def check_length(scope: Scope, bytes_max: int) -> None:
    """Reject a body above the limit before it is read."""
    if (content_length(scope) or 0) > bytes_max:
        raise Refusal("too_large", f"The request body exceeds the limit of {bytes_max} bytes.")


def database_refusal(error: MetadataError) -> Refusal:
    """Translate a database error into an error response."""
    if isinstance(error, OutcomeUnknown):
        text = "The connection to the database was lost; the request may have taken effect."
        return Refusal("unavailable", text, in_doubt=True)
    if isinstance(error, DatabaseUnavailable):
        return Refusal("unavailable", "The database is unavailable; try again.")
    logger.error("database request failed error=%r", str(error))
    return Refusal("unavailable", "The metadata is unavailable; try again.")
