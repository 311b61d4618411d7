"""Encoding of messages between members, and validation of settings."""

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_broker.raft import Entry, Message, RaftConfig, decode_message, encode_message
from flotilla_broker.raft.messages import (
    Append,
    Heartbeat,
    PreVote,
    PreVoteRequest,
    Quiesce,
    Reply,
    SnapshotBegin,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteRequest,
)

ENTRY = Entry(4, 2, 17, 99, memoryview(b"\1payload"))
MESSAGES: list[Message] = [
    Append(1, 3, 2, 3, [ENTRY, ENTRY]),
    Reply(1, accepted=False, index=3, hint_index=2, hint_term=1),
    Heartbeat(1),
    VoteRequest(1, 2, 3),
    Vote(1),
    PreVoteRequest(1, 2, 3, 4),
    PreVote(1, 2, granted=True),
    TimeoutNow(1),
    SnapshotBegin(1, 2, 3, 4, 5, 6, 7, b"state"),
    SnapshotChunk(1, 2, [ENTRY]),
    SnapshotReply(1, 2, 3, aborted=True),
    Quiesce(1, 2, 3),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_message_round_trips(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


def test_examples_cover_every_kind_of_message() -> None:
    assert {type(message) for message in MESSAGES} == set(Message.__args__)


def test_numbers_of_message_kinds_never_change() -> None:
    """Brokers of two versions communicate during an upgrade."""
    kinds = {type(message).__name__: msgspec.msgpack.decode(encode_message(message))[0] for message in MESSAGES}
    assert kinds == {
        "Append": 1,
        "Reply": 2,
        "Heartbeat": 3,
        "VoteRequest": 4,
        "Vote": 5,
        "PreVoteRequest": 6,
        "PreVote": 7,
        "TimeoutNow": 8,
        "SnapshotBegin": 9,
        "SnapshotChunk": 10,
        "SnapshotReply": 11,
        "Quiesce": 12,
    }


def test_payloads_are_not_copied() -> None:
    data = encode_message(Append(1, 3, 2, 3, [ENTRY]))
    message = decode_message(data)
    assert isinstance(message, Append)
    assert message.entries[0].payload.obj is data


def test_added_trailing_field_may_be_missing() -> None:
    assert decode_message(msgspec.msgpack.encode([2, 1, True, 5])) == Reply(1, accepted=True, index=5)
    assert decode_message(msgspec.msgpack.encode([11, 1, 2, 5])) == SnapshotReply(1, 2, 5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pickle.dumps({"type": "append_entries", "term": 1}),
        msgspec.msgpack.encode({"type": "append_entries", "term": 1}),
        msgspec.msgpack.encode([99, 1]),
        msgspec.msgpack.encode([0, 1]),
        msgspec.msgpack.encode([5, -1]),
        msgspec.msgpack.encode([5, 1 << 63]),
        msgspec.msgpack.encode([5, "1"]),
        msgspec.msgpack.encode([5]),
        msgspec.msgpack.encode([1, 1, 0, 0, 0, [[1, 1, 0, -5, b""]]]),
        encode_message(Vote(1)) + b"\0",
    ],
)
def test_unknown_message_is_rejected(data: bytes) -> None:
    """Including commands and snapshots of pysyncobj."""
    with pytest.raises(msgspec.DecodeError):
        decode_message(data)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_decoded_or_rejected(data: bytes) -> None:
    try:
        message = decode_message(data)
    except msgspec.DecodeError:
        return
    assert type(message) in set(Message.__args__)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"heartbeat_s": 0.0}, "heartbeat_s"),
        ({"heartbeat_s": 0.75}, "heartbeat_s"),
        ({"election_s_max": 1.5}, "election_s_max"),
        ({"append_bytes_max": 0}, "append_bytes_max"),
        ({"append_bytes_max": 9 << 20}, "append_bytes_max"),
    ],
)
def test_invalid_setting_is_rejected_by_name(settings: dict[str, float], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        RaftConfig(**settings)  # type: ignore[arg-type]
    RaftConfig()
