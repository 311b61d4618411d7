"""Commands to brokers: format, order, and interpretation of responses."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flotilla.net import Disconnected, Response
from flotilla.protocol.errors import Refusal
from flotilla_manager.model import Broker
from flotilla_manager.planning import Campaign, Command, DeleteReplica, PutReplica, TransferLeadership
from flotilla_manager.writer.commands import BrokerUnreachable, CommandFailed, Commands, StaleWriterRejected, to_request
from support.metadata import a_broker, an_id

TOPIC = an_id(1)
OK = Response(200, {}, b"{}")


class MadeUpPool:
    """Fake pool with scripted responses, which records requests."""

    def __init__(self, answer: Callable[[str, str], Response]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, str, str]] = []
        self.open = self.open_max = 0

    async def request(self, url: str, method: str, target: str, *_: Any, **__: Any) -> Response:  # noqa: ANN401
        self.asked.append((url, method, target))
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        return self._answer(method, target)


def put_replica(broker: Broker, partition: int = 0) -> PutReplica:
    return PutReplica(
        broker=broker.id,
        topic_id=TOPIC,
        partition=partition,
        epoch=1,
        topic="t",
        members=(broker.id,),
        retention_ms=None,
        retention_bytes=None,
    )


def delete_replica(broker: Broker, partition: int = 0) -> DeleteReplica:
    return DeleteReplica(broker=broker.id, topic_id=TOPIC, partition=partition, epoch=1)


def send(pool: MadeUpPool, commands: Sequence[tuple[Command, Broker]]) -> list[CommandFailed | None]:
    made = Commands(pool)  # type: ignore[arg-type]
    return [end for _, end in asyncio.run(made.send_all(list(commands), 7, "c"))]


def refusal(code: str) -> Response:
    refused = Refusal(code, "no")
    return Response(refused.status, {}, refused.to_bytes())


def test_open_command_has_a_batch_limit_only_if_the_topic_has_one() -> None:
    """Brokers of the previous version reject unknown fields; most topics have no limit."""
    _, _, body = to_request(put_replica(a_broker()), 7, "c")
    assert body is not None
    assert "batch_bytes_max" not in body
    _, _, body = to_request(replace(put_replica(a_broker()), batch_bytes_max=4096), 7, "c")
    assert body is not None
    assert body["batch_bytes_max"] == 4096


@pytest.mark.parametrize("command", [put_replica(a_broker()), delete_replica(a_broker())])
def test_every_command_has_the_writer_epoch(command: Command) -> None:
    """Guarantee 6: brokers check the epoch of every command."""
    broker = a_broker()
    commands: list[Command] = [
        command,
        Campaign(broker=broker.id, topic_id=TOPIC, partition=0, epoch=1),
        TransferLeadership(broker=broker.id, topic_id=TOPIC, partition=0, epoch=1, target=an_id(2)),
    ]
    for one in commands:
        _, target, body = to_request(one, 7, "c")
        assert "writer_epoch=7" in target or (body is not None and body["writer_epoch"] == 7)


def test_missing_replica_counts_as_closed_but_not_as_opened() -> None:
    broker = a_broker()
    pool = MadeUpPool(lambda *_: refusal("not_found"))
    ends = send(pool, [(delete_replica(broker), broker), (put_replica(broker), broker)])
    assert ends[0] is None
    assert isinstance(ends[1], CommandFailed)


def test_stale_writer_response_is_distinguished_from_other_failures() -> None:
    broker = a_broker()
    (end,) = send(MadeUpPool(lambda *_: refusal("stale_writer")), [(put_replica(broker), broker)])
    assert isinstance(end, StaleWriterRejected)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"code": 5}'])
def test_invalid_response_is_a_failure(body: bytes) -> None:
    broker = a_broker()
    (end,) = send(MadeUpPool(lambda *_: Response(500, {}, body)), [(put_replica(broker), broker)])
    assert isinstance(end, CommandFailed)


def test_unresponsive_broker_gets_no_further_commands() -> None:
    """Otherwise hundreds of commands that time out would block the writer for minutes."""
    broker = a_broker()
    commands: list[tuple[Command, Broker]] = [(put_replica(broker, at), broker) for at in range(200)]
    dead = MadeUpPool(lambda *_: _raise(Disconnected("connection refused", sent=False)))
    ends = send(dead, commands)
    assert len(ends) == 200
    assert all(isinstance(end, BrokerUnreachable) for end in ends)
    assert len(dead.asked) == 32
    assert send(MadeUpPool(lambda *_: OK), commands) == [None] * 200


def _raise(error: Exception) -> Response:
    raise error


def test_invalid_address_affects_only_its_own_broker() -> None:
    """A broker with an invalid address must not block commands to the others."""
    broken, good = a_broker(1, host="a..b"), a_broker(2)

    class Pool(MadeUpPool):
        async def request(self, url: str, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401
            if "a..b" in url:
                raise UnicodeError("label empty or too long")
            return await super().request(url, *args, **kwargs)

    ends = send(Pool(lambda *_: OK), [(put_replica(broken), broken), (put_replica(good), good)])
    assert isinstance(ends[0], BrokerUnreachable)
    assert ends[1] is None


def test_commands_are_sent_in_order_batched_by_kind_with_limited_concurrency() -> None:
    broker = a_broker()
    commands: list[tuple[Command, Broker]] = [(delete_replica(broker, at), broker) for at in range(40)]
    commands += [(put_replica(broker, at), broker) for at in range(40)]
    pool = MadeUpPool(lambda *_: OK)
    send(pool, commands)
    assert [method for _, method, _ in pool.asked] == ["DELETE"] * 40 + ["PUT"] * 40
    assert pool.open_max == 32


@pytest.mark.parametrize("body", [b"", b"[]", b'{"id": 5}', b"{}"])
def test_response_of_another_server_is_not_accepted_as_a_broker(body: bytes) -> None:
    commands = Commands(MadeUpPool(lambda *_: Response(200, {}, body)))  # type: ignore[arg-type]
    with pytest.raises(CommandFailed):
        asyncio.run(commands.describe("http://x:1", is_ours=True))
