"""Why a request has no answer.

    ConnectionError
    └── Disconnected         the connection could not be made, or ended before the answer was there
        ├── AnswerInvalid    what came is no HTTP, or too large
        └── TimedOut         it took too long (a TimeoutError, too)

All of them tell whether anything of the request may have reached the server: if not, it is safe to try elsewhere; if
so, whether the request was carried out is unknown.
"""


class Disconnected(ConnectionError):
    """There is no answer. `sent` is False only if surely nothing of the request has left."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class AnswerInvalid(Disconnected):
    """The answer is malformed or too large; the connection was closed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=True)


class TimedOut(Disconnected, TimeoutError):
    """The answer did not come in time; the connection was closed."""
