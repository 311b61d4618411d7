"""What the members of a group say to each other: the whole list, and nothing else is ever decoded.

Messages are msgspec arrays with a number for the kind. A field may be added at the end with a default, so that a
broker of the version before still understands; anything else needs a new kind. The stock core's messages
(pickled dicts, among them commands and snapshots) never travel.
"""

from typing import Annotated

import msgspec

from flotilla_broker.log import Entry as LogEntry

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry on its way from one log to another."""

    index: Number
    term: Number
    next_offset: Number
    time_ms: Number
    payload: memoryview

    @classmethod
    def from_log(cls, entry: LogEntry) -> "Entry":
        """Take an entry from the log."""
        return cls(entry.index, entry.term, entry.next_offset, entry.time_ms, memoryview(entry.payload))


class Append(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The leader's entries behind (prev_index, prev_term), perhaps none; and how far it has committed."""

    term: Number
    prev_index: Number
    prev_term: Number
    commit_index: Number
    entries: list[Entry]


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Accepted: everything up to `index` is on disk here and the same as the leader's.

    Refused: there is no entry here that matches the one before the leader's entries, at `index`; the newest that
    could is at `hint_index` with `hint_term`.
    """

    term: Number
    accepted: bool
    index: Number
    hint_index: Number = 0
    hint_term: Number = 0


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The leader lives. For a follower that cannot be sent an Append: it is being given a copy of the log."""

    term: Number


class Quiet(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Nothing is under way, and no heartbeats follow: everything ends at (index, index_term), committed.

    A follower that has the same trusts in the connection to its leader from then on, which is watched for all groups
    together.
    """

    term: Number
    index: Number
    index_term: Number


class VoteRequest(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A candidate asks for a vote."""

    term: Number
    last_index: Number
    last_term: Number


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A vote, given. It is never said that one is not."""

    term: Number


class PreVoteRequest(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Would you vote for me in this term? Nothing is promised by asking or answering."""

    term: Number
    last_index: Number
    last_term: Number
    ballot: Number


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The answer, with the term of the one who answers."""

    term: Number
    ballot: Number
    granted: bool


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The leader hands over: the receiver is to ask for votes at once."""

    term: Number


class CopyBegin(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A copy of the log begins: committed entries behind an anchor up to `last_index`, and their summary."""

    term: Number
    copy: Number
    anchor_index: Number
    anchor_term: Number
    first_offset: Number
    last_index: Number
    last_term: Number
    state: bytes


class CopyEntries(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The next entries of a copy."""

    term: Number
    copy: Number
    entries: list[Entry]


class CopyReply(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The copy is on disk up to `index`; or it was given up."""

    term: Number
    copy: Number
    index: Number
    given_up: bool = False


Message = (
    Append
    | Reply
    | Heartbeat
    | Quiet
    | VoteRequest
    | Vote
    | PreVoteRequest
    | PreVote
    | TimeoutNow
    | CopyBegin
    | CopyEntries
    | CopyReply
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Make bytes of a message."""
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Read a message; its payloads are views into `data`. Raises msgspec.DecodeError."""
    return _decoder.decode(data)
