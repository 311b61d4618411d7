import ssl
from typing import Any

import pytest

from flotilla_broker.peers import AddressBook, AddressInvalid, PeerConfig, PeerNetwork, PeersMisuse, PeerTls


@pytest.mark.parametrize(
    "wrong",
    [
        {"frame_bytes_max": 0},
        {"frame_bytes_max": 1 << 31},
        {"write_bytes_high": 0},
        {"write_bytes_max": 36 * (1 << 20) - 1},
        {"connections_max": 0},
        {"unauthenticated_max": 0},
        {"handshake_s": 0},
        {"ping_s": 0},
        {"silence_s": 3.9},
        {"backoff_s_min": 0},
        {"backoff_s_max": 0.01},
        {"settled_s": -1},
    ],
)
def test_invalid_setting_is_rejected_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        PeerConfig(**wrong)


def test_tls_context_that_requires_no_certificates_is_rejected() -> None:
    lax = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ValueError, match="server must be"):
        PeerTls(lax, strict)
    with pytest.raises(ValueError, match="client must be"):
        PeerTls(strict, lax)


def network(me: str, secret: bytes | None) -> PeerNetwork:
    def ignore(*_: object) -> None:
        pass

    return PeerNetwork(
        me, secret, AddressBook(), on_connected=ignore, on_disconnected=ignore, on_frame=ignore, on_writable=ignore
    )


def test_missing_secret_must_be_explicit() -> None:
    network("a" * 32, None)
    with pytest.raises(PeersMisuse):
        network("a" * 32, b"")


def test_id_of_the_broker_is_validated() -> None:
    with pytest.raises(AddressInvalid):
        network("broker-1", None)
