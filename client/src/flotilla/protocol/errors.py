"""Refusals: error responses in JSON, with a code (see `flotilla.net.codes`) and a message."""

from collections.abc import Iterable
from typing import Any

import msgspec

from flotilla.net.codes import CODES, Resource

STATUS_OF = {code: known.status for code, known in CODES.items()}
RETRYABLE = {code for code, status in STATUS_OF.items() if status in {421, 429, 503, 504}}
RETRY_AFTER_S = 1  # default
_UNAUTHORIZED = 401
_SHOWN_MAX = 200  # characters of an unknown path


class Refusal(Exception):
    """A rejected request. It had no effect, unless the code is `unknown_outcome` or `internal`.

    The detail `retry_after_s` sets `Retry-After`, if more than the default is known.
    """

    def __init__(self, code: str, message: str, **details: Any) -> None:  # noqa: ANN401 - any JSON
        super().__init__(message)
        self.code = code
        self.details = details

    @classmethod
    def is_known(cls, code: str) -> bool:
        """Return whether a code is defined."""
        return code in STATUS_OF

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS_OF[self.code]

    @property
    def retry_after_s(self) -> int | None:
        """Seconds until a retry; None if the status has no `Retry-After`."""
        if self.status not in {429, 503}:
            return None
        given = self.details.get("retry_after_s")
        return given if type(given) is int and given > 0 else RETRY_AFTER_S

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response, except for the content type."""
        found = {}
        if self.status == _UNAUTHORIZED:
            found["www-authenticate"] = "Bearer"
        if self.retry_after_s is not None:
            found["retry-after"] = str(self.retry_after_s)
        return found

    @property
    def is_retryable(self) -> bool:
        """Whether a retry may succeed."""
        return self.code in RETRYABLE

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        return {
            "code": self.code,
            "message": str(self),
            "details": self.details,
            "retryable": self.is_retryable,
        }

    def to_bytes(self) -> bytes:
        """Encode the body of the response."""
        return msgspec.json.encode(self.to_dict())


def internal_error() -> Refusal:
    """Return the refusal after an internal error. Details are only in the server log."""
    return Refusal("internal", "internal error; see the server log for the request id in x-request-id")


def unknown_path(path: str, methods: Iterable[str]) -> Refusal:
    """Return the refusal of an unknown path, or of a method that the path does not accept."""
    shown, taken = path[:_SHOWN_MAX], " or ".join(sorted(methods))
    if taken:
        return Refusal("method_not_allowed", f"'{shown}': method not allowed, use {taken}")
    return not_found("path", f"path '{shown}' does not exist; see /docs")


def not_found(resource: Resource, message: str) -> Refusal:
    """Return the refusal of a request for a missing resource. Clients check `resource`, never the message."""
    return Refusal("not_found", message, resource=resource)
