"""Authentication at a manager: cached tokens, changes by the writer, and the access table for brokers."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from flotilla.access import Grant, Scope, system_token
from flotilla.net import Pool, Response
from flotilla.protocol.errors import Refusal
from flotilla_manager.access import ManagerAccess, TokenCache, system_headers
from flotilla_manager.api.data import find_partition
from flotilla_manager.manager import Manager
from flotilla_manager.metadata import tokens as stored
from flotilla_manager.metadata.errors import DatabaseUnavailable
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Snapshot
from flotilla_manager.planning import Campaign, DeleteReplica
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.writer.commands import CommandFailed, Commands
from flotilla_manager.writer.tokens import TokenService, TokenSpec
from flotilla_server.access_table import AccessTable
from flotilla_server.callers import Caller, NotAuthenticated
from support.access import SECRET, SYSTEM, Holder, hold
from support.metadata import a_broker
from support.writer_harness import Bench, WriterHarness, on_bench
from unit.manager.dataplane import make_metadata, make_snapshot, make_topic, on_virtual_time

ALICE, BOB = hold("produce:orders"), hold("consume")
SYSTEM_SHOWN = SYSTEM["authorization"].encode()


def shown(holder: Holder) -> bytes:
    return holder.headers["authorization"].encode()


def make_access(now_ms: int = 0) -> tuple[MetadataCache, TokenCache, ManagerAccess]:
    async def load(_: int) -> None:
        pytest.fail("the database was asked")

    metadata = MetadataCache(load, lambda: 0.0)
    tokens = TokenCache(metadata)
    return metadata, tokens, ManagerAccess(SECRET.encode(), tokens, lambda: now_ms)


# -- cached tokens ------------------------------------------------------------------------------------------------


def test_before_tokens_are_loaded_servers_are_admitted_and_others_get_unavailable() -> None:
    """A 401 would make a client with a valid token stop."""
    metadata, _, access = make_access()
    assert access.identify(SYSTEM_SHOWN).is_system
    with pytest.raises(Refusal, match="not loaded yet") as caught:
        access.identify(shown(ALICE))
    assert (caught.value.code, caught.value.is_retryable) == ("unavailable", True)
    with pytest.raises(NotAuthenticated, match="a token is missing"):
        access.identify(None)
    metadata.snapshot = make_snapshot()
    with pytest.raises(NotAuthenticated, match="token rejected"):
        access.identify(shown(ALICE))


def test_tokens_follow_the_snapshot_without_a_query() -> None:
    metadata, _, access = make_access()
    metadata.snapshot = replace(make_snapshot(), tokens=(ALICE.token,))
    caller = access.identify(shown(ALICE))
    assert caller.token == ALICE.token
    assert access.is_valid(caller)
    metadata.snapshot = replace(make_snapshot(version=2), tokens=(BOB.token,))
    assert not access.is_valid(caller)
    with pytest.raises(NotAuthenticated):
        access.identify(shown(ALICE))
    assert access.identify(shown(BOB)).allows(Scope.CONSUME, "anything")


def test_unknown_tokens_share_a_refresh() -> None:
    """A new token works at once, and unknown tokens cannot overload the database."""

    async def run() -> None:
        asked = []

        async def load(version: int) -> Snapshot | None:
            asked.append(version)
            await asyncio.sleep(0.01)
            return replace(make_snapshot(), tokens=(ALICE.token,))

        metadata = MetadataCache(load, asyncio.get_running_loop().time)
        metadata.snapshot = replace(make_snapshot(), tokens=())
        access = ManagerAccess(SECRET.encode(), TokenCache(metadata), lambda: 0)
        with pytest.raises(NotAuthenticated):
            access.identify(shown(ALICE))
        assert await asyncio.gather(*(access.refresh() for _ in range(1000))) == [True] * 1000
        assert access.identify(shown(ALICE)).token == ALICE.token
        assert len(asked) <= 2

    on_virtual_time(run())


def test_unknown_token_stays_unknown_while_the_database_is_unavailable() -> None:
    async def run() -> None:
        async def load(_: int) -> None:
            raise DatabaseUnavailable("away")

        metadata = MetadataCache(load, asyncio.get_running_loop().time)
        metadata.snapshot = make_snapshot()
        assert not await TokenCache(metadata).refresh()

    on_virtual_time(run())


def test_token_expires_without_a_refresh() -> None:
    fleeting = hold("consume", expires_ms=1000)
    for now_ms, is_valid in ((999, True), (1000, False)):
        metadata, _, access = make_access(now_ms)
        metadata.snapshot = replace(make_snapshot(), tokens=(fleeting.token,))
        if is_valid:
            assert access.is_valid(access.identify(shown(fleeting)))
        else:
            with pytest.raises(NotAuthenticated):
                access.identify(shown(fleeting))


def test_snapshot_with_the_same_tokens_keeps_the_access_table() -> None:
    metadata, tokens, _ = make_access()
    metadata.snapshot = replace(make_snapshot(), tokens=(ALICE.token,))
    table = tokens.table
    metadata.snapshot = replace(make_snapshot(version=2), tokens=(replace(ALICE.token),))
    assert tokens.table is table
    metadata.snapshot = replace(make_snapshot(version=3), tokens=())
    assert tokens.table == AccessTable()


# -- topics by name and by id -------------------------------------------------------------------------------------


def test_caller_without_scope_cannot_detect_whether_a_topic_exists() -> None:
    async def test() -> None:
        manager = cast(
            "Manager", SimpleNamespace(metadata=make_metadata(make_topic("orders"), make_topic("x", id_="ef" * 16)))
        )
        alice = Caller("alice", ALICE.token)
        for name in ("x", "unreal", "orders.x", ""):
            with pytest.raises(Refusal, match="the scope produce on topic") as caught:
                await find_partition(manager, alice, Scope.PRODUCE, name, 0)
            assert caught.value.details == {"scope": "produce", "topic": name}
        assert (await find_partition(manager, alice, Scope.PRODUCE, "orders", 0)).name == "orders"
        assert (await find_partition(manager, alice, Scope.PRODUCE, f"id:{'ab' * 16}", 0)).name == "orders"
        with pytest.raises(Refusal) as caught:
            await find_partition(manager, alice, Scope.PRODUCE, f"id:{'ef' * 16}", 0)
        assert (caught.value.code, caught.value.details["topic"]) == ("forbidden", f"id:{'ef' * 16}")
        for unknown in ("id:orders", f"id:{'f' * 32}"):
            with pytest.raises(Refusal) as caught:
                await find_partition(manager, alice, Scope.PRODUCE, unknown, 0)
            assert caught.value.code == "unknown_partition"

    on_virtual_time(test())


# -- authentication to brokers ------------------------------------------------------------------------------------


class NotingPool:
    """Fake pool that records the authorization headers."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str | None]] = []

    async def request(
        self,
        _: str,
        method: str,
        target: str,
        __: object = b"",
        headers: Sequence[tuple[str, str]] = (),
        **___: object,
    ) -> Response:
        self.shown.append((f"{method} {target.partition('?')[0]}", dict(headers).get("authorization")))
        body = b'{"id": "x", "base_offset": 0, "append_time_ms": 1, "role": "leader", "leader": "a"}'
        return Response(200, {b"flotilla-first-offset": b"0", b"flotilla-next-offset": b"0"}, body)


def test_system_token_is_not_sent_to_an_unregistered_address() -> None:
    """The address of a new broker can be any server, which must not get the token of servers."""

    async def test() -> list[tuple[str, str | None]]:
        noting = NotingPool()
        with contextlib.suppress(CommandFailed):
            await Commands(cast("Pool", noting), system_headers(SECRET.encode())).describe("http://a:1", is_ours=False)
        return noting.shown

    assert [one for _, one in on_virtual_time(test())] == [None]


@pytest.mark.parametrize("secret", [None, SECRET.encode()])
def test_every_request_to_a_broker_has_the_system_token(secret: bytes | None) -> None:
    """The token is derived from the shared secret, which is never sent."""

    async def test() -> list[tuple[str, str | None]]:
        noting, topic = NotingPool(), make_topic()
        pool, headers = cast("Pool", noting), system_headers(secret)
        metadata = make_metadata(topic)
        gateway = Gateway(pool, pool, metadata, asyncio.get_running_loop().time, headers)
        await gateway.append(topic, 0, b"x", timeout_s=1)
        await gateway.offsets(topic, 0, timeout_s=1)
        await gateway.describe(topic, topic.partitions[0], timeout_s=1)
        commands = Commands(pool, headers)
        await commands.describe("http://a:1", is_ours=True)
        for kind in (DeleteReplica, Campaign):
            command = kind(broker="a", topic_id="1" * 32, partition=0, epoch=1)
            await commands.send(command, a_broker(), 1, "c" * 32)
        assert len(noting.shown) == 6
        return noting.shown

    expected = None if secret is None else f"Bearer {system_token(secret)}"
    assert {one for _, one in on_virtual_time(test())} == {expected}


# -- changes of tokens --------------------------------------------------------------------------------------------


def keeper(writer: WriterHarness, now_ms: int = 1000) -> TokenService:
    return TokenService(
        writer.election,
        writer.database,
        writer.metadata,
        random_bytes=writer.store._random_bytes,
        now_ms=lambda: now_ms,
    )


SPEC = TokenSpec(name="x", grants=(Grant.parse("consume"), Grant.parse("consume:*"), Grant.parse("admin:a")))


def test_token_is_created_listed_and_revoked(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        tokens = keeper(writer)
        token, text = await tokens.create(replace(SPEC, expires_in_s=5, bytes_per_s=7))
        assert (token.created_ms, token.expires_ms, token.bytes_per_s) == (1000, 6000, 7)
        assert [str(grant) for grant in token.grants] == ["consume:*", "admin:a"]
        assert await tokens.list_all() == (token,)
        access = ManagerAccess(None, TokenCache(writer.metadata), lambda: 1000)
        assert access.identify(f"Bearer {text}".encode()).token == token
        await tokens.revoke(token.id)
        assert await tokens.list_all() == ()
        with pytest.raises(NotAuthenticated):
            access.identify(f"Bearer {text}".encode())
        with pytest.raises(Refusal, match="there is no token") as caught:
            await tokens.revoke(token.id)
        assert caught.value.code == "not_found"

    on_bench(tmp_path, work)


def test_standby_refuses_changes_of_tokens(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        tokens = keeper(bench.manager())
        for call in (tokens.create(SPEC), tokens.revoke("0" * 16), tokens.list_all()):
            with pytest.raises(Refusal, match="No writer is active"):
                await call

    on_bench(tmp_path, work)


def test_too_many_tokens_and_invalid_names_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        tokens = keeper(await bench.writer())
        monkeypatch.setattr(stored, "TOKENS_MAX", 1)
        await tokens.create(SPEC)
        with pytest.raises(Refusal, match="the limit is 1; revoke unused tokens") as caught:
            await tokens.create(SPEC)
        assert caught.value.code == "conflict"
        with pytest.raises(Refusal, match="name of a token must be") as caught:
            await tokens.create(replace(SPEC, name=" x"))
        assert caught.value.code == "bad_request"

    on_bench(tmp_path, work)


def test_access_table_for_brokers_is_encoded_once_per_change() -> None:
    """All brokers request it in the same second, and encoding a large table takes time."""
    metadata, tokens, _ = make_access()
    metadata.snapshot = replace(make_snapshot(), tokens=(ALICE.token,))
    written = tokens.written
    metadata.snapshot = replace(make_snapshot(version=2), tokens=(ALICE.token,))
    assert tokens.written is written
    metadata.snapshot = replace(make_snapshot(version=3), tokens=(BOB.token,))
    assert AccessTable.from_builtins(msgspec.json.decode(tokens.written)) == AccessTable((BOB.token,))


def test_heartbeat_response_has_tokens_if_the_brokers_table_differs(tmp_path: Path) -> None:
    """A revocation reaches a broker with its next heartbeat; an unchanged table is not sent."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        (broker,) = writer.brokers.values()
        tokens = keeper(writer)

        async def response_table(version: str | None) -> AccessTable | None:
            answer = await writer.service.brokers.heartbeat(broker.heartbeat(access=version))
            assert answer["known"]
            return AccessTable.from_builtins(msgspec.json.decode(answer["access"])) if "access" in answer else None

        assert await response_table("") == AccessTable()
        assert await response_table(AccessTable().version) is None
        token, _ = await tokens.create(SPEC)
        table = await response_table(AccessTable().version)
        assert table == AccessTable((token,))
        assert table is not None
        assert await response_table(table.version) is None
        assert await response_table(None) is None
        await tokens.revoke(token.id)
        assert await response_table(table.version) == AccessTable()

    on_bench(tmp_path, work)
