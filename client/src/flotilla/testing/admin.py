"""Simple API of the fake: the system, its managers and its brokers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flotilla import __version__
from flotilla.protocol import simple_params
from flotilla.protocol.errors import Refusal
from flotilla.protocol.responses import SimpleBrokerResponse
from flotilla.protocol.simple_responses import (
    BrokerChangedResponse,
    ListedManagerResponse,
    ManagersResponse,
    RootResponse,
    status,
)
from flotilla.testing.routing import Routes, simple_handler
from flotilla.testing.state import Broker, ClusterState


class AdminApi:
    """Handlers of requests about the system."""

    def __init__(self, state: ClusterState, url: str) -> None:
        self._state = state
        self._url = url

    @property
    def routes(self) -> Routes:
        """The routes."""
        changes: dict[str, Callable[[simple_params.BrokerHost], dict[str, Any]]] = {
            "add": self.add_broker,
            "remove": self.remove_broker,
            "activate": lambda params: self._cordon(params, "activated", cordoned=False),
            "deactivate": lambda params: self._cordon(params, "deactivated", cordoned=True),
        }
        return {
            ("GET", "/"): simple_handler(simple_params.NoParams, self.root),
            ("GET", "/brokers"): simple_handler(simple_params.NoParams, self.list_brokers),
            ("GET", "/managers"): simple_handler(simple_params.NoParams, self.list_managers),
            **{
                ("POST", f"/admin/broker/{name}"): simple_handler(simple_params.BrokerHost, change)
                for name, change in changes.items()
            },
        }

    def root(self, _: simple_params.NoParams) -> dict[str, Any]:
        """Describe the system."""
        return RootResponse(version=__version__, role="writer").to_dict()

    def list_brokers(self, _: simple_params.NoParams) -> dict[str, Any]:
        """List the brokers."""
        return {
            "brokers": [
                SimpleBrokerResponse(
                    broker_id=one.id,
                    broker_host=one.host,
                    broker_name=one.name,
                    rack=None,
                    status=status(is_active=True),
                    deactivated=one.cordoned,
                    replicas=self._state.count_replicas(one),
                ).to_dict()
                for one in self._state.brokers
            ]
        }

    def list_managers(self, _: simple_params.NoParams) -> dict[str, Any]:
        """List the managers: only the fake itself."""
        fake = ListedManagerResponse(name="fake", role="writer", url=self._url, status=status(is_active=True))
        return ManagersResponse(managers=[fake]).to_dict()

    def add_broker(self, params: simple_params.BrokerHost) -> dict[str, Any]:
        """Add a removed broker again; the fake has no other brokers."""
        host = params.broker_host
        broker = self._state.find_broker(host, removed=True) or self._state.find_broker(host)
        if broker is None:
            raise Refusal("bad_request", f"no broker answers at {host}.")
        return self._put(replace(broker, removed=False), "added")

    def remove_broker(self, params: simple_params.BrokerHost) -> dict[str, Any]:
        """Remove a broker that has no replicas."""
        broker = self._find(params)
        held = self._state.count_replicas(broker)
        if held:
            replicas = "1 replica" if held == 1 else f"{held} replicas"
            raise Refusal(
                "conflict", f"Broker {broker.name} holds {replicas}; only a broker without replicas can be removed."
            )
        if len(self._state.brokers) == 1:
            raise Refusal("conflict", "This is the last broker; a fake needs at least one.")
        return self._put(replace(broker, removed=True), "removed")

    def _cordon(self, params: simple_params.BrokerHost, done: str, *, cordoned: bool) -> dict[str, Any]:
        """Cordon or uncordon a broker: a cordoned broker does not lead partitions."""
        return self._put(replace(self._find(params), cordoned=cordoned), done)

    def _find(self, params: simple_params.BrokerHost) -> Broker:
        broker = self._state.find_broker(params.broker_host)
        if broker is None:
            text = f"No broker has the name, address or id {params.broker_host!r}; `flotilla brokers list` shows all."
            raise Refusal("bad_request", text)
        return broker

    def _put(self, broker: Broker, done: str) -> dict[str, Any]:
        self._state.put_broker(broker)
        return BrokerChangedResponse.of(done, broker.id).to_dict()
