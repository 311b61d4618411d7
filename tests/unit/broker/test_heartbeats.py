"""Heartbeats to managers: any manager will do, errors do not affect the broker, and only changes are logged."""

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest

from flotilla_broker.heartbeats import BODY_BYTES_MAX, TARGET, HeartbeatSender, encode_heartbeat, retry_s
from flotilla_broker.server import Broker
from flotilla_broker.settings import Settings
from flotilla_server.broker_starts import StartVerdict
from support.access import SECRET, SYSTEM, hold, table_of
from unit.net.harness import Serve, on_loop, read_request, serving, silent, until

ACCEPTED = b'{"status": "ok", "writer_epoch": 3, "known": true}'


class Manager:
    """A manager with configurable responses to heartbeats."""

    def __init__(self, status: int = 200, body: bytes = ACCEPTED) -> None:
        self.status, self.body = status, body
        self.heard: list[tuple[bytes, bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self.heard.append(await read_request(reader))
            head = f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(self.body)}\r\n\r\n"
            writer.write(head.encode() + self.body)


class Registered:
    """A broker that sends heartbeats, and the results."""

    def __init__(self, *managers: str, heartbeat: bytes = b"{}") -> None:
        self.accepted = 0
        self.verdicts: list[StartVerdict] = []
        self.heartbeat = heartbeat
        self._task = asyncio.create_task(HeartbeatSender(managers, self._make, self._accept, interval_s=0.02).run())

    def _make(self) -> bytes:
        if not self.heartbeat:
            raise RuntimeError("no heartbeat today")
        return self.heartbeat

    def _accept(self, verdict: StartVerdict) -> None:
        self.accepted += 1
        self.verdicts.append(verdict)

    async def close(self) -> None:
        assert not self._task.done(), "heartbeats continue"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def disconnect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_heartbeats_are_repeated() -> None:
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


@pytest.mark.parametrize("other", [disconnect, Manager(503, b"").serve, Manager(200, b"nonsense").serve, None])
def test_unresponsive_manager_is_skipped_and_the_responsive_one_is_kept(other: Serve | None) -> None:
    async def body() -> None:
        manager = Manager()
        async with serving(other or silent) as first, serving(manager.serve) as second:
            bad = first.url if other is not None else "http://127.0.0.1:1"
            registered = Registered(bad, second.url)
            await until(lambda: registered.accepted >= 5)
            await registered.close()
            assert first.connections <= 1, "the manager that responded last is asked first"

    on_loop(body)


def test_without_a_manager_heartbeats_are_retried_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
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


def test_rejection_is_logged_once_and_heartbeats_continue(caplog: pytest.LogCaptureFixture) -> None:
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


def test_failed_or_oversized_heartbeat_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        manager = Manager()
        async with serving(manager.serve) as server:
            registered = Registered(server.url, heartbeat=b"")
            await until(lambda: "no heartbeat today" in caplog.text)
            registered.heartbeat = bytes(BODY_BYTES_MAX + 1)
            await until(lambda: "heartbeat too large" in caplog.text)
            assert manager.heard == []
            registered.heartbeat = b"{}"
            await until(lambda: registered.accepted == 1)
            await registered.close()

    on_loop(body)


def test_backoff_grows_up_to_a_limit() -> None:
    waits = [retry_s(failures) for failures in range(1, 100)]
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert max(waits) == waits[-1] == 0.5


def test_broker_authenticates_as_a_server() -> None:
    """With a token that is derived from the secret: the secret itself is never sent."""

    async def body() -> None:
        manager = Manager()
        async with serving(manager.serve) as server:
            sender = HeartbeatSender(
                (server.url,), lambda: b"{}", lambda _: None, interval_s=0.02, secret=SECRET.encode()
            )
            task = asyncio.create_task(sender.run())
            await until(lambda: len(manager.heard) >= 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for head, _ in manager.heard:
            assert f"authorization: {SYSTEM['authorization']}\r\n".encode() in head
            assert SECRET.encode() not in head

    on_loop(body)


class TableManager(Manager):
    """A manager whose responses contain a table and the epoch of its writer."""

    def set_response(self, epoch: int, table: object) -> None:
        self.body = json.dumps({"status": "ok", "writer_epoch": epoch, "known": True, "access": table}).encode()

    @property
    def announced_version(self) -> object:
        """The table version that the broker announces."""
        return json.loads(self.heard[-1][1]).get("access") if self.heard else None


def test_broker_applies_the_table_of_a_response_and_announces_its_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not an unreadable one, nor one of a replaced writer; both leave it registered."""
    one, two = table_of(hold("produce:a")), table_of(hold("consume:b"))

    async def body() -> None:
        manager = TableManager()
        async with serving(manager.serve) as server:
            settings = Settings(
                data=tmp_path, auth="on", secret=SECRET.encode(), managers=(server.url,), manager_heartbeat_s=0.02
            )
            broker = Broker.open(settings, on_failure=lambda _: None)
            assert broker.access is not None
            task = asyncio.create_task(HeartbeatSender.of(broker).run())
            await until(lambda: manager.announced_version == "")
            manager.set_response(5, one.to_builtins())
            await until(lambda: manager.announced_version == one.version)
            broker.identity.check_writer_epoch(5)
            for epoch, table in ((4, two.to_builtins()), (5, {"format": 2}), (5, None), (5, "x")):
                manager.set_response(epoch, table)
                heard = len(manager.heard)
                await until(lambda heard=heard: len(manager.heard) >= heard + 3)  # type: ignore[misc]
                assert manager.announced_version == one.version
                assert broker.is_registered
            manager.set_response(6, two.to_builtins())
            await until(lambda: manager.announced_version == two.version)
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await broker.close()

    on_loop(body)
    assert "keeping the previous one" in caplog.text


def test_broker_without_authentication_requests_no_table(tmp_path: Path) -> None:
    async def body() -> None:
        broker = Broker.open(Settings(data=tmp_path), on_failure=lambda _: None)
        assert "access" not in json.loads(encode_heartbeat(broker))
        await broker.close()

    on_loop(body)


@pytest.mark.parametrize(
    ("verdict", "is_registered", "is_admitted", "failure"),
    [
        ("confirmed", True, True, None),
        ("unconfirmed", False, False, None),
        ("older_copy", False, False, "log is an older copy: managers remember"),
        ("duplicate", False, False, "another broker with id .* is running: data folder .* is a copy"),
    ],
)
def test_broker_obeys_the_verdict_of_managers_on_its_start(
    verdict: str, is_registered: bool, is_admitted: bool, failure: str | None, tmp_path: Path
) -> None:
    """Guarantee 1 for restored volumes: a group of one can only be confirmed by managers."""
    failures: list[BaseException] = []

    async def body() -> None:
        manager = Manager(body=json.dumps({"status": "ok", "known": True, "start": verdict}).encode())
        async with serving(manager.serve) as server:
            settings = Settings(data=tmp_path, managers=(server.url,), manager_heartbeat_s=0.02)
            first = Broker.open(settings, on_failure=failures.append)
            known = first.identity.id
            await first.close()
            broker = Broker.open(settings, on_failure=failures.append)
            task = asyncio.create_task(HeartbeatSender.of(broker).run())
            await until(lambda: len(manager.heard) >= 3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            start = json.loads(manager.heard[0][1])["start"]
            assert start["number"] == 2
            assert start["lsn"] == start["recovered_lsn"] == broker.identity.recovered_lsn
            assert broker.is_registered is is_registered
            assert broker.volume_check.admit([known]) is is_admitted
            await broker.close()
            again = Broker.open(settings, on_failure=failures.append)
            assert (again.identity.id == known) is (verdict != "older_copy"), "an older copy gives up its id"
            await again.close()

    on_loop(body)
    assert bool(failures) is (failure is not None)
    if failure is not None:
        assert re.match(failure, str(failures[0]))


def test_heartbeat_announces_its_interval(tmp_path: Path) -> None:
    async def body() -> None:
        broker = Broker.open(Settings(data=tmp_path, manager_heartbeat_s=2.5), on_failure=lambda _: None)
        assert json.loads(encode_heartbeat(broker))["manager_heartbeat_s"] == 2.5
        await broker.close()

    on_loop(body)
