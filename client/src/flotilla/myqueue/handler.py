"""`ApiHandler`: the simple API (docs/api.md), with one method for each call.

Producers and consumers are registered, and each call names their id. The servers store the position of a consumer.
Calls that are safe to repeat are retried until there is a response. Other calls are sent once; if the response is lost,
they raise OutcomeUnknown.

The client has no methods for these calls, so this module uses internals of it: the engine of `AsyncClient` sends raw
requests to managers, and `Runner` runs it on an event loop of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from flotilla import AsyncClient, Receipt, Refused
from flotilla.client.runner import Runner
from flotilla.myqueue.texts import decode_base64, encode_message, parse_broker

_EMPTY = "no_records"


class ApiHandler:
    """Sends the requests of the simple API. Thread-safe.

        with ApiHandler("127.0.0.1:8080") as api:
            api.create_topic("T1", partitions=1)
            producer_id, consumer_id = api.register_producer("T1"), api.register_consumer("T1")
            api.enqueue("T1", producer_id, "hello")
            print(api.dequeue("T1", consumer_id), api.size("T1", consumer_id))

    `broker` is `host:port` or a URL; the default is FLOTILLA_URL. Defaults of `token` and `ca` are FLOTILLA_TOKEN and
    FLOTILLA_TLS_CA. Every method raises Refused (also as TopicMissing, TopicExists, NotAllowed) or ServerUnreachable.
    """

    def __init__(
        self,
        broker: str | None = None,
        *,
        token: str | None = None,
        ca: str | Path | None = None,
        request_s: float = 30.0,
    ) -> None:
        url = None if broker is None else parse_broker(broker)
        self._runner = Runner()

        async def make() -> AsyncClient:
            return AsyncClient(url, token=token, ca=ca, request_s=request_s)

        try:
            self._client = self._runner.run(make())
        except BaseException:
            self._runner.close()
            raise

    # -- topics ---------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int | None = None, replication: int | None = None) -> str:
        """Create a topic; return the message of the server. None is the default of the server."""
        params = {"name": topic, "number_of_partitions": partitions, "replication": replication}
        return str(self._do("POST", "/topics", params)["message"])

    def list_topics(self) -> list[str]:
        """List the topics, in the order of their creation."""
        return list(self._ask("GET", "/topics")["topics"])

    def list_partitions(self, topic: str) -> list[int]:
        """List the numbers of a topic's partitions."""
        found = self._ask("GET", f"/topics/{quote(topic, safe='')}/partitions")["partitions"]
        return [one["partition_index"] for one in found]

    def delete_topic(self, topic: str) -> str:
        """Delete a topic and its messages, which cannot be undone; return the message of the server."""
        return str(self._do("DELETE", f"/topics/{quote(topic, safe='')}")["message"])

    # -- producers and consumers ----------------------------------------------------------------------------

    def register_producer(self, topic: str) -> str:
        """Register a producer, and return its id. A missing topic is created."""
        return str(self._ask("POST", "/producer/register", {"topic": topic})["producer_id"])

    def register_consumer(self, topic: str, partition: int | None = None, start: str = "earliest") -> str:
        """Register a consumer of a topic, or of one partition of it, and return its id. `start` may be `latest`."""
        params = {"topic": topic, "partition_index": partition, "start": start}
        return str(self._ask("POST", "/consumer/register", params)["consumer_id"])

    def enqueue(self, topic: str, producer_id: str, message: str, partition: int | None = None) -> Receipt:
        """Store a message, by default in the next partition; return its topic, partition and offset."""
        encode_message(message)
        params = {"topic": topic, "producer_id": producer_id, "message": message, "partition_index": partition}
        found = self._do("POST", "/producer/produce", params)
        return Receipt(topic, found["partition_index"], found["offset"])

    def dequeue(self, topic: str, consumer_id: str, partition: int | None = None) -> str | None:
        """Return the next message, by default of any partition; None if there is none.

        If the response is lost, so is its message, and OutcomeUnknown is raised. Raises DataInvalid if it is not UTF-8.
        """
        params = {"topic": topic, "consumer_id": consumer_id, "partition_index": partition}
        try:
            found = self._do("GET", "/consumer/consume", params)
        except Refused as error:
            if error.code == _EMPTY:
                return None
            raise
        if "message" in found:
            return str(found["message"])
        return decode_base64(found["message_base64"], f"message at offset {found['offset']} of '{topic}'")

    produce = enqueue
    consume = dequeue

    def size(self, topic: str, consumer_id: str, partition: int | None = None) -> int:
        """Return the number of messages left for a consumer."""
        params = {"topic": topic, "consumer_id": consumer_id, "partition_index": partition}
        return int(self._ask("GET", "/size", params)["size"])

    def heartbeat_producer(self, producer_id: str) -> None:
        """Send a heartbeat of a producer; without heartbeats it is listed as inactive."""
        self._ask("POST", "/producer/heartbeat", {"producer_id": producer_id})

    def heartbeat_consumer(self, consumer_id: str) -> None:
        """Send a heartbeat of a consumer; without heartbeats it is listed as inactive."""
        self._ask("POST", "/consumer/heartbeat", {"consumer_id": consumer_id})

    def list_producers(self) -> list[dict[str, Any]]:
        """List registered producers: `producer_id`, `topic`, `status` and more."""
        return self._list("producers")

    def list_consumers(self) -> list[dict[str, Any]]:
        """List registered consumers: `consumer_id`, `topic`, `status` and more."""
        return self._list("consumers")

    # -- servers --------------------------------------------------------------------------------------------

    def list_brokers(self) -> list[dict[str, Any]]:
        """List the brokers: `broker_id`, `broker_host`, `status` and more."""
        return list(self._ask("GET", "/brokers")["brokers"])

    def list_managers(self) -> list[dict[str, Any]]:
        """List the managers: `name`, `role`, `url` and `status`."""
        return list(self._ask("GET", "/managers")["managers"])

    def add_broker(self, host: str) -> str:
        """Register the broker at `host:port`; return its id."""
        return str(self._ask("POST", "/admin/broker/add", {"broker_host": host})["broker_id"])

    def remove_broker(self, host: str) -> str:
        """Remove a broker without replicas; return the message of the server."""
        return str(self._do("POST", "/admin/broker/remove", {"broker_host": host})["message"])

    def activate_broker(self, host: str) -> str:
        """Uncordon a broker: it may lead and get new replicas again; return the message of the server."""
        return str(self._ask("POST", "/admin/broker/activate", {"broker_host": host})["message"])

    def deactivate_broker(self, host: str) -> str:
        """Cordon a broker: it leads nothing and gets no new replicas; return the message of the server."""
        return str(self._ask("POST", "/admin/broker/deactivate", {"broker_host": host})["message"])

    # -- calls ----------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Send a request that is safe to repeat."""
        return self._call(method, path, params or {}, repeatable=True)

    def _list(self, kind: str) -> list[dict[str, Any]]:
        """Read all pages of a list."""
        found: list[dict[str, Any]] = []
        after = None
        while True:
            page = self._ask("GET", f"/{kind}", {"after": after})
            found += page[kind]
            after = page["after"]
            if after is None:
                return found

    def _do(self, method: str, path: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Send a request that must not be repeated."""
        return self._call(method, path, params or {}, repeatable=False)

    def _call(self, method: str, path: str, params: Mapping[str, object], *, repeatable: bool) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        if method == "GET":
            path, body = f"{path}?{urlencode(given)}" if given else path, None
        else:
            body = given or None
        managers = self._client._engine.managers
        found: dict[str, Any] = self._runner.run(managers.call(method, path, body, repeatable=repeatable))
        return found

    def close(self) -> None:
        """Close all connections."""
        if self._runner.is_usable:
            try:
                self._runner.run(self._client.close())
            finally:
                self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
