"""The handshake, message by message, without a socket: which peers are accepted."""

import itertools
import struct

import pytest

from flotilla_broker.peers import (
    HandshakeRejected,
    MessageInvalid,
    PeersMisuse,
    ProofInvalid,
    UnexpectedBroker,
    VersionMismatch,
)
from flotilla_broker.peers.handshake import (
    _ACCEPTOR,
    _DIALER,
    MESSAGE_BYTES_MAX,
    START_BYTES_MAX,
    Accepting,
    Dialing,
    Versions,
    _Greeting,
)
from unit.peers.handshakes import NONCE_A, NONCE_B, SECRET, A, B, C, D, accepting, dialing, required, run


def test_two_brokers_with_the_same_secret_accept_each_other() -> None:
    dialer, acceptor = dialing(), accepting()
    assert acceptor.start() is None
    messages = run(dialer, acceptor)
    assert (dialer.done, dialer.peer, dialer.version) == (True, B, 1)
    assert (acceptor.done, acceptor.peer, acceptor.version) == (True, A, 1)
    assert all(len(message) <= MESSAGE_BYTES_MAX for message in messages)
    assert not any(SECRET in message for message in messages)


def test_no_secret_is_an_empty_one_and_matches_no_other() -> None:
    run(dialing(secret=b""), accepting(secret=b""))
    with pytest.raises(ProofInvalid):
        run(dialing(secret=b""), accepting())


def test_acceptor_rejects_a_wrong_secret_and_sends_no_proof() -> None:
    """A dialer without the secret gets nothing that was computed with it."""
    dialer, acceptor = dialing(secret=b"wrong"), accepting()
    challenge = required(acceptor.receive(required(dialer.start())))
    other = required(accepting(secret=b"unrelated").receive(required(dialing(secret=b"wrong").start())))
    assert challenge == other
    with pytest.raises(ProofInvalid) as refused:
        acceptor.receive(required(dialer.receive(challenge)))
    assert SECRET.decode() not in str(refused.value)
    assert not acceptor.done


def test_dialer_rejects_an_acceptor_with_a_wrong_secret() -> None:
    dialer, impostor = dialing(), accepting(secret=b"wrong")
    required(dialer.receive(required(impostor.receive(required(dialer.start())))))
    with pytest.raises(ProofInvalid):
        dialer.receive(impostor._prove(_ACCEPTOR))
    assert not dialer.done


def test_reflected_proof_is_rejected() -> None:
    """An acceptor without the secret echoes the proof of the dialer."""
    dialer, impostor = dialing(), accepting(secret=b"")
    proof = required(dialer.receive(required(impostor.receive(required(dialer.start())))))
    with pytest.raises(ProofInvalid):
        dialer.receive(proof)


def test_proof_of_one_role_is_invalid_for_the_other() -> None:
    acceptor = accepting()
    acceptor.receive(required(dialing().start()))
    assert acceptor._proof(_DIALER) != acceptor._proof(_ACCEPTOR)


def test_reflected_hello_is_rejected_by_both_sides() -> None:
    hello = required(dialing().start())
    with pytest.raises(UnexpectedBroker):
        accepting(me=A).receive(hello)
    dialer = dialing()
    dialer.start()
    with pytest.raises(MessageInvalid):
        dialer.receive(hello)


def test_replayed_messages_are_rejected() -> None:
    """The nonce of each side makes proofs of another connection invalid."""
    hello, challenge, proof, answer = run(dialing(), accepting())
    acceptor = accepting(nonce=b"new" + NONCE_B[3:])
    acceptor.receive(hello)
    with pytest.raises(ProofInvalid):
        acceptor.receive(proof)
    dialer = dialing(nonce=b"new" + NONCE_A[3:])
    dialer.start()
    dialer.receive(challenge)
    with pytest.raises(ProofInvalid):
        dialer.receive(answer)


def test_any_changed_byte_is_detected() -> None:
    """The proofs cover everything: a man in the middle cannot change a byte of either hello."""
    for place, changed in itertools.product(range(73), (0, 1)):
        dialer, acceptor = dialing(versions=Versions(1, 7)), accepting(versions=Versions(1, 7))

        def on_the_way(step: int, message: bytes, place: int = place, changed: int = changed) -> bytes:
            altered = bytearray(message)
            altered[place] ^= 2
            return bytes(altered) if step == changed else message

        with pytest.raises(HandshakeRejected):  # noqa: PT012 - which step it is depends on the byte
            challenge = required(acceptor.receive(on_the_way(0, required(dialer.start()))))
            acceptor.receive(required(dialer.receive(on_the_way(1, challenge))))


@pytest.mark.parametrize(
    ("dialer", "acceptor", "text"),
    [
        (dialing(peer=C), accepting(), f"addressed to broker {C}"),
        (dialing(peer=D), accepting(me=D, is_known=lambda _: False), "not in the address book"),
        (dialing(me=B, peer=C), accepting(me=A, is_known=lambda _: True), "addressed to broker"),
    ],
)
def test_acceptor_rejects_an_unknown_broker(dialer: Dialing, acceptor: Accepting, text: str) -> None:
    with pytest.raises(UnexpectedBroker, match=text):
        acceptor.receive(required(dialer.start()))


def forged_hello(sender: str, receiver: str) -> bytes:
    return struct.pack("<4sBHH16s16s32s", b"FLTP", 1, 1, 1, bytes.fromhex(sender), bytes.fromhex(receiver), NONCE_A)


def test_acceptor_rejects_itself() -> None:
    with pytest.raises(UnexpectedBroker, match="itself"):
        accepting().receive(forged_hello(B, B))


def test_acceptor_rejects_a_larger_id_because_it_dials_that_one() -> None:
    with pytest.raises(UnexpectedBroker, match="larger id"):
        accepting().receive(forged_hello(C, B))


def test_dialer_rejects_another_broker_than_the_one_it_dialed() -> None:
    dialer = dialing()
    dialer.start()
    elsewhere = accepting(me=C)
    with pytest.raises(UnexpectedBroker, match=f"connected to broker {C} instead"):
        dialer.receive(required(elsewhere.receive(required(dialing(peer=C).start()))))


def test_dialer_rejects_a_reply_for_another_broker() -> None:
    dialer = dialing()
    dialer.start()
    answer = required(accepting(me=C, is_known=lambda _: True).receive(required(dialing(me=B, peer=C).start())))
    with pytest.raises(UnexpectedBroker):
        dialer.receive(answer)
    dialer = dialing(peer=C)
    dialer.start()
    with pytest.raises(UnexpectedBroker, match="addressed to"):
        dialer.receive(answer)


def test_larger_id_never_dials() -> None:
    for peer in (A, B):
        with pytest.raises(PeersMisuse):
            dialing(me=B, peer=peer)


@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [((1, 1), (1, 1), 1), ((1, 2), (1, 1), 1), ((1, 2), (2, 3), 2), ((2, 5), (1, 9), 5), ((3, 3), (2, 4), 3)],
)
def test_both_sides_select_the_highest_common_version(
    ours: tuple[int, int], theirs: tuple[int, int], version: int
) -> None:
    for one, other in ((ours, theirs), (theirs, ours)):
        dialer, acceptor = dialing(versions=Versions(*one)), accepting(versions=Versions(*other))
        run(dialer, acceptor)
        assert dialer.version == acceptor.version == version


def test_both_sides_reject_without_a_common_version() -> None:
    old, new = Versions(1, 2), Versions(3, 4)
    with pytest.raises(VersionMismatch, match="the peer supports 1 to 2, this broker 3 to 4"):
        accepting(versions=new).receive(required(dialing(versions=old).start()))
    dialer = dialing(versions=old)
    dialer.start()
    challenge = required(accepting(versions=new).receive(required(dialing(versions=new).start())))
    with pytest.raises(VersionMismatch):
        dialer.receive(challenge)


@pytest.mark.parametrize("starts", [(b"token of", b"the other"), (b"", b"x"), (b"x" * START_BYTES_MAX, b"")])
def test_both_sides_learn_the_start_of_the_other(starts: tuple[bytes, bytes]) -> None:
    """Brokers of 0.2 send none."""
    dialer = Dialing(A, B, SECRET, NONCE_A, own_start=starts[0])
    acceptor = Accepting(B, SECRET, NONCE_B, {A}.__contains__, own_start=starts[1])
    run(dialer, acceptor)
    assert (acceptor.peer_start, dialer.peer_start) == starts


def test_fields_of_a_later_version_are_ignored_but_proven() -> None:
    class Later(Dialing):
        def _greet(self, kind: int, peer: str) -> bytes:
            return self._record(_Greeting(Versions(1, 2), self._me, peer, self._nonce).encode(kind) + b"what is new")

    acceptor = accepting()
    run(Later(A, B, SECRET, NONCE_A), acceptor)
    assert (acceptor.done, acceptor.version) == (True, 1)
    dialer, acceptor = dialing(), accepting()
    hello = required(dialer.start()) + b"what the dialer did not say"
    with pytest.raises(ProofInvalid):
        acceptor.receive(required(dialer.receive(required(acceptor.receive(hello)))))
