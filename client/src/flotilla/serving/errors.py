"""Refusals: one JSON shape, with a code for programs (see `flotilla.net.codes`) and a sentence for people."""

from collections.abc import Iterable
from typing import Any

import msgspec

from flotilla.net.codes import CODES

STATUS_OF = {code: known.status for code, known in CODES.items()}
RETRYABLE = {code for code, status in STATUS_OF.items() if status in {421, 429, 503, 504}}
RETRY_AFTER_S = 1  # where nothing better is known
_UNAUTHORIZED = 401
_SHOWN_MAX = 200  # of a path that is not there


class Refusal(Exception):
    """A request that is not carried out. Nothing was changed, unless the code is `unknown_outcome` or `internal`.

    A detail named `retry_after_s` says when to try again, where more is known about it than that it may pass.
    """

    def __init__(self, code: str, message: str, **details: Any) -> None:  # noqa: ANN401 - any JSON
        super().__init__(message)
        self.code = code
        self.details = details

    @classmethod
    def is_known(cls, code: str) -> bool:
        """Tell whether a code is in the table."""
        return code in STATUS_OF

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS_OF[self.code]

    @property
    def retry_after_s(self) -> int | None:
        """When to try again, if that makes sense."""
        if self.status not in {429, 503}:
            return None
        given = self.details.get("retry_after_s")
        return given if type(given) is int and given > 0 else RETRY_AFTER_S

    @property
    def headers(self) -> dict[str, str]:
        """The headers that an answer with this refusal has besides its content type."""
        found = {}
        if self.status == _UNAUTHORIZED:
            found["www-authenticate"] = "Bearer"
        if self.retry_after_s is not None:
            found["retry-after"] = str(self.retry_after_s)
        return found

    @property
    def is_retryable(self) -> bool:
        """Whether it may pass by itself."""
        return self.code in RETRYABLE

    def to_dict(self) -> dict[str, Any]:
        """The refusal as JSON has it."""
        return {
            "code": self.code,
            "message": str(self),
            "details": self.details,
            "retryable": self.is_retryable,
        }

    def to_bytes(self) -> bytes:
        """The body."""
        return msgspec.json.encode(self.to_dict())


def mistake() -> Refusal:
    """Admit a mistake of ours, without telling strangers more about it than where to look."""
    return Refusal("internal", "the server made a mistake; its log tells which, by the request id")


def not_there(path: str, methods: Iterable[str]) -> Refusal:
    """Tell that a path is not there, or which methods it takes instead."""
    shown, taken = path[:_SHOWN_MAX], " or ".join(sorted(methods))
    if taken:
        return Refusal("method_not_allowed", f"'{shown}' takes {taken}")
    return Refusal("not_found", f"there is no '{shown}' here; /docs tells what there is")
