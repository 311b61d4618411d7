"""The HTTP server's protocol, with a limit that uvicorn's lacks: on what comes before a body."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REFUSED_CONNECTIONS_MAX = 64  # beyond the limit for clients, so that they and health checks get an answer
HEAD_BYTES_MAX = 320 << 10  # of request line and headers, and of what arrives together with their end


class LimitedProtocol(HttpToolsProtocol):
    """Hangs up on a client whose headers do not end, and on clients that are far too many."""

    def __init__(self, *arguments: Any, connections_max: int, **options: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        super().__init__(*arguments, **options)
        self._connections_max = connections_max
        self._head_bytes = 0
        self._in_body = False

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        """Refuse connections beyond what even refusals are answered to."""
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count what arrives before the end of the headers."""
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.abort()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The headers are whole."""
        self._in_body, self._head_bytes = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next request begins."""
        self._in_body = False
        super().on_message_complete()
