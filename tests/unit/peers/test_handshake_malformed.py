"""Messages of a handshake that are none, or too long, or too many."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla_broker.peers import AddressInvalid, HandshakeRefused, MessageMalformed, PeersMisuse, ProofWrong
from flotilla_broker.peers.handshake import MESSAGE_BYTES_MAX
from unit.peers.handshakes import A, B, C, D, accepting, dialing, run, told


def test_a_message_that_is_cut_short_is_refused() -> None:
    hello, challenge, proof, answer = run(dialing(), accepting())
    for size in range(len(hello)):
        with pytest.raises(MessageMalformed):
            accepting().receive(hello[:size])
    for size in range(len(challenge)):
        dialer = dialing()
        dialer.start()
        with pytest.raises(MessageMalformed):
            dialer.receive(challenge[:size])
    for size in range(len(proof)):
        acceptor = accepting()
        acceptor.receive(hello)
        with pytest.raises(ProofWrong):
            acceptor.receive(proof[:size])
        dialer = dialing()
        dialer.start()
        dialer.receive(challenge)
        with pytest.raises(ProofWrong):
            dialer.receive(answer[:size])


def test_a_message_over_the_limit_is_refused() -> None:
    hello = told(dialing().start())
    accepting().receive(hello.ljust(MESSAGE_BYTES_MAX, b"\0"))
    with pytest.raises(MessageMalformed):
        accepting().receive(hello.ljust(MESSAGE_BYTES_MAX + 1, b"\0"))


def test_nothing_follows_the_end_or_an_error() -> None:
    dialer, acceptor = dialing(), accepting()
    messages = run(dialer, acceptor)
    for side in (dialer, acceptor):
        with pytest.raises(MessageMalformed):
            side.receive(messages[-1])
    acceptor = accepting()
    for message in (b"junk", messages[0]):
        with pytest.raises(MessageMalformed):
            acceptor.receive(message)


def test_ids_and_nonces_are_checked() -> None:
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
def test_garbage_is_refused_and_does_nothing_else(messages: list[bytes]) -> None:
    """Whatever a stranger says, no side is done, and nothing but a refusal is raised."""
    for side in (dialing(), accepting()):
        side.start()
        for message in messages:
            with contextlib.suppress(HandshakeRefused):
                side.receive(message)
        assert not side.done
