"""Carries the messages of all groups over the connections between brokers: one frame per peer and turn."""

import logging
from collections.abc import Callable, Iterator

import msgspec

from flotilla_broker.identity import Start
from flotilla_broker.peers import PeerNetwork, PeersMisuse
from flotilla_broker.raft import Message
from flotilla_broker.raft.messages import Append, CopyBegin, CopyEntries

logger = logging.getLogger(__name__)

_TURN_BYTES = 4 << 20  # queued for one peer in one turn; the rest waits for the next
_FRAME_BYTES = 8 << 20  # of entries in one frame, unless a single message has more
_ENTRY_BYTES = 64  # what an entry takes besides its payload, at most

_Parcel = tuple[bytes, Message]


class Greeting(msgspec.Struct, frozen=True, tag="greeting"):
    """The first frame on a connection: how often each of the two was started, as far as the sender knows."""

    mine: Start
    yours: Start


class Parcels(msgspec.Struct, frozen=True, tag="parcels"):
    """Messages between members of groups, each with the key of its group."""

    parcels: list[_Parcel]


Frame = Greeting | Parcels

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


class Links:
    """The engine's network. `on_room` is called for a peer that had no room and has some again."""

    def __init__(self, on_room: Callable[[str], None]) -> None:
        self._on_room = on_room
        self._peers: PeerNetwork | None = None
        self._outgoing: dict[str, list[_Parcel]] = {}
        self._bytes: dict[str, int] = {}
        self._blocked: set[str] = set()

    def attach(self, peers: PeerNetwork) -> None:
        """Use these connections."""
        self._peers = peers

    def send(self, peer: str, key: bytes, message: Message) -> None:
        """Queue a message for the end of the turn."""
        self._outgoing.setdefault(peer, []).append((key, message))
        self._bytes[peer] = self._bytes.get(peer, 0) + _size(message)

    def greet(self, peer: str, greeting: Greeting) -> None:
        """Send a greeting, at once."""
        if self._peers is not None:
            self._peers.send(peer, [_encoder.encode(greeting)])

    def is_writable(self, peer: str) -> bool:
        """Tell whether there is room for more than a small message."""
        room = self._bytes.get(peer, 0) < _TURN_BYTES and self._peers is not None and self._peers.writable(peer)
        if not room:
            self._blocked.add(peer)
        return room

    def flush(self) -> None:
        """Send what was queued."""
        outgoing, self._outgoing = self._outgoing, {}
        self._bytes.clear()
        if self._peers is None:
            return
        for peer, parcels in outgoing.items():
            for part in _frames(parcels):
                self._send(peer, part)
        for peer in [peer for peer in self._blocked if self._peers.writable(peer)]:
            self.writable(peer)

    def _send(self, peer: str, parcels: list[_Parcel]) -> None:
        try:
            if self._peers is not None:
                self._peers.send(peer, [_encoder.encode(Parcels(parcels))])
        except PeersMisuse as error:  # one message is larger than a frame: its group waits, the others do not
            logger.error("a message for %s cannot be sent: %s", peer, error)  # noqa: TRY400 - the text says it all

    def writable(self, peer: str) -> None:
        """A connection has room again."""
        if peer in self._blocked:
            self._blocked.discard(peer)
            self._on_room(peer)


def _size(message: Message) -> int:
    if isinstance(message, Append | CopyEntries):
        return sum(len(entry.payload) + _ENTRY_BYTES for entry in message.entries)
    return len(message.state) if isinstance(message, CopyBegin) else 0


def _frames(parcels: list[_Parcel]) -> Iterator[list[_Parcel]]:
    """Divide messages among frames, none of which is too large unless a single message is."""
    part: list[_Parcel] = []
    size = 0
    for parcel in parcels:
        more = _size(parcel[1])
        if part and size + more > _FRAME_BYTES:
            yield part
            part, size = [], 0
        part.append(parcel)
        size += more
    if part:
        yield part


def unpack(frame: memoryview) -> Frame:
    """Read a frame; payloads are views of it. Raises msgspec.DecodeError."""
    return _decoder.decode(frame)
