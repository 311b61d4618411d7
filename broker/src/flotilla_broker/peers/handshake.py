"""The handshake between two brokers: mutual authentication with the shared secret. Pure: no sockets.

    dialer                                                        acceptor
      │  hello:     versions, ids of both, nonce of the dialer  ──▶  │
      │  ◀──  challenge: versions, ids of both, nonce of the acceptor │
      │  proof:     HMAC(secret, "dialer", all messages so far)  ──▶  │
      │  ◀──  proof:     HMAC(secret, "acceptor", all messages so far) │

- The broker with the smaller id dials, so that a pair has one connection.
- Both proofs cover both nonces, so that a proof of an earlier connection is invalid. They cover the role, so that a
  proof cannot be reflected. They cover the versions, so that an attacker cannot downgrade them.
- The dialer sends its proof first: an unauthenticated dialer gets nothing that depends on the secret.
- Hello and challenge keep their layout in all versions. Bytes after the known fields belong to later versions: the
  proofs cover them, otherwise they are ignored.
- Hello and challenge end with the token of the sender's start, which distinguishes two processes with the same id.
  Version 0.2 sends none.
- Frames after the handshake are neither encrypted nor signed. Use TLS against attackers on the network.
- All brokers share one secret, so a broker can impersonate another one. Brokers trust each other.
"""

import hmac
import struct
from collections.abc import Callable
from typing import NamedTuple

from flotilla_broker.peers.addresses import check_broker_id
from flotilla_broker.peers.errors import (
    MessageInvalid,
    PeersMisuse,
    ProofInvalid,
    UnexpectedBroker,
    VersionMismatch,
)
from flotilla_broker.peers.framing import Buffer

PROTOCOL_VERSION = 1
PROTOCOL_VERSION_MIN = 1
MESSAGE_BYTES_MAX = 512
NONCE_BYTES = 32
START_BYTES_MAX = 16

_MAGIC = b"FLTP"
_HELLO, _CHALLENGE = 1, 2
_GREETING = struct.Struct(f"<4sBHH16s16s{NONCE_BYTES}s")
_LENGTH = struct.Struct("<I")
_DIALER, _ACCEPTOR = b"flotilla peers, proof of the dialer", b"flotilla peers, proof of the acceptor"


class Versions(NamedTuple):
    """The range of protocol versions that one side supports, inclusive."""

    oldest: int
    newest: int

    def common(self, other: "Versions") -> int:
        """Return the highest common version; raises VersionMismatch."""
        version = min(self.newest, other.newest)
        if version < max(self.oldest, other.oldest):
            raise VersionMismatch(f"no common protocol version: the peer supports {other}, this broker {self}")
        return version

    def __str__(self) -> str:
        return f"{self.oldest} to {self.newest}"


SUPPORTED = Versions(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION)


class _Greeting(NamedTuple):
    versions: Versions
    sender: str
    receiver: str
    nonce: bytes
    start: bytes = b""  # token of the sender's start

    def encode(self, kind: int) -> bytes:
        ids = bytes.fromhex(self.sender), bytes.fromhex(self.receiver)
        packed = _GREETING.pack(_MAGIC, kind, *self.versions, *ids, self.nonce)
        return packed + bytes((len(self.start),)) + self.start if self.start else packed

    @staticmethod
    def decode(message: bytes, kind: int) -> "_Greeting":
        try:
            magic, found, oldest, newest, sender, receiver, nonce = _GREETING.unpack_from(message)
        except struct.error:
            raise MessageInvalid(f"handshake message of {len(message)} bytes is too short") from None
        if magic != _MAGIC or found != kind:
            raise MessageInvalid("unexpected or invalid handshake message")
        if not 1 <= oldest <= newest:
            raise MessageInvalid(f"invalid protocol versions {oldest} to {newest}")
        rest = message[_GREETING.size :]
        size = rest[0] if rest else 0
        start = rest[1 : 1 + size] if size <= START_BYTES_MAX else b""
        return _Greeting(Versions(oldest, newest), sender.hex(), receiver.hex(), nonce, start)


class Handshake:
    """Base class of both sides.

    Send the result of `start`, then the result of each `receive`, until `done`: then `peer`, `peer_start` and `version`
    are valid. After an error the connection must be closed.
    """

    def __init__(self, me: str, secret: bytes, nonce: bytes, versions: Versions, own_start: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise PeersMisuse(f"nonce has {len(nonce)} bytes: must be {NONCE_BYTES}")
        self.peer = ""
        self.peer_start = b""  # token of the peer's start; empty if it sent none
        self.version = 0
        self.done = False
        self._me = check_broker_id(me)
        self._secret = secret
        self._nonce = nonce
        self._versions = versions
        self._own_start = own_start
        self._transcript = bytearray()  # messages of both sides, each with its length
        self._step: Callable[[bytes], bytes | None] | None = None

    def start(self) -> bytes | None:
        """Return the first message, if this side sends it."""
        return None

    def receive(self, message: Buffer) -> bytes | None:
        """Handle a message of the peer and return the reply; raises HandshakeRejected."""
        step, self._step = self._step, None
        if step is None or len(message) > MESSAGE_BYTES_MAX:
            raise MessageInvalid(f"unexpected handshake message of {len(message)} bytes")
        return step(bytes(message))

    def _greet(self, kind: int, peer: str) -> bytes:
        return self._record(_Greeting(self._versions, self._me, peer, self._nonce, self._own_start).encode(kind))

    def _prove(self, role: bytes) -> bytes:
        return self._record(self._proof(role))

    def _check_proof(self, role: bytes, message: bytes) -> None:
        if not hmac.compare_digest(self._proof(role), message):
            raise ProofInvalid(f"broker {self.peer} has another secret")
        self._record(message)

    def _proof(self, role: bytes) -> bytes:
        return hmac.digest(self._secret, _LENGTH.pack(len(role)) + role + self._transcript, "sha256")

    def _record(self, message: bytes) -> bytes:
        self._transcript += _LENGTH.pack(len(message)) + message
        return message


class Dialing(Handshake):
    """The side that dials `peer`."""

    def __init__(
        self,
        me: str,
        peer: str,
        secret: bytes,
        nonce: bytes,
        versions: Versions = SUPPORTED,
        *,
        own_start: bytes = b"",
    ) -> None:
        super().__init__(me, secret, nonce, versions, own_start)
        self.peer = check_broker_id(peer)
        if not me < peer:
            raise PeersMisuse(f"broker {me} must not dial {peer}: the smaller id dials")

    def start(self) -> bytes | None:
        """Return the hello."""
        self._step = self._on_challenge
        return self._greet(_HELLO, self.peer)

    def _on_challenge(self, message: bytes) -> bytes:
        greeting = _Greeting.decode(message, _CHALLENGE)
        if greeting.sender != self.peer:
            raise UnexpectedBroker(f"connected to broker {greeting.sender} instead")
        if greeting.receiver != self._me:
            raise UnexpectedBroker(f"challenge is addressed to broker {greeting.receiver}")
        self.version = self._versions.common(greeting.versions)
        self.peer_start = greeting.start
        self._record(message)
        self._step = self._on_proof
        return self._prove(_DIALER)

    def _on_proof(self, message: bytes) -> None:
        self._check_proof(_ACCEPTOR, message)
        self.done = True


class Accepting(Handshake):
    """The side that accepts a connection of a broker for which `is_known` is true."""

    def __init__(
        self,
        me: str,
        secret: bytes,
        nonce: bytes,
        is_known: Callable[[str], bool],
        versions: Versions = SUPPORTED,
        *,
        own_start: bytes = b"",
    ) -> None:
        super().__init__(me, secret, nonce, versions, own_start)
        self._is_known = is_known
        self._step = self._on_hello

    def _on_hello(self, message: bytes) -> bytes:
        greeting = _Greeting.decode(message, _HELLO)
        self._check_broker(greeting)
        self.version = self._versions.common(greeting.versions)
        self.peer, self.peer_start = greeting.sender, greeting.start
        self._record(message)
        self._step = self._on_proof
        return self._greet(_CHALLENGE, self.peer)

    def _check_broker(self, greeting: _Greeting) -> None:
        if greeting.receiver != self._me:
            raise UnexpectedBroker(f"hello is addressed to broker {greeting.receiver}")
        if greeting.sender == self._me:
            raise UnexpectedBroker("broker dialed itself")
        if greeting.sender > self._me:
            raise UnexpectedBroker(f"broker {greeting.sender} has the larger id and must not dial")
        if not self._is_known(greeting.sender):
            raise UnexpectedBroker(f"broker {greeting.sender} is not in the address book")

    def _on_proof(self, message: bytes) -> bytes:
        self._check_proof(_DIALER, message)
        self.done = True
        return self._prove(_ACCEPTOR)
