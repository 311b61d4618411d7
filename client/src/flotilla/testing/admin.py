"""Calls for people about the system itself: what it is, its managers and its brokers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flotilla import __version__
from flotilla.serving import shapes
from flotilla.serving.errors import Refusal
from flotilla.testing.calls import Table, for_people
from flotilla.testing.world import Broker, World


class Admin:
    """Answers about the system."""

    def __init__(self, world: World, url: str) -> None:
        self._world = world
        self._url = url

    @property
    def table(self) -> Table:
        """The calls."""
        changes: dict[str, Callable[[shapes.BrokerHost], dict[str, Any]]] = {
            "add": self.add_broker,
            "remove": self.remove_broker,
            "activate": lambda params: self._cordon(params, "activated", cordoned=False),
            "deactivate": lambda params: self._cordon(params, "deactivated", cordoned=True),
        }
        return {
            ("GET", "/"): for_people(shapes.Nothing, self.root),
            ("GET", "/brokers"): for_people(shapes.Nothing, self.list_brokers),
            ("GET", "/managers"): for_people(shapes.Nothing, self.list_managers),
            **{("POST", f"/admin/broker/{what}"): for_people(shapes.BrokerHost, act) for what, act in changes.items()},
        }

    def root(self, _: shapes.Nothing) -> dict[str, Any]:
        """Say hello."""
        text = "Flotilla, a replicated log queue."
        return {"message": text, "version": __version__, "role": "writer", "docs": "/docs"}

    def list_brokers(self, _: shapes.Nothing) -> dict[str, Any]:
        """List the brokers."""
        return {
            "brokers": [
                {
                    "broker_id": one.id,
                    "broker_host": one.host,
                    "rack": None,
                    "status": "active",
                    "deactivated": one.cordoned,
                    "replicas": self._world.count_replicas(one),
                }
                for one in self._world.brokers
            ]
        }

    def list_managers(self, _: shapes.Nothing) -> dict[str, Any]:
        """List the managers: the fake itself."""
        return {"managers": [{"name": "fake", "role": "writer", "url": self._url, "status": "active"}]}

    def add_broker(self, params: shapes.BrokerHost) -> dict[str, Any]:
        """Let a broker take part again; there are no others."""
        host = params.broker_host
        broker = self._world.find_broker(host, removed=True) or self._world.find_broker(host)
        if broker is None:
            raise Refusal("bad_request", f"no broker answers at {host}.")
        return self._put(replace(broker, removed=False), "added")

    def remove_broker(self, params: shapes.BrokerHost) -> dict[str, Any]:
        """Do without a broker that holds nothing."""
        broker = self._find(params)
        held = self._world.count_replicas(broker)
        if held:
            replicas = "1 replica" if held == 1 else f"{held} replicas"
            raise Refusal("conflict", f"Broker {broker.id} holds {replicas}; it can be removed when it holds none.")
        if len(self._world.brokers) == 1:
            raise Refusal("conflict", "This is the last broker of a fake, which needs one.")
        return self._put(replace(broker, removed=True), "removed")

    def _cordon(self, params: shapes.BrokerHost, done: str, *, cordoned: bool) -> dict[str, Any]:
        """Keep leaders away from a broker, or let them come."""
        return self._put(replace(self._find(params), cordoned=cordoned), done)

    def _find(self, params: shapes.BrokerHost) -> Broker:
        broker = self._world.find_broker(params.broker_host)
        if broker is None:
            raise Refusal("bad_request", f"No broker is registered at {params.broker_host}.")
        return broker

    def _put(self, broker: Broker, done: str) -> dict[str, Any]:
        self._world.put_broker(broker)
        return {"message": f"Broker {done} successfully.", "broker_id": broker.id}
