"""Refusals: one JSON shape, with a code for programs and a sentence for people.

The table holds the codes of all servers, so that a code means the same wherever it comes from.
"""

from typing import Any

import msgspec

STATUS_OF = {
    "bad_request": 400,
    "bad_batch": 400,
    "offset_out_of_range": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_partition": 404,
    "method_not_allowed": 405,
    "stale_writer": 409,
    "sealed": 409,
    "sequence_reused": 409,
    "sequence_gap": 409,
    "sequence_overlap": 409,
    "epoch_stale": 409,
    "unknown_producer": 409,
    "conflict": 409,
    "exists": 409,
    "too_large": 413,
    "not_leader": 421,
    "busy": 429,
    "internal": 500,
    "closed": 503,
    "disk_full": 503,
    "no_leader": 503,
    "too_many_connections": 503,
    "not_settled": 503,
    "broken": 503,
    "unavailable": 503,
    "unknown_outcome": 504,
}
RETRYABLE = {code for code, status in STATUS_OF.items() if status in {421, 429, 503, 504}}


class Refusal(Exception):
    """A request that is not carried out. Nothing was changed, unless the code is `unknown_outcome` or `internal`."""

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
        return 1 if self.status in {429, 503} else None

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
