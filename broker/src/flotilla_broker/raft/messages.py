"""Messages between the members of a group. No other message is decoded.

A message is a msgspec array that starts with its tag. The tag and the order of fields are the wire format; names of
classes and fields are not. To stay compatible with the previous version, add fields only at the end and with a
default; anything else needs a new tag. pysyncobj's own messages (pickled dicts) are never sent.
"""

from typing import Annotated

import msgspec

from flotilla_broker.log import Entry as LogEntry

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry in a message."""

    index: Number
    term: Number
    next_offset: Number
    time_ms: Number
    payload: memoryview

    @classmethod
    def from_log(cls, entry: LogEntry) -> "Entry":
        """Convert an entry of the log."""
        return cls(entry.index, entry.term, entry.next_offset, entry.time_ms, memoryview(entry.payload))


class Append(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """AppendEntries: entries after (prev_index, prev_term), possibly none, and the leader's commit index."""

    term: Number
    prev_index: Number
    prev_term: Number
    commit_index: Number
    entries: list[Entry]


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Reply to Append and Heartbeat.

    Accepted: all entries up to `index` are durable here and match the leader's. Rejected: the entry at `index`, before
    the leader's entries, does not match; the last one that may match is at `hint_index`, with `hint_term`.
    """

    term: Number
    accepted: bool
    index: Number
    hint_index: Number = 0
    hint_term: Number = 0


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Heartbeat without a log position, for a follower that is receiving a snapshot."""

    term: Number


class Quiesce(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Quiesce the group: the log ends at (index, index_term), all of it is committed, and no heartbeats follow.

    A follower with the same log relies on the connection to the leader's broker from then on. Pings of that connection
    replace the heartbeats of all its groups.
    """

    term: Number
    index: Number
    index_term: Number


class VoteRequest(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """RequestVote."""

    term: Number
    last_index: Number
    last_term: Number


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A granted vote. A member that does not grant its vote sends nothing."""

    term: Number


class PreVoteRequest(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Pre-vote: ask whether the receiver would grant a vote in this term. It changes no state."""

    term: Number
    last_index: Number
    last_term: Number
    ballot: Number


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Reply to PreVoteRequest, with the sender's own term."""

    term: Number
    ballot: Number
    granted: bool


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Leadership transfer: the receiver starts an election at once."""

    term: Number


class SnapshotBegin(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Start of a snapshot: anchor, last index, and the state after the last index."""

    term: Number
    snapshot_id: Number
    anchor_index: Number
    anchor_term: Number
    first_offset: Number
    last_index: Number
    last_term: Number
    state: bytes


class SnapshotChunk(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The next entries of a snapshot."""

    term: Number
    snapshot_id: Number
    entries: list[Entry]


class SnapshotReply(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The snapshot is durable up to `index`; or the follower aborted it."""

    term: Number
    snapshot_id: Number
    index: Number
    aborted: bool = False


Message = (
    Append
    | Reply
    | Heartbeat
    | Quiesce
    | VoteRequest
    | Vote
    | PreVoteRequest
    | PreVote
    | TimeoutNow
    | SnapshotBegin
    | SnapshotChunk
    | SnapshotReply
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """Encode a message."""
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Decode a message; its payloads are views of `data`. Raises msgspec.DecodeError."""
    return _decoder.decode(data)
