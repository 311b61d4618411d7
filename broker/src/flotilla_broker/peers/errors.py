"""Errors of the transport between brokers.

PeersError
├── PeersMisuse              the caller violated a rule of the interface
├── AddressInvalid           an invalid id, host or port; nothing was changed
├── HandshakeRejected         the peer was not authenticated
│   ├── MessageInvalid     an invalid or unexpected handshake message
│   ├── VersionMismatch     no common protocol version
│   ├── UnexpectedBroker     another broker than expected
│   └── ProofInvalid           the peer has another secret
└── FrameInvalid             the byte stream is invalid
    ├── FrameTooLarge        a frame exceeds the limit
    └── FrameDamaged         a frame has a wrong checksum

Failures of a connection are not raised: they are logged, and the broker dials again.
"""


class PeersError(Exception):
    """Base class of errors of this package."""


class PeersMisuse(PeersError):
    """The caller violated a rule of the interface. Nothing was sent."""


class AddressInvalid(PeersError):
    """An invalid id, host or port."""


class HandshakeRejected(PeersError):
    """The connection must not be used. The text contains no secret, and may be logged."""


class MessageInvalid(HandshakeRejected):
    """An invalid or unexpected handshake message."""


class VersionMismatch(HandshakeRejected):
    """No common protocol version."""


class UnexpectedBroker(HandshakeRejected):
    """Another broker than expected is at the other end."""


class ProofInvalid(HandshakeRejected):
    """The peer has another secret."""


class FrameInvalid(PeersError):
    """The byte stream is invalid."""


class FrameTooLarge(FrameInvalid):
    """A frame exceeds the limit."""


class FrameDamaged(FrameInvalid):
    """A frame has a wrong checksum."""
