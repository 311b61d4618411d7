"""What can go wrong between brokers.

PeersError
├── PeersMisuse              the caller broke a rule of the interface
├── AddressInvalid           an id, a host or a port that cannot be one; nothing was changed
├── HandshakeRefused         the other side is not let in, or not believed
│   ├── MessageMalformed     not a message of the handshake, or not the one that was due
│   ├── VersionsDisjoint     there is no protocol version that both sides speak
│   ├── BrokerUnexpected     a broker that should not be at the other end of this connection
│   └── ProofWrong           the other side does not hold the secret
└── FrameRefused             the byte stream cannot be read any further
    ├── FrameTooLarge        a frame is longer than the limit
    └── FrameDamaged         a frame is not what was sent

Trouble with a connection is not among them: it is a reason in the log, a disconnect, and a new dial.
"""


class PeersError(Exception):
    """The root of everything that this package raises."""


class PeersMisuse(PeersError):
    """The caller broke a rule of the interface. Nothing was sent."""


class AddressInvalid(PeersError):
    """An id, a host or a port that cannot be one."""


class HandshakeRefused(PeersError):
    """The connection must not be used. The text may be logged: it never holds anything secret."""


class MessageMalformed(HandshakeRefused):
    """Not a message of the handshake, or not the one that was due."""


class VersionsDisjoint(HandshakeRefused):
    """There is no protocol version that both sides speak."""


class BrokerUnexpected(HandshakeRefused):
    """A broker that should not be at the other end of this connection."""


class ProofWrong(HandshakeRefused):
    """The other side does not hold the secret."""


class FrameRefused(PeersError):
    """The byte stream cannot be read any further."""


class FrameTooLarge(FrameRefused):
    """A frame claims to be longer than the limit."""


class FrameDamaged(FrameRefused):
    """A frame is not what was sent."""
