"""What can go wrong for a client: one tree, so that one `except FlotillaError` catches everything of ours.

FlotillaError
├── ConfigInvalid            an option breaks a rule (a ValueError, too)
├── ClientClosed             the client, producer or consumer was closed
├── ClientForked             the client was made before a fork: make one in each process
├── ServerUnreachable        nobody answers
│   └── OutcomeUnknown       nobody knows whether what was asked for was done
├── RecordInvalid            a record breaks a rule: it is no bytes, or too large (a ValueError, too)
├── BufferFull               there is no room for more records at the moment, and one was not to wait
├── DeliveryFailed           a record was not stored, and will not be
├── DeliveryUnknown          nobody knows whether a record was stored
├── DataInvalid              what was fetched is damaged
├── TableTooLarge            a table would take more memory than was allowed
├── ExtraMissing             a library that is optional is not installed (an ImportError, too)
└── Refused                  a server said no; `code` says why (docs/errors.md)
    ├── NotAllowed           a token is missing, is not valid, or lacks a scope
    ├── NotFound             there is no such thing: a group, a token, a broker
    │   └── TopicMissing     there is no such topic, or it has no such partition
    ├── TopicExists          there is one of that name already
    ├── OffsetOutOfRange     the partition has no such offset (any more)
    └── MemberGone           this consumer is not a member of its group any more
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flotilla.net.verdicts import Said

if TYPE_CHECKING:
    from flotilla.client.deliveries import Deliveries


class FlotillaError(Exception):
    """The root of everything that the client raises on purpose."""


class ConfigInvalid(FlotillaError, ValueError):
    """An option breaks a rule; the text names the option and the rule."""


class ClientClosed(FlotillaError):
    """It was closed, and does nothing any more."""


class ClientForked(FlotillaError):
    """The client belongs to the process that made it: connections and threads do not survive a fork."""

    def __init__(self) -> None:
        super().__init__("this client was made before the process forked: make one in each process")


class ServerUnreachable(FlotillaError):
    """Nobody answers, or nobody who could help, until the time was over."""


class OutcomeUnknown(ServerUnreachable):
    """Nobody knows whether what was asked for was done: there was no answer, and to ask again might do it twice."""


class RecordInvalid(FlotillaError, ValueError):
    """A record breaks a rule, which the text names. It was not taken."""


class BufferFull(FlotillaError):
    """There are as many bytes on their way as are allowed, and one was not to wait.

    Of a call for many records some may have been taken: `deliveries` are theirs.
    """

    def __init__(self, message: str, deliveries: "Deliveries | None" = None) -> None:
        super().__init__(message)
        self.deliveries = deliveries


class DeliveryFailed(FlotillaError):
    """A record was not stored, and will not be; the text says why. It can be sent again without fear."""


class DeliveryUnknown(FlotillaError):
    """Nobody knows whether a record was stored: the time was over before there was an answer."""


class DataInvalid(FlotillaError):
    """What was fetched cannot be read; the text says where and why. To ask again fetches it anew."""


class TableTooLarge(FlotillaError):
    """The records that were asked for take more memory than was allowed, as a table."""


class ExtraMissing(FlotillaError, ImportError):
    """Something needs a library that is not installed; the text says how to install it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is needed, and not installed: pip install 'flotilla[{extra}]'")


class Refused(FlotillaError):
    """A server said no. Nothing was changed."""

    def __init__(self, message: str, code: str, details: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class NotAllowed(Refused):
    """A token is missing, is not valid, or lacks a scope."""


class NotFound(Refused):
    """There is no such thing; the text names it."""


class TopicMissing(NotFound):
    """There is no such topic, or it has no such partition."""


class TopicExists(Refused):
    """There is a topic of that name already."""


class OffsetOutOfRange(Refused):
    """The partition has no such offset: records before `first_offset` are gone, `next_offset` is yet to come."""

    @property
    def first_offset(self) -> int:
        """Where records begin."""
        return int(self.details.get("first_offset", 0))

    @property
    def next_offset(self) -> int:
        """Where the next record will be."""
        return int(self.details.get("next_offset", 0))


class MemberGone(Refused):
    """The group took this member out, or another one has its id: what it had is somebody else's."""


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


# The calls for people have no codes, but a status that tells who is not let in.
_CODES = {401: "unauthorized", 403: "forbidden"}


def refused(said: Said, status: int) -> Refused:
    """Make the error for what a server said."""
    code = said.code or _CODES.get(status, "unknown")
    message = said.message or f"the server answered {status}, and gave no reason that can be read"
    return _KINDS.get(code, Refused)(message, code, dict(said.details))
