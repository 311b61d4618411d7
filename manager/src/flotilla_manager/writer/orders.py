"""Orders to brokers, as HTTP requests. Each carries the writer's epoch, and can be given again."""

import asyncio
from itertools import groupby
from typing import Any

import msgspec

from flotilla.net import Disconnected, Pool, Response
from flotilla.serving.errors import Refusal
from flotilla_manager.model import Broker
from flotilla_manager.planning import CloseReplica, HandOver, OpenReplica, Order, SendBook, Stand
from flotilla_manager.routing.verdicts import refusal_in

_ORDER_S = 5.0
_TOGETHER_MAX = 32
_OK = 200
_NOT_FOUND = 404
_CLOSED = {401, 403}


class OrderFailed(Exception):
    """A broker did not carry an order out, or did not say so. The order can be given again."""


class BrokerSilent(OrderFailed):
    """A broker does not answer."""


class StaleWriterRefused(OrderFailed):
    """A broker has had orders of a later writer."""


class Orders:
    """Gives orders."""

    def __init__(self, pool: Pool, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """Make it. `headers` show brokers that a server of their cluster asks."""
        self._pool = pool
        self._headers = headers

    async def give(self, order: Order, broker: Broker, epoch: int, cluster_id: str) -> None:
        """Give one order. Raises OrderFailed."""
        method, target, body = write_order(order, epoch, cluster_id)
        try:
            response = await self._pool.request(
                broker.url,
                method,
                target,
                msgspec.json.encode(body) if body is not None else b"",
                (("content-type", "application/json"), *self._headers),
                timeout_s=_ORDER_S,
            )
        except (Disconnected, TimeoutError, OSError, ValueError) as error:  # ValueError: it has no address at all
            raise BrokerSilent(f"broker {broker.id} at {broker.url} does not answer: {error}") from error
        self._check(order, broker, response)

    def _check(self, order: Order, broker: Broker, response: Response) -> None:
        if response.status == _OK or (isinstance(order, CloseReplica) and response.status == _NOT_FOUND):
            return
        refusal = refusal_in(response.body)
        kind = StaleWriterRefused if refusal.code == "stale_writer" else OrderFailed
        raise kind(f"broker {broker.id} refused {type(order).__name__}: {refusal.code}: {refusal}")

    async def describe(self, url: str, *, is_ours: bool) -> dict[str, Any]:
        """Ask a broker who it is. Raises OrderFailed. Strangers are not shown what servers know each other by."""
        headers = self._headers if is_ours else ()
        try:
            response = await self._pool.request(url, "GET", "/v1/broker", headers=headers, timeout_s=_ORDER_S)
            found = response.json() if response.status == _OK else None
        except (Disconnected, TimeoutError, OSError, ValueError) as error:
            raise OrderFailed(f"no broker answers at {url}: {error}") from error
        if response.status in _CLOSED:
            raise OrderFailed(f"the broker at {url} has not registered: tell it where managers are, and it will")
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise OrderFailed(f"what answers at {url} is not a broker")
        return found

    async def give_all(
        self, orders: list[tuple[Order, Broker]], epoch: int, cluster_id: str
    ) -> list[tuple[Order, OrderFailed | None]]:
        """Give orders: to each broker one after the other, to all brokers at once. Tell how each ended."""
        by_broker: dict[str, list[tuple[Order, Broker]]] = {}
        for order, broker in orders:
            by_broker.setdefault(broker.id, []).append((order, broker))
        results = await asyncio.gather(
            *(self._give_in_turn(theirs, epoch, cluster_id) for theirs in by_broker.values())
        )
        return [pair for theirs in results for pair in theirs]

    async def _give_in_turn(
        self, orders: list[tuple[Order, Broker]], epoch: int, cluster_id: str
    ) -> list[tuple[Order, OrderFailed | None]]:
        """Give one broker its orders: those of one kind together, so that they share the flushes of its log."""
        results: list[tuple[Order, OrderFailed | None]] = []
        for _, alike in groupby(orders, key=lambda pair: type(pair[0])):
            todo = list(alike)
            for start in range(0, len(todo), _TOGETHER_MAX):
                some = todo[start : start + _TOGETHER_MAX]
                ends = await asyncio.gather(*(self._try(order, broker, epoch, cluster_id) for order, broker in some))
                results += zip((order for order, _ in some), ends, strict=True)
                if ends and all(isinstance(end, BrokerSilent) for end in ends):
                    return results + [(order, ends[0]) for order, _ in orders[len(results) :]]
        return results

    async def _try(self, order: Order, broker: Broker, epoch: int, cluster_id: str) -> OrderFailed | None:
        try:
            await self.give(order, broker, epoch, cluster_id)
        except OrderFailed as error:
            return error
        return None


def write_order(order: Order, epoch: int, cluster_id: str) -> tuple[str, str, dict[str, Any] | None]:
    """Write an order down: method, target and body."""
    common = {"writer_epoch": epoch, "cluster_id": cluster_id}
    if isinstance(order, SendBook):
        brokers = {
            one.broker: {
                "host": one.host,
                "port": one.port,
                "peer_host": one.peer_host,
                "peer_port": one.peer_port,
                "tls": one.tls,
            }
            for one in order.book
        }
        return "PUT", "/v1/brokers", {**common, "brokers": brokers}
    target = f"/v1/replicas/{order.topic_id}/{order.partition}/{order.epoch}"
    if isinstance(order, OpenReplica):
        limits = {"retention_ms": order.retention_ms, "retention_bytes": order.retention_bytes}
        if order.batch_bytes_max is not None:  # a broker of the version before knows no such limit, and needs none
            limits["batch_bytes_max"] = order.batch_bytes_max
        return "PUT", target, {**common, "topic": order.topic, "members": list(order.members), **limits}
    if isinstance(order, CloseReplica):
        return "DELETE", f"{target}?writer_epoch={epoch}&cluster_id={cluster_id}", None
    if isinstance(order, HandOver):
        return "POST", f"{target}/hand-over", {**common, "target": order.target}
    assert isinstance(order, Stand)  # noqa: S101 - tells mypy that there are no others
    return "POST", f"{target}/stand", common


def to_refusal(error: OrderFailed) -> Refusal:
    """Tell a client that a broker did not do what was asked for."""
    return Refusal("unavailable", f"A broker did not carry out its part; try again. ({error})")
