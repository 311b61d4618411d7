"""`ApiHandler`: the HTTP API for people (docs/api.md), one method for each call.

Here ids are shown: a producer or a consumer is registered, and named in every call. Where a consumer is, servers
remember. What may be asked twice is asked again until there is an answer; what may not is asked once, and if its answer
is lost, OutcomeUnknown says so.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from flotilla.client.aio import AsyncClient
from flotilla.client.deliveries import Receipt
from flotilla.client.errors import Refused, TopicExists, TopicMissing
from flotilla.client.runner import Runner
from flotilla.myqueue.texts import decode_base64, encode_message, parse_broker

_EMPTY = "No logs available to consume."
# The calls for people have no codes: their words, which are promised, tell what is wrong.
_KINDS: dict[str, tuple[type[Refused], str]] = {
    "Topic does not exist.": (TopicMissing, "not_found"),
    "Topic already exists.": (TopicExists, "exists"),
}


class ApiHandler:
    """Makes the calls of the HTTP API. Any thread may use it.

        with ApiHandler("127.0.0.1:8080") as api:
            api.create_topic("T1", partitions=1)
            producer_id, consumer_id = api.register_producer("T1"), api.register_consumer("T1")
            api.enqueue("T1", producer_id, "hello")
            print(api.dequeue("T1", consumer_id), api.size("T1", consumer_id))

    `broker` is `host:port` or a URL; without it, FLOTILLA_URL counts, as FLOTILLA_TOKEN and FLOTILLA_TLS_CA do for
    `token` and `ca`. Every method raises Refused (also as TopicMissing, TopicExists, NotAllowed) or ServerUnreachable.
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
        """Make a topic; return what the server says. It has 2 partitions and 3 replicas unless told otherwise."""
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
        """Remove a topic and its messages, for good; return what the server says."""
        return str(self._do("DELETE", f"/topics/{quote(topic, safe='')}")["message"])

    # -- producers and consumers ----------------------------------------------------------------------------

    def register_producer(self, topic: str) -> str:
        """Register a producer, and return its id. A topic that is not there is made."""
        return str(self._ask("POST", "/producer/register", {"topic": topic})["producer_id"])

    def register_consumer(self, topic: str, partition: int | None = None, start: str = "earliest") -> str:
        """Register a consumer of a topic, or of one partition of it, and return its id. `start` may be `latest`."""
        params = {"topic": topic, "partition_index": partition, "start": start}
        return str(self._ask("POST", "/consumer/register", params)["consumer_id"])

    def enqueue(self, topic: str, producer_id: str, message: str, partition: int | None = None) -> Receipt:
        """Put a message into a queue, into the next partition unless one is named; tell where it is."""
        encode_message(message)
        params = {"topic": topic, "producer_id": producer_id, "message": message, "partition_index": partition}
        found = self._do("POST", "/producer/produce", params)
        return Receipt(topic, found["partition_index"], found["offset"])

    def dequeue(self, topic: str, consumer_id: str, partition: int | None = None) -> str | None:
        """Take the next message, of any partition unless one is named; None if there is none.

        If an answer is lost, its message is: OutcomeUnknown is raised. Raises DataInvalid for what is no text.
        """
        params = {"topic": topic, "consumer_id": consumer_id, "partition_index": partition}
        try:
            found = self._do("GET", "/consumer/consume", params)
        except Refused as error:
            if str(error) == _EMPTY:
                return None
            raise
        if "message" in found:
            return str(found["message"])
        return decode_base64(found["message_base64"], f"the message at offset {found['offset']} of '{topic}'")

    produce = enqueue
    consume = dequeue

    def size(self, topic: str, consumer_id: str, partition: int | None = None) -> int:
        """Count the messages that are left for a consumer."""
        params = {"topic": topic, "consumer_id": consumer_id, "partition_index": partition}
        return int(self._ask("GET", "/size", params)["size"])

    def heartbeat_producer(self, producer_id: str) -> None:
        """Show that a producer is alive: those that fell silent are listed as inactive."""
        self._ask("POST", "/producer/heartbeat", {"producer_id": producer_id})

    def heartbeat_consumer(self, consumer_id: str) -> None:
        """Show that a consumer is alive: those that fell silent are listed as inactive."""
        self._ask("POST", "/consumer/heartbeat", {"consumer_id": consumer_id})

    def list_producers(self) -> list[dict[str, Any]]:
        """List all producers that have registered: `producer_id`, `topic`, `status` and more."""
        return self._list("producers")

    def list_consumers(self) -> list[dict[str, Any]]:
        """List all consumers that have registered: `consumer_id`, `topic`, `status` and more."""
        return self._list("consumers")

    # -- servers --------------------------------------------------------------------------------------------

    def list_brokers(self) -> list[dict[str, Any]]:
        """List the brokers: `broker_id`, `broker_host`, `status` and more."""
        return list(self._ask("GET", "/brokers")["brokers"])

    def list_managers(self) -> list[dict[str, Any]]:
        """List the managers: `name`, `role`, `url` and `status`."""
        return list(self._ask("GET", "/managers")["managers"])

    def add_broker(self, host: str) -> str:
        """Make a broker known, which is at `host:port`; return its id."""
        return str(self._ask("POST", "/admin/broker/add", {"broker_host": host})["broker_id"])

    def remove_broker(self, host: str) -> str:
        """Forget a broker; return what the server says, which refuses while the broker holds replicas."""
        return str(self._do("POST", "/admin/broker/remove", {"broker_host": host})["message"])

    def activate_broker(self, host: str) -> str:
        """Have a broker lead partitions and take new ones again; return what the server says."""
        return str(self._ask("POST", "/admin/broker/activate", {"broker_host": host})["message"])

    def deactivate_broker(self, host: str) -> str:
        """Have a broker lead nothing, and take no new partitions; return what the server says."""
        return str(self._ask("POST", "/admin/broker/deactivate", {"broker_host": host})["message"])

    # -- calls ----------------------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Make a call that may be made twice."""
        return self._call(method, path, params or {}, repeatable=True)

    def _list(self, kind: str) -> list[dict[str, Any]]:
        """Go through all pages of a list."""
        found: list[dict[str, Any]] = []
        after = None
        while True:
            page = self._ask("GET", f"/{kind}", {"after": after})
            found += page[kind]
            after = page["after"]
            if after is None:
                return found

    def _do(self, method: str, path: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Make a call that must not be made twice."""
        return self._call(method, path, params or {}, repeatable=False)

    def _call(self, method: str, path: str, params: Mapping[str, object], *, repeatable: bool) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        if method == "GET":
            path, body = f"{path}?{urlencode(given)}" if given else path, None
        else:
            body = given or None
        managers = self._client.engine.managers
        try:
            found: dict[str, Any] = self._runner.run(managers.ask(method, path, body, repeatable=repeatable))
        except Refused as error:
            kind, code = _KINDS.get(str(error), (type(error), error.code))
            raise kind(str(error), code, error.details) from error
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
