"""Exceptions of the client: one hierarchy, so that one `except FlotillaError` catches all of them.

FlotillaError
├── ConfigInvalid            an argument violates a rule (also a ValueError)
├── ClientClosed             the client, producer or consumer is closed
├── ClientForked             the client belongs to the parent process
├── ServerUnreachable        no server could handle the request in time
│   └── OutcomeUnknown       the request may have taken effect
├── RecordInvalid            a record is not bytes, or too large (also a ValueError)
├── BufferFull               the producer's buffer is full, and the call must not wait
├── DeliveryFailed           a record was not stored
├── DeliveryUnknown          a record may have been stored
├── DataInvalid              fetched data is damaged
├── TableTooLarge            a table exceeds max_bytes
├── ExtraMissing             an optional library is not installed (also an ImportError)
└── Refused                  a server rejected the request; `code` has the reason (docs/errors.md)
    ├── NotAllowed           a token is missing, invalid, or lacks a scope
    ├── NotFound             a group, token or broker does not exist
    │   └── TopicMissing     a topic or partition does not exist
    ├── TopicExists          a topic with this name exists
    ├── OffsetOutOfRange     the partition does not have this offset
    └── MemberGone           the consumer is no longer a member of its group

Users import them from `flotilla`, so that is the module that tracebacks name.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flotilla.net.verdicts import ErrorResponse

if TYPE_CHECKING:
    from flotilla.client.deliveries import Deliveries

PUBLIC_MODULE = "flotilla"


class FlotillaError(Exception):
    """Base class of all exceptions of the client."""

    __module__ = PUBLIC_MODULE

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            cls.__module__ = PUBLIC_MODULE


def to_flotilla_error(error: BaseException) -> FlotillaError:
    """Return an error of this hierarchy: the error itself, or an internal error that it caused."""
    if isinstance(error, FlotillaError):
        return error
    found = FlotillaError(f"internal error of the client: {error!r}")
    found.__cause__ = error
    return found


class ConfigInvalid(FlotillaError, ValueError):
    """An argument violates a rule; the message names both. No request was sent."""


class ClientClosed(FlotillaError):
    """The client, producer or consumer is closed."""


class ClientForked(FlotillaError):
    """The client belongs to the parent process: connections and threads do not survive a fork."""

    def __init__(self) -> None:
        super().__init__("this client was created before the process forked: create one in each process")


class ServerUnreachable(FlotillaError):
    """No server could handle the request within the time limit."""


class OutcomeUnknown(ServerUnreachable):
    """The response to a request that is not safe to repeat was lost: the request may have taken effect."""


class RecordInvalid(FlotillaError, ValueError):
    """A record violates a rule, which the message names. It was not accepted."""


class BufferFull(FlotillaError):
    """The unacknowledged records reach `buffer_bytes`, and the call must not wait, or waited for `timeout_s`.

    `send_many` may have accepted some of its records: `deliveries` has theirs.
    """

    def __init__(self, message: str, deliveries: "Deliveries | None" = None) -> None:
        super().__init__(message)
        self.deliveries = deliveries


class DeliveryFailed(FlotillaError):
    """A record was not stored, and will not be: it is safe to send it again. The message has the reason."""


class DeliveryUnknown(FlotillaError):
    """A record may have been stored: there was no response within `delivery_s`."""


class DataInvalid(FlotillaError):
    """Fetched data is damaged; the message has the partition and the reason. Reading again fetches it again."""


class TableTooLarge(FlotillaError):
    """The requested records take more than `max_bytes` of memory as a table."""


class ExtraMissing(FlotillaError, ImportError):
    """An optional library is not installed; the message has the command that installs it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed (extra {extra!r} of the client): pip install {library}")


class Refused(FlotillaError):
    """A server rejected the request and changed nothing. `code` and `details` have the reason."""

    def __init__(self, message: str, code: str, details: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class NotAllowed(Refused):
    """The token is missing, invalid, or lacks a scope."""


class NotFound(Refused):
    """The resource that the message names does not exist."""


class TopicMissing(NotFound):
    """The topic or the partition does not exist."""


class TopicExists(Refused):
    """A topic with this name already exists."""


class OffsetOutOfRange(Refused):
    """The partition does not have this offset: it was deleted, or is beyond the end."""

    @property
    def first_offset(self) -> int:
        """The offset of the first record that can be read."""
        return int(self.details.get("first_offset", 0))

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return int(self.details.get("next_offset", 0))


class MemberGone(Refused):
    """The group removed this member, or another consumer uses its id; its partitions belong to other members."""


_KINDS: dict[str, type[Refused]] = {
    "unauthorized": NotAllowed,
    "forbidden": NotAllowed,
    "not_found": TopicMissing,
    "unknown_partition": TopicMissing,
    "exists": TopicExists,
    "offset_out_of_range": OffsetOutOfRange,
    "unknown_member": MemberGone,
    "stale_generation": MemberGone,
}


_OTHERS = ("broker", "group", "replica", "token")  # resources other than topics and paths below them
# The simple API of 0.2 sends no codes; the status distinguishes these two.
_CODES = {401: "unauthorized", 403: "forbidden"}
UNKNOWN = "unknown"  # stands in for the code of a server that sends none


def refused(response: ErrorResponse, status: int) -> Refused:
    """Build the exception for the error response of a server."""
    code = response.code or _CODES.get(status, UNKNOWN)
    message = response.message or f"the server responded with status {status} and without a readable message"
    kind = _KINDS.get(code, Refused)
    if code == "not_found" and response.details.get("resource") in _OTHERS:
        kind = NotFound
    return kind(message, code, dict(response.details))
