"""Callers: who is let in, who is not, and how little those learn."""

import contextlib
import hmac
import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.access import (
    ANYBODY,
    NOBODY,
    SYSTEM,
    Access,
    AccessTable,
    Grant,
    NotAuthenticated,
    Scope,
    Token,
    digest_of,
    system_text,
)

SECRET = b"a secret of all servers"
NOW_MS = 1_000_000
MISSING = "a token is missing: send Authorization: Bearer …"
INVALID = "the token is not valid"


def make(number: int, *grants: str, expires_ms: int | None = None) -> tuple[str, Token]:
    """Make a token; return its text, too."""
    token_id = f"{number:016x}"
    text = f"flt_{token_id}_" + "Abc-_9" * 7 + "z"
    parsed = tuple(Grant.parse(grant) for grant in grants)
    return text, Token(
        id=token_id, name=f"token {number}", digest=digest_of(text), grants=parsed, created_ms=1, expires_ms=expires_ms
    )


TEXT, TOKEN = make(1, "produce:orders.*", "consume:*")
OLD_TEXT, OLD = make(2, "admin", expires_ms=NOW_MS)
YOUNG_TEXT, YOUNG = make(3, "admin", expires_ms=NOW_MS + 1)


@pytest.fixture
def access() -> Access:
    return Access(SECRET, AccessTable((TOKEN, OLD, YOUNG)), lambda: NOW_MS)


def bearer(text: str) -> bytes:
    """The header's value."""
    return f"Bearer {text}".encode()


def test_who_shows_a_token_is_its_holder(access: Access) -> None:
    caller = access.identify(bearer(TEXT))
    assert (caller.name, caller.token, caller.is_system) == ("token 1", TOKEN, False)
    assert access.identify(bearer(YOUNG_TEXT)).token is YOUNG


@pytest.mark.parametrize("shown", ["bearer {}", "BEARER {}", "bEaReR {}", "Bearer  {}", " Bearer {} "])
def test_the_case_of_the_scheme_and_blanks_do_not_matter(access: Access, shown: str) -> None:
    assert access.identify(shown.format(TEXT).encode()).token is TOKEN


def test_a_server_is_known_by_the_derived_token(access: Access) -> None:
    caller = access.identify(bearer(system_text(SECRET)))
    assert caller is SYSTEM
    assert caller.is_system


@pytest.mark.parametrize("shown", [None, b"", b" ", b"Bearer", b"Bearer ", b"bearer  "])
def test_who_shows_nothing_is_told_what_to_send(access: Access, shown: bytes | None) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        access.identify(shown)
    assert str(caught.value) == MISSING


@pytest.mark.parametrize("shown", [
    bearer(TEXT[:-1]), bearer(TEXT + "A"), bearer(TEXT[:-1] + "A"), bearer("flt_" + "f" * 16 + TEXT[20:]),
    bearer(TEXT.upper()), bearer(TEXT[4:]), bearer("x"), bearer("flt_"), bearer("flt__"), bearer(TEXT + " " + TEXT),
    bearer(OLD_TEXT), bearer(TOKEN.digest), bearer("-" * 64), bearer(f"flt_{TOKEN.id}_{TOKEN.digest}"),
    bearer(SECRET.decode()), bearer(system_text(b"another secret of servers")), bearer(system_text(SECRET)[:-1]),
    bearer("flt_system_" + "0" * 64), bearer("flt_system_"),
    b"Basic " + TEXT.encode(), b"Token " + TEXT.encode(), TEXT.encode() + b" x", b"Bearer\t" + TEXT.encode() + b" x",
    b"Bearer:" + TEXT.encode() + b" x", b"Bearer \xff\xfe", b"Bearer " + b"\x00" * 70, "Bearer ü".encode(),
    b"Bearer " + TEXT.encode() * 1000, b"B" * 1_000_000 + b" x", b"Bearer " + b" " * 1_000_000 + b"x",
], ids=lambda shown: shown[:40])  # fmt: skip
def test_whoever_else_shows_something_is_told_the_same(access: Access, shown: bytes) -> None:
    """Malformed, unknown, with a wrong secret, expired: nobody learns which."""
    with pytest.raises(NotAuthenticated) as caught:
        access.identify(shown)
    assert str(caught.value) == INVALID
    assert caught.value.__context__ is None


@given(st.binary(max_size=300))
def test_no_header_is_too_strange(shown: bytes) -> None:
    access = Access(SECRET, AccessTable((TOKEN,)), lambda: NOW_MS)
    for header in (shown, b"Bearer " + shown, bearer(TEXT) + shown.strip(b" \t\n\r\x0b\x0c") + b"x"):
        with pytest.raises(NotAuthenticated):
            access.identify(header)


def test_a_revoked_token_is_unknown(access: Access) -> None:
    access.replace(AccessTable((YOUNG,)))
    with pytest.raises(NotAuthenticated, match=INVALID):
        access.identify(bearer(TEXT))
    assert access.identify(bearer(YOUNG_TEXT)).token is YOUNG


def test_a_token_expires_without_anybody_saying_so() -> None:
    """One with an expiry ends by itself, also on a broker that is cut off from managers."""
    now_ms = NOW_MS
    access = Access(SECRET, AccessTable((YOUNG,)), lambda: now_ms)
    assert access.identify(bearer(YOUNG_TEXT)).token is YOUNG
    now_ms += 1
    with pytest.raises(NotAuthenticated, match=INVALID):
        access.identify(bearer(YOUNG_TEXT))


def test_who_was_let_in_is_known_until_the_token_is_revoked_or_expires() -> None:
    now_ms = NOW_MS
    access = Access(SECRET, AccessTable((TOKEN, YOUNG)), lambda: now_ms)
    holder, young = access.identify(bearer(TEXT)), access.identify(bearer(YOUNG_TEXT))
    access.replace(AccessTable.from_builtins(access.table.to_builtins()))
    assert access.knows(holder)
    assert access.knows(young)
    now_ms += 1
    assert not access.knows(young)
    access.replace(AccessTable((make(1, "admin")[1],)))
    assert not access.knows(holder), "a token with its id, and other grants, is another one"
    access.replace(AccessTable())
    assert not access.knows(holder)
    assert [access.knows(caller) for caller in (SYSTEM, ANYBODY, NOBODY)] == [True, True, False]


def test_without_a_secret_nobody_is_a_server() -> None:
    access = Access(None, AccessTable((TOKEN,)), lambda: NOW_MS)
    for secret in (b"", b"None", SECRET):
        with pytest.raises(NotAuthenticated, match=INVALID):
            access.identify(bearer(system_text(secret)))
    with pytest.raises(NotAuthenticated, match=INVALID):
        access.identify(bearer("-" * 64))
    assert access.identify(bearer(TEXT)).token is TOKEN


@pytest.mark.parametrize("text", [TEXT, TEXT[:-1] + "A", "flt_" + "f" * 16 + "_" + "x" * 43, system_text(SECRET), "x"])
def test_digests_and_the_system_token_are_compared_in_constant_time(
    access: Access, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each text the same two comparisons are made, whoever it belongs to, and both by `compare_digest`."""
    compared: list[tuple[int, int]] = []
    real: Callable[[bytes, bytes], bool] = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    with contextlib.suppress(NotAuthenticated):
        access.identify(bearer(text))
    assert compared == [(64, 64), (len(text), len(system_text(SECRET)))]


def test_nothing_shows_a_secret(access: Access, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caller = access.identify(bearer(TEXT))
    shown = [repr(access), str(access), repr(caller), str(caller), repr(access.table), repr(SYSTEM), repr(ANYBODY)]
    for header in (bearer(TEXT[:-1]), bearer(OLD_TEXT), TEXT.encode()):
        with pytest.raises(NotAuthenticated) as caught:
            access.identify(header)
        shown += [repr(caught.value), str(caught.value)]
    text = "\n".join([*shown, caplog.text])
    for secret in (TEXT[21:-1], TOKEN.digest, SECRET.decode(), system_text(SECRET)):
        assert secret not in text


def test_scopes_are_independent_of_each_other(access: Access) -> None:
    caller = access.identify(bearer(TEXT))  # produce:orders.* and consume:*
    assert caller.allows(Scope.PRODUCE, "orders.eu")
    assert not caller.allows(Scope.PRODUCE, "payments")
    assert not caller.allows_all(Scope.PRODUCE)
    assert caller.allows(Scope.CONSUME, "payments")
    assert caller.allows_all(Scope.CONSUME)
    assert caller.sees("payments")
    admin = access.identify(bearer(YOUNG_TEXT))
    assert admin.allows_all(Scope.ADMIN)
    assert not admin.allows(Scope.PRODUCE, "orders.eu")
    assert not admin.allows(Scope.CONSUME, "orders.eu")
    assert admin.sees("anything"), "which it may configure and delete"


def test_servers_and_anybody_may_do_everything_and_nobody_nothing() -> None:
    for caller, expected in ((SYSTEM, True), (ANYBODY, True), (NOBODY, False)):
        assert caller.may_all is expected
        assert caller.sees("x") is expected
        for scope in Scope:
            assert caller.allows(scope, "x") is expected
            assert caller.allows_all(scope) is expected
    assert SYSTEM.is_system
    assert not ANYBODY.is_system
