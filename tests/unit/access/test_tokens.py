"""Tokens: generation, derivation, validation and secrecy."""

import hashlib
import hmac
import re
import secrets
from typing import Any

import pytest

from flotilla.access import Grant, Scope, Token, TokenInvalid, digest_of, generate_token, system_token

DIGEST = "ab" * 32


def token(**changes: Any) -> Token:  # noqa: ANN401 - also what no token may have
    """Make a valid token with `changes`."""
    fields: dict[str, Any] = {
        "id": "0123456789abcdef", "name": "billing", "digest": DIGEST, "grants": (Grant(Scope.PRODUCE, "orders.*"),),
        "created_ms": 1,
    }  # fmt: skip
    return Token(**{**fields, **changes})


def test_token_text_is_prefix_id_and_256_random_bits() -> None:
    token_id, text = generate_token(lambda count: bytes(range(200, 200 + count)))
    assert token_id == bytes(range(200, 208)).hex()
    assert text == f"flt_{token_id}_yMnKy8zNzs_Q0dLT1NXW19jZ2tvc3d7f4OHi4-Tl5uc"
    drawn_id, drawn = generate_token(secrets.token_bytes)
    assert re.fullmatch(f"flt_{drawn_id}_[A-Za-z0-9_-]{{43}}", drawn)
    assert generate_token(secrets.token_bytes)[1] != drawn


def test_digest_covers_the_whole_text() -> None:
    assert digest_of("flt_x") == hashlib.sha256(b"flt_x").hexdigest()


def test_system_token_does_not_reveal_the_secret() -> None:
    secret = b"a secret of all servers"
    text = system_token(secret)
    assert text == "flt_system_" + hmac.new(secret, b"flotilla system token 1", "sha256").hexdigest()
    assert text != system_token(b"another secret of servers")
    assert secret.decode() not in text
    assert secret.hex() not in text


@pytest.mark.parametrize(("name", "value"), [
    ("id", "0123456789ABCDEF"), ("id", "0" * 15), ("id", "0" * 16 + "\n"), ("id", ""), ("id", "٣" * 16),
    ("name", ""), ("name", " a"), ("name", "a\n"), ("name", "x" * 101), ("name", "a\x1b[31m"), ("name", "\ud800"),
    ("digest", "AB" * 32), ("digest", "ab" * 31), ("digest", ""),
    ("grants", ()), ("grants", (Grant(Scope.ADMIN),) * 101), ("grants", (Grant(Scope.ADMIN, "x" * 200),) * 10),
    ("bytes_per_s", 0), ("bytes_per_s", 1 << 63), ("requests_per_s", -1), ("in_flight_bytes", 0),
    ("created_ms", -1), ("created_ms", 1 << 63), ("expires_ms", -1), ("expires_ms", 1 << 63),
])  # fmt: skip
def test_invalid_field_of_a_token_is_named(name: str, value: object) -> None:
    with pytest.raises(TokenInvalid, match=f"^{name} of a token"):
        token(**{name: value})


def test_name_accepts_any_script() -> None:
    assert token(name="Rechnungen für Müller 日本").name == "Rechnungen für Müller 日本"


@pytest.mark.parametrize(("expires_ms", "now_ms", "expected"), [
    (None, 1 << 62, False), (100, 99, False), (100, 100, True), (100, 101, True),
])  # fmt: skip
def test_token_is_valid_until_it_expires(expires_ms: int | None, now_ms: int, expected: bool) -> None:
    assert token(expires_ms=expires_ms).is_expired(now_ms) is expected


def test_repr_has_no_digest() -> None:
    assert DIGEST not in repr(token()) + str(token()) + f"{token()}"
    with pytest.raises(TokenInvalid) as caught:
        token(digest="flt_0123456789abcdef_secret")
    assert "flt_" not in str(caught.value), "a text that is passed as a digest by mistake must not be logged"
