"""Answers calls for people: finds the call, reads its parameters, and writes success and refusals in their one shape.

Plain ASGI: for a single message, a framework's share of the work would be most of it.
"""

import logging
import time
from collections.abc import Iterable
from typing import Any

from flotilla.serving import request_ids
from flotilla.serving.asgi import Gone, Headers, Receive, Scope, Send, content_length, read_body, respond
from flotilla.serving.errors import Refusal, mistake
from flotilla.serving.gate import caller_of, require
from flotilla.serving.params import Reader
from flotilla.serving.people import ANSWER, failure, success, template
from flotilla_manager.api.calls import Call
from flotilla_manager.api.forward import Forward
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import DatabaseAway, Fenced, MetadataError, OutcomeUnknown

logger = logging.getLogger(__name__)


class PeopleEndpoint:
    """All calls for people."""

    def __init__(self, manager: Manager, calls: Iterable[Call], forward: Forward, metrics: Metrics) -> None:
        self._manager = manager
        self._forward = forward
        self._metrics = metrics
        self._bytes_max = 2 * manager.settings.message_bytes_max + (64 << 10)  # base64 and escapes make it larger
        self._by_path: dict[str, dict[str, tuple[Call, Reader]]] = {}
        for call in calls:
            self._by_path.setdefault(call.path, {})[call.method] = (call, Reader(call.params))

    @property
    def paths(self) -> list[str]:
        """The paths without anything to fill in."""
        return [path for path in self._by_path if "{" not in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
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
            with self._manager.lanes.in_flight.hold(0) as held:
                body = await read_body(receive, self._bytes_max, held.add)
                if call.by_writer and not self._manager.writer.is_writer:
                    return await self._forward(scope, body)
                return 200, ANSWER, success(await self._call(call, reader, scope, body, filled))
        except Refusal as refusal:
            return failure(refusal)
        except Gone:
            raise
        except Exception:
            status, headers, answer = failure(mistake())
            if request_ids.current() is None:  # the front has named the request otherwise
                headers.append((request_ids.HEADER, request_ids.made().encode()))
            logger.exception("%s %s failed", scope["method"], path[:200])
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
            raise self._manager.writer.fenced(error) from error
        except MetadataError as error:
            raise away(error) from error

    def _find(self, method: str, path: str) -> tuple[Call, Reader]:
        methods = self._by_path.get(path)
        if methods is None:
            raise Refusal("not_found", f"There is no '{path[:200]}' here; /docs tells what there is.")
        found = methods.get(method)
        if found is None:
            raise Refusal("method_not_allowed", f"'{path[:200]}' takes {' or '.join(methods)}.")
        return found


def check_length(scope: Scope, bytes_max: int) -> None:
    """Refuse a body that is too large before it is read."""
    if (content_length(scope) or 0) > bytes_max:
        raise Refusal("too_large", f"The request has more than {bytes_max} bytes, the limit.")


def away(error: MetadataError) -> Refusal:
    """Tell a client that the database cannot be asked."""
    if isinstance(error, OutcomeUnknown):
        text = "The database went away; what was asked for may have been done or not."
        return Refusal("unavailable", text, in_doubt=True)
    if isinstance(error, DatabaseAway):
        return Refusal("unavailable", "The database does not answer; try again.")
    logger.error("the database refused: %s", error)
    return Refusal("unavailable", "The metadata cannot be used now; try again.")
