"""The transport between brokers. Start at `network.py`; `handshake.py` and `framing.py` define the protocol."""

from flotilla_broker.peers.addresses import Address, AddressBook, check_broker_id
from flotilla_broker.peers.config import PeerConfig, PeerTls
from flotilla_broker.peers.errors import (
    AddressInvalid,
    FrameDamaged,
    FrameInvalid,
    FrameTooLarge,
    HandshakeRejected,
    MessageInvalid,
    PeersError,
    PeersMisuse,
    ProofInvalid,
    UnexpectedBroker,
    VersionMismatch,
)
from flotilla_broker.peers.framing import Buffer
from flotilla_broker.peers.handshake import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN
from flotilla_broker.peers.network import PeerNetwork

__all__ = [
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSION_MIN",
    "Address",
    "AddressBook",
    "AddressInvalid",
    "Buffer",
    "FrameDamaged",
    "FrameInvalid",
    "FrameTooLarge",
    "HandshakeRejected",
    "MessageInvalid",
    "PeerConfig",
    "PeerNetwork",
    "PeerTls",
    "PeersError",
    "PeersMisuse",
    "ProofInvalid",
    "UnexpectedBroker",
    "VersionMismatch",
    "check_broker_id",
]
