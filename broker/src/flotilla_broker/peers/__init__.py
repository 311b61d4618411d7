"""The transport between brokers. Start reading at `network.py`; `handshake.py` and `framing.py` are the protocol."""

from flotilla_broker.peers.addresses import Address, AddressBook, check_broker_id
from flotilla_broker.peers.config import PeerConfig, PeerTls
from flotilla_broker.peers.errors import (
    AddressInvalid,
    BrokerUnexpected,
    FrameDamaged,
    FrameRefused,
    FrameTooLarge,
    HandshakeRefused,
    MessageMalformed,
    PeersError,
    PeersMisuse,
    ProofWrong,
    VersionsDisjoint,
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
    "BrokerUnexpected",
    "Buffer",
    "FrameDamaged",
    "FrameRefused",
    "FrameTooLarge",
    "HandshakeRefused",
    "MessageMalformed",
    "PeerConfig",
    "PeerNetwork",
    "PeerTls",
    "PeersError",
    "PeersMisuse",
    "ProofWrong",
    "VersionsDisjoint",
    "check_broker_id",
]
