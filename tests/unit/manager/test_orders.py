"""Orders to brokers: how they are written, in which order they are given, and what answers mean."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flotilla.net import Disconnected, Response
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Broker
from flotilla_manager.planning import CloseReplica, HandOver, OpenReplica, Order, Stand
from flotilla_manager.writer.orders import BrokerSilent, OrderFailed, Orders, StaleWriterRefused, write_order
from support.metadata import a_broker, an_id

TOPIC = an_id(1)
OK = Response(200, {}, b"{}")


class MadeUpPool:
    """Answers as a test says, and notes what was asked."""

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


def opening(broker: Broker, partition: int = 0) -> OpenReplica:
    return OpenReplica(
        broker=broker.id,
        topic_id=TOPIC,
        partition=partition,
        epoch=1,
        topic="t",
        members=(broker.id,),
        retention_ms=None,
        retention_bytes=None,
    )


def closing(broker: Broker, partition: int = 0) -> CloseReplica:
    return CloseReplica(broker=broker.id, topic_id=TOPIC, partition=partition, epoch=1)


def give(pool: MadeUpPool, orders: Sequence[tuple[Order, Broker]]) -> list[OrderFailed | None]:
    made = Orders(pool)  # type: ignore[arg-type]
    return [end for _, end in asyncio.run(made.give_all(list(orders), 7, "c"))]


def refusal(code: str) -> Response:
    refused = Refusal(code, "no")
    return Response(refused.status, {}, refused.to_bytes())


def test_a_limit_for_batches_is_ordered_only_where_there_is_one() -> None:
    """A broker of the version before refuses what it does not know; most topics have no such limit."""
    _, _, body = write_order(opening(a_broker()), 7, "c")
    assert body is not None
    assert "batch_bytes_max" not in body
    _, _, body = write_order(replace(opening(a_broker()), batch_bytes_max=4096), 7, "c")
    assert body is not None
    assert body["batch_bytes_max"] == 4096


@pytest.mark.parametrize("order", [opening(a_broker()), closing(a_broker())])
def test_every_order_carries_the_writers_epoch(order: Order) -> None:
    """Guarantee 6: brokers check the epoch in every order."""
    broker = a_broker()
    orders: list[Order] = [
        order,
        Stand(broker=broker.id, topic_id=TOPIC, partition=0, epoch=1),
        HandOver(broker=broker.id, topic_id=TOPIC, partition=0, epoch=1, target=an_id(2)),
    ]
    for one in orders:
        _, target, body = write_order(one, 7, "c")
        assert "writer_epoch=7" in target or (body is not None and body["writer_epoch"] == 7)


def test_a_replica_that_is_not_there_counts_as_closed_but_not_as_opened() -> None:
    broker = a_broker()
    pool = MadeUpPool(lambda *_: refusal("not_found"))
    ends = give(pool, [(closing(broker), broker), (opening(broker), broker)])
    assert ends[0] is None
    assert isinstance(ends[1], OrderFailed)


def test_a_broker_that_has_seen_a_later_writer_is_told_apart() -> None:
    broker = a_broker()
    (end,) = give(MadeUpPool(lambda *_: refusal("stale_writer")), [(opening(broker), broker)])
    assert isinstance(end, StaleWriterRefused)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"code": 5}'])
def test_an_answer_that_cannot_be_understood_is_a_failure(body: bytes) -> None:
    broker = a_broker()
    (end,) = give(MadeUpPool(lambda *_: Response(500, {}, body)), [(opening(broker), broker)])
    assert isinstance(end, OrderFailed)


def test_a_broker_that_does_not_answer_is_not_asked_for_everything() -> None:
    """With hundreds of orders, each of which waits, one dead broker would hold everybody up for minutes."""
    broker = a_broker()
    orders: list[tuple[Order, Broker]] = [(opening(broker, at), broker) for at in range(200)]
    dead = MadeUpPool(lambda *_: _raise(Disconnected("nobody there", sent=False)))
    ends = give(dead, orders)
    assert len(ends) == 200
    assert all(isinstance(end, BrokerSilent) for end in ends)
    assert len(dead.asked) == 32
    assert give(MadeUpPool(lambda *_: OK), orders) == [None] * 200


def _raise(error: Exception) -> Response:
    raise error


def test_an_address_that_is_none_harms_only_its_own_broker() -> None:
    """A broker that registered with nonsense must not keep the writer from giving orders to the others."""
    broken, good = a_broker(1, host="a..b"), a_broker(2)

    class Pool(MadeUpPool):
        async def request(self, url: str, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401
            if "a..b" in url:
                raise UnicodeError("label empty or too long")
            return await super().request(url, *args, **kwargs)

    ends = give(Pool(lambda *_: OK), [(opening(broken), broken), (opening(good), good)])
    assert isinstance(ends[0], BrokerSilent)
    assert ends[1] is None


def test_a_broker_gets_its_orders_in_turn_those_of_one_kind_together_and_not_too_many_at_once() -> None:
    broker = a_broker()
    orders: list[tuple[Order, Broker]] = [(closing(broker, at), broker) for at in range(40)]
    orders += [(opening(broker, at), broker) for at in range(40)]
    pool = MadeUpPool(lambda *_: OK)
    give(pool, orders)
    assert [method for _, method, _ in pool.asked] == ["DELETE"] * 40 + ["PUT"] * 40
    assert pool.open_max == 32


@pytest.mark.parametrize("body", [b"", b"[]", b'{"id": 5}', b"{}"])
def test_what_is_not_a_broker_is_not_taken_for_one(body: bytes) -> None:
    orders = Orders(MadeUpPool(lambda *_: Response(200, {}, body)))  # type: ignore[arg-type]
    with pytest.raises(OrderFailed):
        asyncio.run(orders.describe("http://x:1", is_ours=True))
