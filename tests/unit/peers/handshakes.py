"""Both sides of a handshake, with defaults for everything that a test does not set."""

from collections.abc import Callable

from flotilla_broker.peers.handshake import SUPPORTED, Accepting, Dialing, Handshake, Versions

A, B, C, D = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)
SECRET = b"something that only brokers know"
NONCE_A, NONCE_B = b"\x0a" * 32, b"\x0b" * 32


def dialing(
    me: str = A, peer: str = B, *, secret: bytes = SECRET, nonce: bytes = NONCE_A, versions: Versions = SUPPORTED
) -> Dialing:
    return Dialing(me, peer, secret, nonce, versions)


def accepting(
    me: str = B,
    *,
    secret: bytes = SECRET,
    nonce: bytes = NONCE_B,
    is_known: Callable[[str], bool] = {A, B, C}.__contains__,
    versions: Versions = SUPPORTED,
) -> Accepting:
    return Accepting(me, secret, nonce, is_known, versions)


def required(message: bytes | None) -> bytes:
    assert message is not None
    return message


def run(dialer: Handshake, acceptor: Handshake) -> list[bytes]:
    """Carry the messages back and forth; return them."""
    messages = [required(dialer.start())]
    for turn in (acceptor, dialer, acceptor):
        messages.append(required(turn.receive(messages[-1])))
    assert dialer.receive(messages[-1]) is None
    return messages
