"""Heartbeats to managers: any that answers will do, nothing disturbs the broker, and only changes are logged."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from flotilla_broker.registration import BODY_BYTES_MAX, TARGET, Registration, make_heartbeat, retry_s
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings
from support.access import SECRET, SYSTEM, hold, table_of
from unit.net.harness import Serve, on_loop, read_request, serving, silent, until

ACCEPTED = b'{"status": "ok", "writer_epoch": 3, "known": true}'


class Manager:
    """Answers heartbeats as it is told to."""

    def __init__(self, status: int = 200, body: bytes = ACCEPTED) -> None:
        self.status, self.body = status, body
        self.heard: list[tuple[bytes, bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self.heard.append(await read_request(reader))
            head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(self.body)}\r\n\r\n"
            writer.write(head.encode() + self.body)


class Registered:
    """A broker's registration, and what came of it."""

    def __init__(self, *managers: str, heartbeat: bytes = b"{}") -> None:
        self.accepted = 0
        self.heartbeat = heartbeat
        self._task = asyncio.create_task(Registration(managers, self._make, self._accept, every_s=0.02).run())

    def _make(self) -> bytes:
        if not self.heartbeat:
            raise RuntimeError("no heartbeat today")
        return self.heartbeat

    def _accept(self) -> None:
        self.accepted += 1

    async def close(self) -> None:
        assert not self._task.done(), "nothing ends it"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_heartbeats_go_out_again_and_again() -> None:
    async def body() -> None:
        manager = Manager()
        async with serving(manager.serve) as server:
            registered = Registered(server.url, heartbeat=b'{"id":"x"}')
            await until(lambda: registered.accepted >= 3)
            await registered.close()
            head, content = manager.heard[0]
            assert head.startswith(f"POST {TARGET} HTTP/1.1\r\n".encode())
            assert b"content-type: application/json" in head
            assert content == b'{"id":"x"}'
            assert server.connections == 1

    on_loop(body)


@pytest.mark.parametrize("other", [hang_up, Manager(503, b"").serve, Manager(200, b"nonsense").serve, None])
def test_a_manager_that_does_not_answer_is_passed_over_and_the_one_that_does_is_remembered(other: Serve | None) -> None:
    async def body() -> None:
        manager = Manager()
        async with serving(other or silent) as first, serving(manager.serve) as second:
            bad = first.url if other is not None else "http://127.0.0.1:1"
            registered = Registered(bad, second.url)
            await until(lambda: registered.accepted >= 5)
            await registered.close()
            assert first.connections <= 1, "the one that worked is asked first"

    on_loop(body)


def test_when_nobody_answers_it_goes_on_trying_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        manager = Manager(503, b"")
        async with serving(manager.serve) as server:
            registered = Registered(server.url)
            await until(lambda: len(manager.heard) >= 3)
            assert registered.accepted == 0
            manager.status, manager.body = 200, ACCEPTED
            await until(lambda: registered.accepted >= 2)
            await registered.close()

    caplog.set_level(logging.INFO)
    on_loop(body)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "503" in caplog.text


def test_a_refusal_is_an_error_that_is_told_once_and_heartbeats_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        manager = Manager(409, b'{"code": "conflict", "message": "it belongs to another cluster"}')
        async with serving(manager.serve) as server:
            registered = Registered(server.url)
            await until(lambda: len(manager.heard) >= 4)
            assert registered.accepted == 0
            await registered.close()

    on_loop(body)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "409 conflict: it belongs to another cluster" in caplog.text


def test_a_heartbeat_that_cannot_be_made_or_is_too_large_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        manager = Manager()
        async with serving(manager.serve) as server:
            registered = Registered(server.url, heartbeat=b"")
            await until(lambda: "no heartbeat today" in caplog.text)
            registered.heartbeat = bytes(BODY_BYTES_MAX + 1)
            await until(lambda: "is the limit" in caplog.text)
            assert manager.heard == []
            registered.heartbeat = b"{}"
            await until(lambda: registered.accepted == 1)
            await registered.close()

    on_loop(body)


def test_it_waits_longer_and_longer_but_never_for_long() -> None:
    waits = [retry_s(failures) for failures in range(1, 100)]
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert max(waits) == waits[-1] == 0.5


def test_a_broker_shows_managers_that_it_is_a_server_of_the_cluster() -> None:
    """By a token that is derived from the secret: the secret itself is never sent."""

    async def body() -> None:
        manager = Manager()
        async with serving(manager.serve) as server:
            registration = Registration(
                (server.url,), lambda: b"{}", lambda: None, every_s=0.02, secret=SECRET.encode()
            )
            task = asyncio.create_task(registration.run())
            await until(lambda: len(manager.heard) >= 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for head, _ in manager.heard:
            assert f"authorization: {SYSTEM['authorization']}\r\n".encode() in head
            assert SECRET.encode() not in head

    on_loop(body)


class Answering(Manager):
    """A manager that answers with a table, of a writer in some epoch."""

    def tell(self, epoch: int, table: object) -> None:
        self.body = json.dumps({"status": "ok", "writer_epoch": epoch, "known": True, "access": table}).encode()

    @property
    def told(self) -> object:
        """Which version the broker says it has."""
        return json.loads(self.heard[-1][1]).get("access") if self.heard else None


def test_a_broker_takes_over_the_table_in_an_answer_and_says_which_one_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not one that cannot be read, nor one of a writer that was replaced; neither costs it its registration."""
    one, two = table_of(hold("produce:a")), table_of(hold("consume:b"))

    async def body() -> None:
        manager = Answering()
        async with serving(manager.serve) as server:
            settings = Settings(
                data=tmp_path, auth="on", secret=SECRET.encode(), managers=(server.url,), manager_heartbeat_s=0.02
            )
            broker = Broker.open(settings, on_failure=lambda _: None)
            assert broker.access is not None
            task = asyncio.create_task(Registration.of(broker).run())
            await until(lambda: manager.told == "")
            manager.tell(5, one.to_builtins())
            await until(lambda: manager.told == one.version)
            broker.identity.heed(5)
            for epoch, table in ((4, two.to_builtins()), (5, {"format": 2}), (5, None), (5, "x")):
                manager.tell(epoch, table)
                heard = len(manager.heard)
                await until(lambda heard=heard: len(manager.heard) >= heard + 3)  # type: ignore[misc]
                assert manager.told == one.version
                assert broker.is_registered
            manager.tell(6, two.to_builtins())
            await until(lambda: manager.told == two.version)
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await broker.close()

    on_loop(body)
    assert "the one before stays in use" in caplog.text


def test_a_broker_that_does_not_check_callers_wants_no_table(tmp_path: Path) -> None:
    async def body() -> None:
        broker = Broker.open(Settings(data=tmp_path), on_failure=lambda _: None)
        assert "access" not in json.loads(make_heartbeat(broker))
        await broker.close()

    on_loop(body)
