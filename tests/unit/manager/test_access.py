"""Who may call a manager: tokens of the last snapshot, the writer's hand on them, and what brokers are told."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from flotilla.access import AccessTable, Caller, Grant, NotAuthenticated, Scope, system_text
from flotilla.net import Pool, Response
from flotilla.serving.errors import Refusal
from flotilla_manager.access import KnownTokens, ManagerAccess, system_headers
from flotilla_manager.api.data import find_partition
from flotilla_manager.manager import Manager
from flotilla_manager.metadata import tokens as stored
from flotilla_manager.metadata.errors import DatabaseAway
from flotilla_manager.model import Snapshot
from flotilla_manager.planning import CloseReplica, Stand
from flotilla_manager.routing.gateway import Gateway
from flotilla_manager.view import View
from flotilla_manager.writer.orders import OrderFailed, Orders
from flotilla_manager.writer.tokens import TokenKeeper, TokenSpec
from support.access import SECRET, SYSTEM, Holder, hold
from support.metadata import a_broker
from support.writing import Bench, Writing, on_bench
from unit.manager.dataplane import make_snapshot, make_topic, make_view, on_virtual_time

ALICE, BOB = hold("produce:orders"), hold("consume")
SYSTEM_SHOWN = SYSTEM["authorization"].encode()


def shown(holder: Holder) -> bytes:
    return holder.headers["authorization"].encode()


def make_access(now_ms: int = 0) -> tuple[View, KnownTokens, ManagerAccess]:
    async def load(_: int) -> None:
        pytest.fail("the database was asked")

    view = View(load, lambda: 0.0)
    tokens = KnownTokens(view)
    return view, tokens, ManagerAccess(SECRET.encode(), tokens, lambda: now_ms)


# -- what is known here -------------------------------------------------------------------------------------------


def test_before_anything_is_known_only_servers_get_in_and_nobody_is_called_invalid() -> None:
    """A 401 would tell the holder of a valid token to give up."""
    view, _, access = make_access()
    assert access.identify(SYSTEM_SHOWN).is_system
    with pytest.raises(Refusal, match="not known yet") as caught:
        access.identify(shown(ALICE))
    assert (caught.value.code, caught.value.is_retryable) == ("unavailable", True)
    with pytest.raises(NotAuthenticated, match="a token is missing"):
        access.identify(None)
    view.snapshot = make_snapshot()
    with pytest.raises(NotAuthenticated, match="not valid"):
        access.identify(shown(ALICE))


def test_tokens_follow_the_snapshot_without_a_query() -> None:
    view, _, access = make_access()
    view.snapshot = replace(make_snapshot(), tokens=(ALICE.token,))
    caller = access.identify(shown(ALICE))
    assert caller.token == ALICE.token
    assert access.knows(caller)
    view.snapshot = replace(make_snapshot(version=2), tokens=(BOB.token,))
    assert not access.knows(caller)
    with pytest.raises(NotAuthenticated):
        access.identify(shown(ALICE))
    assert access.identify(shown(BOB)).allows(Scope.CONSUME, "anything")


def test_a_token_that_is_not_known_is_looked_for_and_those_who_show_such_share_the_question() -> None:
    """Whoever makes a token and uses it at once is not refused; wrong ones do not keep the database busy."""

    async def run() -> None:
        asked = []

        async def load(version: int) -> Snapshot | None:
            asked.append(version)
            await asyncio.sleep(0.01)
            return replace(make_snapshot(), tokens=(ALICE.token,))

        view = View(load, asyncio.get_running_loop().time)
        view.snapshot = replace(make_snapshot(), tokens=())
        access = ManagerAccess(SECRET.encode(), KnownTokens(view), lambda: 0)
        with pytest.raises(NotAuthenticated):
            access.identify(shown(ALICE))
        assert await asyncio.gather(*(access.look_again() for _ in range(1000))) == [True] * 1000
        assert access.identify(shown(ALICE)).token == ALICE.token
        assert len(asked) <= 2

    on_virtual_time(run())


def test_while_the_database_is_away_an_unknown_token_stays_unknown() -> None:
    async def run() -> None:
        async def load(_: int) -> None:
            raise DatabaseAway("away")

        view = View(load, asyncio.get_running_loop().time)
        view.snapshot = make_snapshot()
        assert not await KnownTokens(view).look_again()

    on_virtual_time(run())


def test_a_token_expires_by_the_clock_alone() -> None:
    fleeting = hold("consume", expires_ms=1000)
    for now_ms, is_valid in ((999, True), (1000, False)):
        view, _, access = make_access(now_ms)
        view.snapshot = replace(make_snapshot(), tokens=(fleeting.token,))
        if is_valid:
            assert access.knows(access.identify(shown(fleeting)))
        else:
            with pytest.raises(NotAuthenticated):
                access.identify(shown(fleeting))


def test_a_snapshot_with_the_same_tokens_costs_no_new_table() -> None:
    view, tokens, _ = make_access()
    view.snapshot = replace(make_snapshot(), tokens=(ALICE.token,))
    table = tokens.table
    view.snapshot = replace(make_snapshot(version=2), tokens=(replace(ALICE.token),))
    assert tokens.table is table
    view.snapshot = replace(make_snapshot(version=3), tokens=())
    assert tokens.table == AccessTable()


# -- topics by name and by id -------------------------------------------------------------------------------------


def test_who_lacks_a_scope_does_not_learn_whether_a_topic_is_there() -> None:
    async def test() -> None:
        manager = cast("Manager", SimpleNamespace(view=make_view(make_topic("orders"), make_topic("x", id_="ef" * 16))))
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


# -- what managers show to brokers --------------------------------------------------------------------------------


class NotingPool:
    """Notes what is shown to it."""

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


def test_a_stranger_is_not_shown_what_servers_know_each_other_by() -> None:
    """Whoever may add a broker names any address; what answers there must not learn to pass as a server."""

    async def test() -> list[tuple[str, str | None]]:
        noting = NotingPool()
        with contextlib.suppress(OrderFailed):
            await Orders(cast("Pool", noting), system_headers(SECRET.encode())).describe("http://a:1", is_ours=False)
        return noting.shown

    assert [one for _, one in on_virtual_time(test())] == [None]


@pytest.mark.parametrize("secret", [None, SECRET.encode()])
def test_every_request_to_a_broker_shows_that_a_server_asks(secret: bytes | None) -> None:
    """With a secret that is shared; the secret itself is never sent."""

    async def test() -> list[tuple[str, str | None]]:
        noting, topic = NotingPool(), make_topic()
        pool, headers = cast("Pool", noting), system_headers(secret)
        view = make_view(topic)
        gateway = Gateway(pool, pool, view, asyncio.get_running_loop().time, headers)
        await gateway.append(topic, 0, b"x", seconds=1)
        await gateway.offsets(topic, 0, seconds=1)
        await gateway.describe(topic, topic.partitions[0], seconds=1)
        orders = Orders(pool, headers)
        await orders.describe("http://a:1", is_ours=True)
        for kind in (CloseReplica, Stand):
            order = kind(broker="a", topic_id="1" * 32, partition=0, epoch=1)
            await orders.give(order, a_broker(), 1, "c" * 32)
        assert len(noting.shown) == 6
        return noting.shown

    expected = None if secret is None else f"Bearer {system_text(secret)}"
    assert {one for _, one in on_virtual_time(test())} == {expected}


# -- the writer's hand on tokens ----------------------------------------------------------------------------------


def keeper(writer: Writing, now_ms: int = 1000) -> TokenKeeper:
    return TokenKeeper(
        writer.leadership,
        writer.database,
        writer.view,
        random_bytes=writer.store._random_bytes,
        now_ms=lambda: now_ms,
    )


SPEC = TokenSpec(name="x", grants=(Grant.parse("consume"), Grant.parse("consume:*"), Grant.parse("admin:a")))


def test_a_token_is_made_listed_and_revoked(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        tokens = keeper(writer)
        token, text = await tokens.create(replace(SPEC, expires_in_s=5, bytes_per_s=7))
        assert (token.created_ms, token.expires_ms, token.bytes_per_s) == (1000, 6000, 7)
        assert [str(grant) for grant in token.grants] == ["consume:*", "admin:a"]
        assert await tokens.list_all() == (token,)
        access = ManagerAccess(None, KnownTokens(writer.view), lambda: 1000)
        assert access.identify(f"Bearer {text}".encode()).token == token
        await tokens.revoke(token.id)
        assert await tokens.list_all() == ()
        with pytest.raises(NotAuthenticated):
            access.identify(f"Bearer {text}".encode())
        with pytest.raises(Refusal, match="there is no token") as caught:
            await tokens.revoke(token.id)
        assert caught.value.code == "not_found"

    on_bench(tmp_path, work)


def test_who_is_not_the_writer_does_nothing_with_tokens(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        tokens = keeper(bench.manager())
        for call in (tokens.create(SPEC), tokens.revoke("0" * 16), tokens.list_all()):
            with pytest.raises(Refusal, match="no writer at the moment"):
                await call

    on_bench(tmp_path, work)


def test_too_many_tokens_and_bad_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(bench: Bench) -> None:
        tokens = keeper(await bench.writer())
        monkeypatch.setattr(stored, "TOKENS_MAX", 1)
        await tokens.create(SPEC)
        with pytest.raises(Refusal, match="1 is the limit; revoke some") as caught:
            await tokens.create(SPEC)
        assert caught.value.code == "conflict"
        with pytest.raises(Refusal, match="name of a token must be") as caught:
            await tokens.create(replace(SPEC, name=" x"))
        assert caught.value.code == "bad_request"

    on_bench(tmp_path, work)


def test_the_table_for_brokers_is_written_once_and_anew_when_it_changes() -> None:
    """All brokers ask for it in the same second: a full one must not keep the writer from everything else."""
    view, tokens, _ = make_access()
    view.snapshot = replace(make_snapshot(), tokens=(ALICE.token,))
    written = tokens.written
    view.snapshot = replace(make_snapshot(version=2), tokens=(ALICE.token,))
    assert tokens.written is written
    view.snapshot = replace(make_snapshot(version=3), tokens=(BOB.token,))
    assert AccessTable.from_builtins(msgspec.json.decode(tokens.written)) == AccessTable((BOB.token,))


def test_a_broker_is_told_of_tokens_if_it_has_others_and_asks(tmp_path: Path) -> None:
    """With the next heartbeat it knows of a revocation; one that has the same table is told nothing."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer(brokers=1)
        (broker,) = writer.brokers.values()
        tokens = keeper(writer)

        async def told(version: str | None) -> AccessTable | None:
            answer = await writer.service.heartbeat(broker.beat(access=version))
            assert answer["known"]
            return AccessTable.from_builtins(msgspec.json.decode(answer["access"])) if "access" in answer else None

        assert await told("") == AccessTable()
        assert await told(AccessTable().version) is None
        token, _ = await tokens.create(SPEC)
        table = await told(AccessTable().version)
        assert table == AccessTable((token,))
        assert table is not None
        assert await told(table.version) is None
        assert await told(None) is None
        await tokens.revoke(token.id)
        assert await told(table.version) == AccessTable()

    on_bench(tmp_path, work)
