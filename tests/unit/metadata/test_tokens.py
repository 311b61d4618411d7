"""Tokens in the database: changes by the writer only, and loading with the snapshot."""

from dataclasses import replace
from typing import Any

import pytest

from flotilla.access import Grant, Token, digest_of, generate_token
from flotilla_manager.metadata import Fenced, IdTaken, Store
from flotilla_manager.metadata import tokens as stored
from flotilla_manager.metadata.errors import TooManyTokens
from support.metadata import a_broker, a_topic, ready_topic, sql


def a_token(number: int = 1, **values: Any) -> Token:  # noqa: ANN401 - any of its fields
    """Make a token that is not stored yet."""
    token = Token(
        id=f"{number:016x}",
        name=f"token {number}",
        digest=f"{number:064x}",
        grants=(Grant.parse("produce:orders.*"), Grant.parse("admin")),
        created_ms=number,
    )
    return replace(token, **values)


@pytest.fixture
def epoch(store: Store) -> int:
    return store.take_over("http://writer")


def test_created_token_is_loaded_unchanged(store: Store, epoch: int) -> None:
    full = a_token(2, bytes_per_s=1 << 40, requests_per_s=5, in_flight_bytes=7, expires_ms=1 << 50, name="größer 'x'")
    for token in (full, a_token(1)):
        store.create_token(epoch, token)
    assert store.list_tokens() == (a_token(1), full)
    assert store.list_tokens()[1] is store.list_tokens()[1], "parsed tokens are cached"
    assert store.snapshot().tokens == (a_token(1), full)


def test_changes_of_tokens_increment_the_version(store: Store, epoch: int) -> None:
    """Managers reload tokens when the version changes, so a revoked token is rejected after the next poll."""
    before = store.version()
    store.create_token(epoch, a_token())
    made = store.version()
    assert made > before
    assert store.delete_token(epoch, a_token().id)
    assert store.version() > made
    assert store.snapshot().tokens == ()
    assert not store.delete_token(epoch, a_token().id)


def test_create_token_is_idempotent_and_rejects_another_token_with_the_id(store: Store, epoch: int) -> None:
    """After an unknown outcome, the writer can retry."""
    store.create_token(epoch, a_token())
    store.create_token(epoch, a_token())
    with pytest.raises(IdTaken, match="0000000000000001"):
        store.create_token(epoch, a_token(digest="f" * 64))
    assert store.list_tokens() == (a_token(),)


def test_replaced_writer_cannot_change_tokens(store: Store, epoch: int) -> None:
    store.create_token(epoch, a_token())
    store.take_over("http://another")
    with pytest.raises(Fenced):
        store.create_token(epoch, a_token(2))
    with pytest.raises(Fenced):
        store.delete_token(epoch, a_token().id)
    assert store.list_tokens() == (a_token(),)


def test_number_of_tokens_is_limited(store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "TOKENS_MAX", 2)
    for number in (1, 2):
        store.create_token(epoch, a_token(number))
    with pytest.raises(TooManyTokens, match="the number of tokens is 2; the limit is 2"):
        store.create_token(epoch, a_token(3))
    assert [token.id for token in store.list_tokens()] == [a_token(1).id, a_token(2).id]
    store.create_token(epoch, a_token(2))


def test_create_token_deletes_tokens_that_expired_long_ago(store: Store, epoch: int) -> None:
    """Recently expired tokens are kept and listed."""
    long_ago, yesterday, never = a_token(1, expires_ms=99), a_token(2, expires_ms=100), a_token(3)
    for token in (long_ago, yesterday, never):
        store.create_token(epoch, token)
    new = a_token(4, created_ms=100 + stored.EXPIRED_KEPT_MS)
    store.create_token(epoch, new)
    assert store.list_tokens() == (yesterday, never, new)


def test_invalid_token_is_left_out_and_logged_once(store: Store, epoch: int, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2):
        store.create_token(epoch, a_token(number))
    sql(store, f"UPDATE tokens SET grants = 'fly:*' WHERE id = '{a_token(1).id}'")  # noqa: S608 - no user input
    stored._token.cache_clear()  # the error is logged once per cached row
    for _ in range(2):
        assert store.snapshot().tokens == (a_token(2),)
    assert caplog.text.count(a_token(1).id) == 1


def test_rebuild_keeps_tokens(store: Store, epoch: int) -> None:
    ready_topic(store, epoch, a_topic())
    store.create_token(epoch, a_token())
    store.replace_all([a_topic(2, "other")], [a_broker()], epoch + 1, store.snapshot().cluster_id, force=True)
    assert store.snapshot().tokens == (a_token(),)


def test_text_of_a_token_is_not_stored(store: Store, epoch: int) -> None:
    token_id, text = generate_token(lambda count: bytes(range(count)))
    store.create_token(epoch, a_token(id=token_id, digest=digest_of(text)))
    rows = str(sql(store, "SELECT * FROM tokens"))
    assert token_id in rows
    assert text not in rows
    assert text.rpartition("_")[2] not in rows
