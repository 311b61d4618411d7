"""Tokens in the database: made and removed by the writer alone, and seen with the snapshot."""

from dataclasses import replace
from typing import Any

import pytest

from flotilla.access import Grant, Token, digest_of, make_text
from flotilla_manager.metadata import Fenced, IdTaken, Store
from flotilla_manager.metadata import tokens as stored
from flotilla_manager.metadata.errors import TooManyTokens
from support.metadata import a_broker, a_topic, ready_topic, sql


def a_token(number: int = 1, **values: Any) -> Token:  # noqa: ANN401 - any of its fields
    """Make a token that nobody has stored yet."""
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


def test_a_token_is_found_as_it_was_made(store: Store, epoch: int) -> None:
    full = a_token(2, bytes_per_s=1 << 40, requests_per_s=5, in_flight_bytes=7, expires_ms=1 << 50, name="größer 'x'")
    for token in (full, a_token(1)):
        store.create_token(epoch, token)
    assert store.list_tokens() == (a_token(1), full)
    assert store.list_tokens()[1] is store.list_tokens()[1], "what was read before is not made anew"
    assert store.snapshot().tokens == (a_token(1), full)


def test_tokens_come_with_a_new_version(store: Store, epoch: int) -> None:
    """Whoever sees anything new sees it: a revoked token does not outlive the next look at the version."""
    before = store.version()
    store.create_token(epoch, a_token())
    made = store.version()
    assert made > before
    assert store.delete_token(epoch, a_token().id)
    assert store.version() > made
    assert store.snapshot().tokens == ()
    assert not store.delete_token(epoch, a_token().id)


def test_to_make_the_same_token_again_changes_nothing_and_another_one_of_its_id_is_refused(
    store: Store, epoch: int
) -> None:
    """Whoever does not know what came of it may just try again."""
    store.create_token(epoch, a_token())
    store.create_token(epoch, a_token())
    with pytest.raises(IdTaken, match="0000000000000001"):
        store.create_token(epoch, a_token(digest="f" * 64))
    assert store.list_tokens() == (a_token(),)


def test_an_old_writer_neither_makes_nor_removes_tokens(store: Store, epoch: int) -> None:
    store.create_token(epoch, a_token())
    store.take_over("http://another")
    with pytest.raises(Fenced):
        store.create_token(epoch, a_token(2))
    with pytest.raises(Fenced):
        store.delete_token(epoch, a_token().id)
    assert store.list_tokens() == (a_token(),)


def test_there_are_so_many_tokens_and_no_more(store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "TOKENS_MAX", 2)
    for number in (1, 2):
        store.create_token(epoch, a_token(number))
    with pytest.raises(TooManyTokens, match="there are 2 tokens; 2 is the limit"):
        store.create_token(epoch, a_token(3))
    assert [token.id for token in store.list_tokens()] == [a_token(1).id, a_token(2).id]
    store.create_token(epoch, a_token(2))


def test_tokens_whose_time_is_long_over_are_forgotten_when_another_is_made(store: Store, epoch: int) -> None:
    """They do not count for ever; those that are over since yesterday are still shown."""
    long_ago, yesterday, never = a_token(1, expires_ms=99), a_token(2, expires_ms=100), a_token(3)
    for token in (long_ago, yesterday, never):
        store.create_token(epoch, token)
    new = a_token(4, created_ms=100 + stored.EXPIRED_KEPT_MS)
    store.create_token(epoch, new)
    assert store.list_tokens() == (yesterday, never, new)


def test_a_token_that_is_not_understood_opens_nothing_and_harms_no_other(
    store: Store, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        store.create_token(epoch, a_token(number))
    sql(store, f"UPDATE tokens SET grants = 'fly:*' WHERE id = '{a_token(1).id}'")  # noqa: S608 - a number of ours
    stored._token.cache_clear()  # it is said once
    for _ in range(2):
        assert store.snapshot().tokens == (a_token(2),)
    assert caplog.text.count(a_token(1).id) == 1


def test_a_rebuild_leaves_tokens_as_they_are(store: Store, epoch: int) -> None:
    ready_topic(store, epoch, a_topic())
    store.create_token(epoch, a_token())
    store.replace_all([a_topic(2, "other")], [a_broker()], epoch + 1, store.snapshot().cluster_id, force=True)
    assert store.snapshot().tokens == (a_token(),)


def test_the_text_of_a_token_is_not_in_the_database(store: Store, epoch: int) -> None:
    token_id, text = make_text(lambda count: bytes(range(count)))
    store.create_token(epoch, a_token(id=token_id, digest=digest_of(text)))
    rows = str(sql(store, "SELECT * FROM tokens"))
    assert token_id in rows
    assert text not in rows
    assert text.rpartition("_")[2] not in rows
