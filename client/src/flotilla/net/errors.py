"""Errors of requests without a response.

    ConnectionError
    └── Disconnected           the connection failed, or ended before the response was complete
        ├── InvalidResponse    the response is not HTTP, or too large
        └── TimedOut           timeout (also a TimeoutError)

`sent` is whether a part of the request may have reached the server. If not, it is safe to send it to another server;
otherwise its outcome is unknown.
"""


class Disconnected(ConnectionError):
    """There is no response. `sent` is False only if certainly nothing of the request was sent."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class InvalidResponse(Disconnected):
    """The response is malformed or too large; the connection was closed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True)


class TimedOut(Disconnected, TimeoutError):
    """The response did not arrive in time; the connection was closed."""
