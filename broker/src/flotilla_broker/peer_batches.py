"""Batches the messages of all groups: one frame per peer and run of the engine."""

import logging
from collections.abc import Callable, Iterator

import msgspec

from flotilla_broker.peers import PeerNetwork, PeersMisuse
from flotilla_broker.raft import Message
from flotilla_broker.raft.messages import Append, SnapshotBegin, SnapshotChunk
from flotilla_server.broker_starts import Lsn, Start

logger = logging.getLogger(__name__)

_TURN_BYTES = 4 << 20  # queued for one peer in one run; the rest waits for the next
_FRAME_BYTES = 8 << 20  # of entries in one frame, unless a single message has more
_ENTRY_BYTES = 64  # upper bound of an entry without its payload

_GroupMessage = tuple[bytes, Message]


class Greeting(msgspec.Struct, frozen=True, tag="greeting"):
    """The first frame on a connection: the starts of both brokers, as the sender knows them.

    Brokers of 0.2 know neither LSNs nor `recovered_lsn`, where the sender's start found its log. `is_copy`: the sender
    runs on a copy of the folder of a running broker.
    """

    mine: Start
    yours: Start
    recovered_lsn: Lsn | None = None
    is_copy: bool = False


class PeerBatch(msgspec.Struct, frozen=True, tag="parcels"):
    """Messages between members of groups, each with the key of its group. The wire format calls them parcels.

    Everything that the messages promise was durable in the sender's log at `lsn`.
    """

    messages: list[_GroupMessage] = msgspec.field(name="parcels")
    lsn: Lsn = 0  # 0 if it is unknown, as in 0.2


Frame = Greeting | PeerBatch

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


class PeerBatches:
    """The engine's network. `on_writable` is called when a peer that was not writable is writable again.

    `lsn` returns the LSN that other brokers may remember.
    """

    def __init__(self, on_writable: Callable[[str], None], lsn: Callable[[], int]) -> None:
        self._on_writable = on_writable
        self._lsn = lsn
        self._peers: PeerNetwork | None = None
        self._outgoing: dict[str, list[_GroupMessage]] = {}
        self._bytes: dict[str, int] = {}
        self._blocked: set[str] = set()

    def attach(self, peers: PeerNetwork) -> None:
        """Set the connections to use."""
        self._peers = peers

    def send(self, peer: str, key: bytes, message: Message) -> None:
        """Queue a message until `flush`."""
        self._outgoing.setdefault(peer, []).append((key, message))
        self._bytes[peer] = self._bytes.get(peer, 0) + _size(message)

    def greet(self, peer: str, greeting: Greeting) -> None:
        """Send a greeting at once."""
        if self._peers is not None:
            self._peers.send(peer, [_encoder.encode(greeting)])

    def is_writable(self, peer: str) -> bool:
        """Whether the connection can take more than a small message."""
        room = self._bytes.get(peer, 0) < _TURN_BYTES and self._peers is not None and self._peers.writable(peer)
        if not room:
            self._blocked.add(peer)
        return room

    def flush(self) -> None:
        """Send the queued messages."""
        outgoing, self._outgoing = self._outgoing, {}
        self._bytes.clear()
        if self._peers is None:
            return
        for peer, messages in outgoing.items():
            for part in _frames(messages):
                self._send(peer, part)
        for peer in [peer for peer in self._blocked if self._peers.writable(peer)]:
            self.writable(peer)

    def _send(self, peer: str, messages: list[_GroupMessage]) -> None:
        try:
            if self._peers is not None:
                self._peers.send(peer, [_encoder.encode(PeerBatch(messages, self._lsn()))])
        except PeersMisuse as error:  # a message is larger than a frame: only its group is affected
            logger.error("message dropped, larger than a frame peer=%s error=%r", peer, str(error))  # noqa: TRY400 - the text says it all

    def writable(self, peer: str) -> None:
        """A connection is writable again."""
        if peer in self._blocked:
            self._blocked.discard(peer)
            self._on_writable(peer)


def _size(message: Message) -> int:
    if isinstance(message, Append | SnapshotChunk):
        return sum(len(entry.payload) + _ENTRY_BYTES for entry in message.entries)
    return len(message.state) if isinstance(message, SnapshotBegin) else 0


def _frames(messages: list[_GroupMessage]) -> Iterator[list[_GroupMessage]]:
    """Split messages into frames; a frame exceeds the limit only if a single message does."""
    part: list[_GroupMessage] = []
    size = 0
    for message in messages:
        more = _size(message[1])
        if part and size + more > _FRAME_BYTES:
            yield part
            part, size = [], 0
        part.append(message)
        size += more
    if part:
        yield part


def decode_frame(frame: memoryview) -> Frame:
    """Decode a frame; payloads are views of it. Raises msgspec.DecodeError."""
    return _decoder.decode(frame)
