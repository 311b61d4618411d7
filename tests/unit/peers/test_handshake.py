"""The handshake, message by message, without a socket: who is believed, and who is not."""

import itertools
import struct

import pytest

from flotilla_broker.peers import (
    BrokerUnexpected,
    HandshakeRefused,
    MessageMalformed,
    PeersMisuse,
    ProofWrong,
    VersionsDisjoint,
)
from flotilla_broker.peers.handshake import (
    _ACCEPTOR,
    _DIALER,
    MESSAGE_BYTES_MAX,
    Accepting,
    Dialing,
    Versions,
    _Greeting,
)
from unit.peers.handshakes import NONCE_A, NONCE_B, SECRET, A, B, C, D, accepting, dialing, run, told


def test_two_brokers_with_one_secret_believe_each_other() -> None:
    dialer, acceptor = dialing(), accepting()
    assert acceptor.start() is None
    messages = run(dialer, acceptor)
    assert (dialer.done, dialer.peer, dialer.version) == (True, B, 1)
    assert (acceptor.done, acceptor.peer, acceptor.version) == (True, A, 1)
    assert all(len(message) <= MESSAGE_BYTES_MAX for message in messages)
    assert not any(SECRET in message for message in messages)


def test_no_secret_is_an_empty_one_and_not_the_same_as_any_other() -> None:
    run(dialing(secret=b""), accepting(secret=b""))
    with pytest.raises(ProofWrong):
        run(dialing(secret=b""), accepting())


def test_the_acceptor_refuses_a_wrong_secret_and_proves_nothing() -> None:
    """A stranger who dials is given nothing that was made with the secret."""
    dialer, acceptor = dialing(secret=b"wrong"), accepting()
    challenge = told(acceptor.receive(told(dialer.start())))
    other = told(accepting(secret=b"unrelated").receive(told(dialing(secret=b"wrong").start())))
    assert challenge == other
    with pytest.raises(ProofWrong) as refused:
        acceptor.receive(told(dialer.receive(challenge)))
    assert SECRET.decode() not in str(refused.value)
    assert not acceptor.done


def test_the_dialer_refuses_an_acceptor_with_a_wrong_secret() -> None:
    dialer, impostor = dialing(), accepting(secret=b"wrong")
    told(dialer.receive(told(impostor.receive(told(dialer.start())))))
    with pytest.raises(ProofWrong):
        dialer.receive(impostor._prove(_ACCEPTOR))
    assert not dialer.done


def test_a_proof_sent_back_to_its_sender_proves_nothing() -> None:
    """No reflection: an impostor without the secret echoes what the dialer proved."""
    dialer, impostor = dialing(), accepting(secret=b"")
    proof = told(dialer.receive(told(impostor.receive(told(dialer.start())))))
    with pytest.raises(ProofWrong):
        dialer.receive(proof)


def test_what_proves_one_role_does_not_prove_the_other() -> None:
    acceptor = accepting()
    acceptor.receive(told(dialing().start()))
    assert acceptor._proof(_DIALER) != acceptor._proof(_ACCEPTOR)


def test_a_hello_sent_back_to_its_sender_is_refused_by_both_of_its_sides() -> None:
    hello = told(dialing().start())
    with pytest.raises(BrokerUnexpected):
        accepting(me=A).receive(hello)
    dialer = dialing()
    dialer.start()
    with pytest.raises(MessageMalformed):
        dialer.receive(hello)


def test_messages_of_an_earlier_connection_are_worth_nothing() -> None:
    """No replay: each side's own nonce makes the proofs of another connection wrong."""
    hello, challenge, proof, answer = run(dialing(), accepting())
    acceptor = accepting(nonce=b"new" + NONCE_B[3:])
    acceptor.receive(hello)
    with pytest.raises(ProofWrong):
        acceptor.receive(proof)
    dialer = dialing(nonce=b"new" + NONCE_A[3:])
    dialer.start()
    dialer.receive(challenge)
    with pytest.raises(ProofWrong):
        dialer.receive(answer)


def test_whatever_is_changed_on_the_way_is_noticed() -> None:
    """Everything said is under the proofs: no byte of either greeting can be changed by somebody in between."""
    for place, changed in itertools.product(range(73), (0, 1)):
        dialer, acceptor = dialing(versions=Versions(1, 7)), accepting(versions=Versions(1, 7))

        def on_the_way(step: int, message: bytes, place: int = place, changed: int = changed) -> bytes:
            altered = bytearray(message)
            altered[place] ^= 2
            return bytes(altered) if step == changed else message

        with pytest.raises(HandshakeRefused):  # noqa: PT012 - which step it is depends on the byte
            challenge = told(acceptor.receive(on_the_way(0, told(dialer.start()))))
            acceptor.receive(told(dialer.receive(on_the_way(1, challenge))))


@pytest.mark.parametrize(
    ("dialer", "acceptor", "text"),
    [
        (dialing(peer=C), accepting(), f"meant for broker {C}"),
        (dialing(peer=D), accepting(me=D, is_known=lambda _: False), "not in the address book"),
        (dialing(me=B, peer=C), accepting(me=A, is_known=lambda _: True), "meant for broker"),
    ],
)
def test_the_acceptor_refuses_a_broker_that_should_not_be_there(
    dialer: Dialing, acceptor: Accepting, text: str
) -> None:
    with pytest.raises(BrokerUnexpected, match=text):
        acceptor.receive(told(dialer.start()))


def forged_hello(sender: str, receiver: str) -> bytes:
    return struct.pack("<4sBHH16s16s32s", b"FLTP", 1, 1, 1, bytes.fromhex(sender), bytes.fromhex(receiver), NONCE_A)


def test_the_acceptor_refuses_itself() -> None:
    with pytest.raises(BrokerUnexpected, match="itself"):
        accepting().receive(forged_hello(B, B))


def test_the_acceptor_refuses_a_larger_id_because_it_dials_that_one() -> None:
    with pytest.raises(BrokerUnexpected, match="larger id"):
        accepting().receive(forged_hello(C, B))


def test_the_dialer_refuses_another_broker_than_the_one_it_dialed() -> None:
    dialer = dialing()
    dialer.start()
    elsewhere = accepting(me=C)
    with pytest.raises(BrokerUnexpected, match=f"broker {C} answered"):
        dialer.receive(told(elsewhere.receive(told(dialing(peer=C).start()))))


def test_the_dialer_refuses_an_answer_meant_for_another() -> None:
    dialer = dialing()
    dialer.start()
    answer = told(accepting(me=C, is_known=lambda _: True).receive(told(dialing(me=B, peer=C).start())))
    with pytest.raises(BrokerUnexpected):
        dialer.receive(answer)
    dialer = dialing(peer=C)
    dialer.start()
    with pytest.raises(BrokerUnexpected, match="meant for"):
        dialer.receive(answer)


def test_the_larger_id_never_dials() -> None:
    for peer in (A, B):
        with pytest.raises(PeersMisuse):
            dialing(me=B, peer=peer)


@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [((1, 1), (1, 1), 1), ((1, 2), (1, 1), 1), ((1, 2), (2, 3), 2), ((2, 5), (1, 9), 5), ((3, 3), (2, 4), 3)],
)
def test_both_sides_pick_the_highest_version_that_both_speak(
    ours: tuple[int, int], theirs: tuple[int, int], version: int
) -> None:
    for one, other in ((ours, theirs), (theirs, ours)):
        dialer, acceptor = dialing(versions=Versions(*one)), accepting(versions=Versions(*other))
        run(dialer, acceptor)
        assert dialer.version == acceptor.version == version


def test_without_a_common_version_both_sides_refuse() -> None:
    old, new = Versions(1, 2), Versions(3, 4)
    with pytest.raises(VersionsDisjoint, match="1 to 2 do not meet ours, 3 to 4"):
        accepting(versions=new).receive(told(dialing(versions=old).start()))
    dialer = dialing(versions=old)
    dialer.start()
    challenge = told(accepting(versions=new).receive(told(dialing(versions=new).start())))
    with pytest.raises(VersionsDisjoint):
        dialer.receive(challenge)


def test_fields_of_a_later_version_are_ignored_but_proven() -> None:
    class Later(Dialing):
        def _greet(self, kind: int, peer: str) -> bytes:
            return self._note(_Greeting(Versions(1, 2), self._me, peer, self._nonce).encode(kind) + b"what is new")

    acceptor = accepting()
    run(Later(A, B, SECRET, NONCE_A), acceptor)
    assert (acceptor.done, acceptor.version) == (True, 1)
    dialer, acceptor = dialing(), accepting()
    hello = told(dialer.start()) + b"what the dialer did not say"
    with pytest.raises(ProofWrong):
        acceptor.receive(told(dialer.receive(told(acceptor.receive(hello)))))
