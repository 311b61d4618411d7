"""Authentication of callers, and what errors reveal."""

import contextlib
import hmac
import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.access import Grant, Scope, Token, digest_of, system_token
from flotilla_server.access_table import AccessTable
from flotilla_server.callers import ANONYMOUS, SYSTEM, UNRESTRICTED, Access, NotAuthenticated

SECRET = b"a secret of all servers"
NOW_MS = 1_000_000
MISSING = "a token is missing: send Authorization: Bearer …"
INVALID = "token rejected: it is unknown, revoked or expired"


def make(number: int, *grants: str, expires_ms: int | None = None) -> tuple[str, Token]:
    """Make a token; return its text and the token."""
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
    """Return the value of the header."""
    return f"Bearer {text}".encode()


def test_valid_token_identifies_its_holder(access: Access) -> None:
    caller = access.identify(bearer(TEXT))
    assert (caller.name, caller.token, caller.is_system) == ("token 1", TOKEN, False)
    assert access.identify(bearer(YOUNG_TEXT)).token is YOUNG


@pytest.mark.parametrize("shown", ["bearer {}", "BEARER {}", "bEaReR {}", "Bearer  {}", " Bearer {} "])
def test_scheme_is_case_insensitive_and_spaces_are_ignored(access: Access, shown: str) -> None:
    assert access.identify(shown.format(TEXT).encode()).token is TOKEN


def test_system_token_identifies_a_server(access: Access) -> None:
    caller = access.identify(bearer(system_token(SECRET)))
    assert caller is SYSTEM
    assert caller.is_system


@pytest.mark.parametrize("shown", [None, b"", b" ", b"Bearer", b"Bearer ", b"bearer  "])
def test_missing_token_error_names_the_header(access: Access, shown: bytes | None) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        access.identify(shown)
    assert str(caught.value) == MISSING


@pytest.mark.parametrize("shown", [
    bearer(TEXT[:-1]), bearer(TEXT + "A"), bearer(TEXT[:-1] + "A"), bearer("flt_" + "f" * 16 + TEXT[20:]),
    bearer(TEXT.upper()), bearer(TEXT[4:]), bearer("x"), bearer("flt_"), bearer("flt__"), bearer(TEXT + " " + TEXT),
    bearer(OLD_TEXT), bearer(TOKEN.digest), bearer("-" * 64), bearer(f"flt_{TOKEN.id}_{TOKEN.digest}"),
    bearer(SECRET.decode()), bearer(system_token(b"another secret of servers")), bearer(system_token(SECRET)[:-1]),
    bearer("flt_system_" + "0" * 64), bearer("flt_system_"),
    b"Basic " + TEXT.encode(), b"Token " + TEXT.encode(), TEXT.encode() + b" x", b"Bearer\t" + TEXT.encode() + b" x",
    b"Bearer:" + TEXT.encode() + b" x", b"Bearer \xff\xfe", b"Bearer " + b"\x00" * 70, "Bearer ü".encode(),
    b"Bearer " + TEXT.encode() * 1000, b"B" * 1_000_000 + b" x", b"Bearer " + b" " * 1_000_000 + b"x",
], ids=lambda shown: shown[:40])  # fmt: skip
def test_invalid_tokens_get_the_same_error(access: Access, shown: bytes) -> None:
    """Malformed, unknown, wrong secret or expired: the error does not reveal which."""
    with pytest.raises(NotAuthenticated) as caught:
        access.identify(shown)
    assert str(caught.value) == INVALID
    assert caught.value.__context__ is None


@given(st.binary(max_size=300))
def test_arbitrary_header_is_rejected(shown: bytes) -> None:
    access = Access(SECRET, AccessTable((TOKEN,)), lambda: NOW_MS)
    for header in (shown, b"Bearer " + shown, bearer(TEXT) + shown.strip(b" \t\n\r\x0b\x0c") + b"x"):
        with pytest.raises(NotAuthenticated):
            access.identify(header)


def test_revoked_token_is_rejected(access: Access) -> None:
    access.replace(AccessTable((YOUNG,)))
    with pytest.raises(NotAuthenticated, match=INVALID):
        access.identify(bearer(TEXT))
    assert access.identify(bearer(YOUNG_TEXT)).token is YOUNG


def test_token_expires_without_a_new_table() -> None:
    """It expires by itself, also on a broker without a connection to managers."""
    now_ms = NOW_MS
    access = Access(SECRET, AccessTable((YOUNG,)), lambda: now_ms)
    assert access.identify(bearer(YOUNG_TEXT)).token is YOUNG
    now_ms += 1
    with pytest.raises(NotAuthenticated, match=INVALID):
        access.identify(bearer(YOUNG_TEXT))


def test_caller_is_valid_until_its_token_is_revoked_or_expires() -> None:
    now_ms = NOW_MS
    access = Access(SECRET, AccessTable((TOKEN, YOUNG)), lambda: now_ms)
    holder, young = access.identify(bearer(TEXT)), access.identify(bearer(YOUNG_TEXT))
    access.replace(AccessTable.from_builtins(access.table.to_builtins()))
    assert access.is_valid(holder)
    assert access.is_valid(young)
    now_ms += 1
    assert not access.is_valid(young)
    access.replace(AccessTable((make(1, "admin")[1],)))
    assert not access.is_valid(holder), "a token with the same id and other grants is a different caller"
    access.replace(AccessTable())
    assert not access.is_valid(holder)
    assert [access.is_valid(caller) for caller in (SYSTEM, UNRESTRICTED, ANONYMOUS)] == [True, True, False]


def test_system_token_is_rejected_without_a_secret() -> None:
    access = Access(None, AccessTable((TOKEN,)), lambda: NOW_MS)
    for secret in (b"", b"None", SECRET):
        with pytest.raises(NotAuthenticated, match=INVALID):
            access.identify(bearer(system_token(secret)))
    with pytest.raises(NotAuthenticated, match=INVALID):
        access.identify(bearer("-" * 64))
    assert access.identify(bearer(TEXT)).token is TOKEN


@pytest.mark.parametrize("text", [TEXT, TEXT[:-1] + "A", "flt_" + "f" * 16 + "_" + "x" * 43, system_token(SECRET), "x"])
def test_digests_and_the_system_token_are_compared_in_constant_time(
    access: Access, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every text is compared twice, both times by `compare_digest`."""
    compared: list[tuple[int, int]] = []
    real: Callable[[bytes, bytes], bool] = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    with contextlib.suppress(NotAuthenticated):
        access.identify(bearer(text))
    assert compared == [(64, 64), (len(text), len(system_token(SECRET)))]


def test_no_output_contains_a_secret(access: Access, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caller = access.identify(bearer(TEXT))
    shown = [repr(access), str(access), repr(caller), str(caller), repr(access.table), repr(SYSTEM), repr(UNRESTRICTED)]
    for header in (bearer(TEXT[:-1]), bearer(OLD_TEXT), TEXT.encode()):
        with pytest.raises(NotAuthenticated) as caught:
            access.identify(header)
        shown += [repr(caught.value), str(caught.value)]
    text = "\n".join([*shown, caplog.text])
    for secret in (TEXT[21:-1], TOKEN.digest, SECRET.decode(), system_token(SECRET)):
        assert secret not in text


def test_scopes_are_independent(access: Access) -> None:
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


def test_permissions_of_system_unrestricted_and_anonymous_callers() -> None:
    for caller, expected in ((SYSTEM, True), (UNRESTRICTED, True), (ANONYMOUS, False)):
        assert caller.is_unrestricted is expected
        assert caller.sees("x") is expected
        for scope in Scope:
            assert caller.allows(scope, "x") is expected
            assert caller.allows_all(scope) is expected
    assert SYSTEM.is_system
    assert not UNRESTRICTED.is_system
