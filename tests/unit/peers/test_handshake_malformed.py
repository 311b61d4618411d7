"""Malformed, oversized and excess messages of a handshake."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_broker.peers import AddressInvalid, HandshakeRejected, MessageInvalid, PeersMisuse, ProofInvalid
from flotilla_broker.peers.handshake import MESSAGE_BYTES_MAX
from unit.peers.handshakes import A, B, C, D, accepting, dialing, required, run


def test_truncated_message_is_rejected() -> None:
    hello, challenge, proof, answer = run(dialing(), accepting())
    for size in range(len(hello)):
        with pytest.raises(MessageInvalid):
            accepting().receive(hello[:size])
    for size in range(len(challenge)):
        dialer = dialing()
        dialer.start()
        with pytest.raises(MessageInvalid):
            dialer.receive(challenge[:size])
    for size in range(len(proof)):
        acceptor = accepting()
        acceptor.receive(hello)
        with pytest.raises(ProofInvalid):
            acceptor.receive(proof[:size])
        dialer = dialing()
        dialer.start()
        dialer.receive(challenge)
        with pytest.raises(ProofInvalid):
            dialer.receive(answer[:size])


def test_message_over_the_limit_is_rejected() -> None:
    hello = required(dialing().start())
    accepting().receive(hello.ljust(MESSAGE_BYTES_MAX, b"\0"))
    with pytest.raises(MessageInvalid):
        accepting().receive(hello.ljust(MESSAGE_BYTES_MAX + 1, b"\0"))


def test_no_message_is_accepted_after_the_end_or_an_error() -> None:
    dialer, acceptor = dialing(), accepting()
    messages = run(dialer, acceptor)
    for side in (dialer, acceptor):
        with pytest.raises(MessageInvalid):
            side.receive(messages[-1])
    acceptor = accepting()
    for message in (b"junk", messages[0]):
        with pytest.raises(MessageInvalid):
            acceptor.receive(message)


def test_ids_and_nonces_are_validated() -> None:
    with pytest.raises(AddressInvalid):
        accepting(me="B" * 32)
    with pytest.raises(AddressInvalid):
        dialing(peer="")
    with pytest.raises(PeersMisuse):
        dialing(nonce=b"short")


GREETINGS = st.builds(
    struct.pack,
    st.just("<4sBHH16s16s32s"),
    st.just(b"FLTP"),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([bytes.fromhex(x) for x in (A, B, C, D)]),
    st.sampled_from([bytes.fromhex(x) for x in (A, B, C, D)]),
    st.binary(min_size=32, max_size=32),
)


@given(st.lists(st.one_of(st.binary(max_size=MESSAGE_BYTES_MAX + 9), GREETINGS), max_size=4))
def test_garbage_is_rejected_without_other_effects(messages: list[bytes]) -> None:
    """Whatever a peer sends, the handshake does not complete, and only a rejection is raised."""
    for side in (dialing(), accepting()):
        side.start()
        for message in messages:
            with contextlib.suppress(HandshakeRejected):
                side.receive(message)
        assert not side.done
