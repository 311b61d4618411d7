"""How two brokers come to believe each other. Messages in, messages out: nothing here touches a socket.

    dialer                                                        acceptor
      │  hello:     versions, ids of both, nonce of the dialer  ──▶  │
      │  ◀──  challenge: versions, ids of both, nonce of the acceptor │
      │  proof:     HMAC(secret, "dialer", all messages so far)  ──▶  │
      │  ◀──  proof:     HMAC(secret, "acceptor", all messages so far) │

- The smaller id dials. So a pair has one connection, and neither side takes one from its own kind.
- Both nonces are under both proofs, so no proof of an earlier connection fits. The role is under them too, so no
  proof fits when it is sent back to its sender. The versions are, so nobody in between can lower them.
- The dialer proves first: a stranger who dials learns nothing that was made with the secret.
- Hello and challenge keep their layout in all versions. What follows the known fields belongs to later versions: it
  is under the proofs and otherwise ignored.
- After the handshake frames are neither encrypted nor signed. Who fears somebody on the wire uses TLS around it.
- All brokers hold one secret, so a broker could pose as another one. They trust each other.
"""

import hmac
import struct
from collections.abc import Callable
from typing import NamedTuple

from flotilla_broker.peers.addresses import check_broker_id
from flotilla_broker.peers.errors import (
    BrokerUnexpected,
    MessageMalformed,
    PeersMisuse,
    ProofWrong,
    VersionsDisjoint,
)
from flotilla_broker.peers.framing import Buffer

PROTOCOL_VERSION = 1
PROTOCOL_VERSION_MIN = 1
MESSAGE_BYTES_MAX = 512
NONCE_BYTES = 32

_MAGIC = b"FLTP"
_HELLO, _CHALLENGE = 1, 2
_GREETING = struct.Struct(f"<4sBHH16s16s{NONCE_BYTES}s")
_LENGTH = struct.Struct("<I")
_DIALER, _ACCEPTOR = b"flotilla peers, proof of the dialer", b"flotilla peers, proof of the acceptor"


class Versions(NamedTuple):
    """The protocol versions that one side speaks, both ends included."""

    oldest: int
    newest: int

    def common(self, other: "Versions") -> int:
        """Return the highest version that both speak."""
        version = min(self.newest, other.newest)
        if version < max(self.oldest, other.oldest):
            raise VersionsDisjoint(f"protocol versions {other} do not meet ours, {self}")
        return version

    def __str__(self) -> str:
        return f"{self.oldest} to {self.newest}"


SPOKEN = Versions(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION)


class _Greeting(NamedTuple):
    versions: Versions
    sender: str
    receiver: str
    nonce: bytes

    def encode(self, kind: int) -> bytes:
        ids = bytes.fromhex(self.sender), bytes.fromhex(self.receiver)
        return _GREETING.pack(_MAGIC, kind, *self.versions, *ids, self.nonce)

    @staticmethod
    def decode(message: bytes, kind: int) -> "_Greeting":
        try:
            magic, found, oldest, newest, sender, receiver, nonce = _GREETING.unpack_from(message)
        except struct.error:
            raise MessageMalformed(f"a message of {len(message)} bytes is too short") from None
        if magic != _MAGIC or found != kind:
            raise MessageMalformed("not a message of the handshake, or not the one that was due")
        if not 1 <= oldest <= newest:
            raise MessageMalformed(f"there are no protocol versions from {oldest} to {newest}")
        return _Greeting(Versions(oldest, newest), sender.hex(), receiver.hex(), nonce)


class Handshake:
    """What both sides have in common.

    Send what `start` returns, then what each `receive` returns, until `done`: then `peer` and `version` hold. An
    error ends it; the connection has to be closed.
    """

    def __init__(self, me: str, secret: bytes, nonce: bytes, versions: Versions) -> None:
        if len(nonce) != NONCE_BYTES:
            raise PeersMisuse(f"a nonce of {len(nonce)} bytes, not {NONCE_BYTES}")
        self.peer = ""
        self.version = 0
        self.done = False
        self._me = check_broker_id(me)
        self._secret = secret
        self._nonce = nonce
        self._versions = versions
        self._said = bytearray()  # by both, each message with its length
        self._step: Callable[[bytes], bytes | None] | None = None

    def start(self) -> bytes | None:
        """Return the message to begin with, if it is on this side to begin."""
        return None

    def receive(self, message: Buffer) -> bytes | None:
        """Take the other side's message and return the answer, or raise HandshakeRefused."""
        step, self._step = self._step, None
        if step is None or len(message) > MESSAGE_BYTES_MAX:
            raise MessageMalformed(f"no message of {len(message)} bytes was due")
        return step(bytes(message))

    def _greet(self, kind: int, peer: str) -> bytes:
        return self._note(_Greeting(self._versions, self._me, peer, self._nonce).encode(kind))

    def _prove(self, role: bytes) -> bytes:
        return self._note(self._proof(role))

    def _check_proof(self, role: bytes, message: bytes) -> None:
        if not hmac.compare_digest(self._proof(role), message):
            raise ProofWrong(f"broker {self.peer} does not hold the secret of this one")
        self._note(message)

    def _proof(self, role: bytes) -> bytes:
        return hmac.digest(self._secret, _LENGTH.pack(len(role)) + role + self._said, "sha256")

    def _note(self, message: bytes) -> bytes:
        self._said += _LENGTH.pack(len(message)) + message
        return message


class Dialing(Handshake):
    """The side that dialed `peer`."""

    def __init__(self, me: str, peer: str, secret: bytes, nonce: bytes, versions: Versions = SPOKEN) -> None:
        super().__init__(me, secret, nonce, versions)
        self.peer = check_broker_id(peer)
        if not me < peer:
            raise PeersMisuse(f"broker {me} is dialed by {peer}, not the other way round")

    def start(self) -> bytes | None:
        """Return the hello."""
        self._step = self._on_challenge
        return self._greet(_HELLO, self.peer)

    def _on_challenge(self, message: bytes) -> bytes:
        greeting = _Greeting.decode(message, _CHALLENGE)
        if greeting.sender != self.peer:
            raise BrokerUnexpected(f"broker {greeting.sender} answered")
        if greeting.receiver != self._me:
            raise BrokerUnexpected(f"the answer is meant for broker {greeting.receiver}")
        self.version = self._versions.common(greeting.versions)
        self._note(message)
        self._step = self._on_proof
        return self._prove(_DIALER)

    def _on_proof(self, message: bytes) -> None:
        self._check_proof(_ACCEPTOR, message)
        self.done = True


class Accepting(Handshake):
    """The side that was dialed, by a broker that `is_known` says yes to."""

    def __init__(
        self, me: str, secret: bytes, nonce: bytes, is_known: Callable[[str], bool], versions: Versions = SPOKEN
    ) -> None:
        super().__init__(me, secret, nonce, versions)
        self._is_known = is_known
        self._step = self._on_hello

    def _on_hello(self, message: bytes) -> bytes:
        greeting = _Greeting.decode(message, _HELLO)
        self._check_broker(greeting)
        self.version = self._versions.common(greeting.versions)
        self.peer = greeting.sender
        self._note(message)
        self._step = self._on_proof
        return self._greet(_CHALLENGE, self.peer)

    def _check_broker(self, greeting: _Greeting) -> None:
        if greeting.receiver != self._me:
            raise BrokerUnexpected(f"the hello is meant for broker {greeting.receiver}")
        if greeting.sender == self._me:
            raise BrokerUnexpected("this broker dialed itself")
        if greeting.sender > self._me:
            raise BrokerUnexpected(f"broker {greeting.sender} has the larger id and should wait to be dialed")
        if not self._is_known(greeting.sender):
            raise BrokerUnexpected(f"broker {greeting.sender} is not in the address book")

    def _on_proof(self, message: bytes) -> bytes:
        self._check_proof(_DIALER, message)
        self.done = True
        return self._prove(_ACCEPTOR)
