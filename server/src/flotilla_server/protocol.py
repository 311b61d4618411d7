"""uvicorn's HTTP protocol, with limits on the size of headers and on connections."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REFUSED_CONNECTIONS_MAX = 64  # above the limit for clients, for error responses and health checks
HEAD_BYTES_MAX = 320 << 10  # of request line and headers, and of data in the same packet


class LimitedProtocol(HttpToolsProtocol):
    """Aborts connections with too large headers, and connections far above the limit."""

    def __init__(self, *arguments: Any, connections_max: int, **options: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        super().__init__(*arguments, **options)
        self._connections_max = connections_max
        self._head_bytes = 0
        self._in_body = False

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        """Abort connections above the limit for error responses."""
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count bytes before the end of the headers."""
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.abort()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The headers are complete."""
        self._in_body, self._head_bytes = True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._in_body = False
        super().on_message_complete()
