"""The simple API: register, produce, consume, sizes, and exact error messages."""

from collections.abc import Callable
from typing import Any, Self

import httpx


class Calls:
    """Sends requests like curl."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def __call__(self, method: str, path: str, **params: Any) -> Any:  # noqa: ANN401 - any JSON
        """Send a request that must succeed."""
        response = self._client.request(method, path, json=params)
        found = response.json()
        assert (response.status_code, found.pop("status")) == (200, "success"), found
        return found

    def refused(self, method: str, path: str, **params: Any) -> str:  # noqa: ANN401 - any JSON
        """Send a request that must fail; return the message."""
        response = self._client.request(method, path, json=params)
        found = response.json()
        assert (response.status_code, found["status"]) == (400, "failure"), found
        return str(found["message"])


def simple_api_produces_and_consumes_round_robin(url: str, name: str) -> None:
    """From partition 0, for producers and consumers. The size counts unread messages; consumers can share an id."""
    with Calls(url) as call:
        assert call("POST", "/topics", name=name) == {"message": f"Topic '{name}' created successfully."}
        assert name in call("GET", "/topics")["topics"]
        producer = call("POST", "/producer/register", topic=name)["producer_id"]
        consumer = call("POST", "/consumer/register", topic=name)["consumer_id"]
        for at, message in enumerate(("a", "b", "c")):
            stored = call("POST", "/producer/produce", topic=name, producer_id=producer, message=message)
            assert stored == {"partition_index": at % 2, "offset": at // 2}
        who = {"topic": name, "consumer_id": consumer}
        sizes = [{"partition_number": 0, "size": 2}, {"partition_number": 1, "size": 1}]
        assert call("GET", "/size", **who) == {"sizes": sizes, "size": 3}
        found = [call("GET", "/consumer/consume", **who) for _ in range(3)]
        assert [(one["message"], one["partition_index"], one["offset"]) for one in found] == [
            ("a", 0, 0), ("b", 1, 0), ("c", 0, 1),
        ]  # fmt: skip
        assert call.refused("GET", "/consumer/consume", **who) == "No logs available to consume."
        assert call("GET", "/size", **who, partition_id=1) == {
            "sizes": [{"partition_number": 1, "size": 0}], "size": 0,
        }  # fmt: skip
        for path, id_ in (("/producer/heartbeat", {"producer_id": producer}), ("/consumer/heartbeat", {})):
            assert call("POST", path, **(id_ or {"consumer_id": consumer})) == {}
        partitions = call("GET", f"/topics/{name}/partitions")["partitions"]
        assert [(one["partition_index"], one["size"]) for one in partitions] == [(0, 2), (1, 1)]
        assert call("DELETE", f"/topics/{name}") == {"message": f"Topic '{name}' deleted successfully."}


def simple_consumers_start_at_latest_or_read_one_partition(url: str, name: str) -> None:
    """Registering a producer creates the topic."""
    with Calls(url) as call:
        producer = call("POST", "/producer/register", topic=name)["producer_id"]
        send = {"topic": name, "producer_id": producer}
        call("POST", "/producer/produce", **send, message="old", partition_index=0)
        late = call("POST", "/consumer/register", topic=name, start="latest")["consumer_id"]
        one = call("POST", "/consumer/register", topic=name, partition_index=1)["consumer_id"]
        call("POST", "/producer/produce", **send, message_base64="/w==", partition_number=1)
        expected = {"message_base64": "/w==", "partition_index": 1, "offset": 0}
        assert call("GET", "/consumer/consume", topic=name, consumer_id=late) == expected
        assert call("GET", "/consumer/consume", topic_name=name, consumer_id=one) == expected
        said = call.refused("GET", "/consumer/consume", topic=name, consumer_id=one, partition_index=0)
        assert said == "Consumer not registered with topic."


def simple_api_returns_exact_error_messages(url: str, name: str) -> None:
    """Checks run in this order: topic exists, partition index is valid, client is registered."""
    with Calls(url) as call:
        nobody = {"topic": name, "producer_id": "nobody", "message": "x"}
        assert call.refused("POST", "/producer/produce", **nobody) == "Topic does not exist."
        assert call.refused("POST", "/consumer/register", topic=name) == "Topic does not exist."
        assert call.refused("DELETE", f"/topics/{name}") == "Topic does not exist."
        assert call.refused("GET", f"/topics/{name}/partitions") == "Topic does not exist."
        call("POST", "/topics", name=name, number_of_partitions=1)
        assert call.refused("POST", "/topics", name=name) == "Topic already exists."
        assert call.refused("POST", "/producer/produce", **nobody, partition_index=1) == "Invalid Partition Number."
        assert call.refused("POST", "/producer/produce", **nobody) == "Producer not registered with topic."
        who = {"topic": name, "consumer_id": "nobody"}
        for path in ("/consumer/consume", "/size"):
            assert call.refused("GET", path, **who, partition_index=1) == "Invalid partition number."
            assert call.refused("GET", path, **who) == "Consumer not registered with topic."
        said = call.refused("POST", "/topics", name=name, colour="red")
        assert said.startswith("'colour' is not a parameter of this call; there are: name, number_of_partitions")
        assert call.refused("POST", "/topics") == "'name' is missing."
        said = call.refused("POST", "/topics", name="no spaces")
        assert said == "'name' is invalid: it must match [A-Za-z0-9][A-Za-z0-9._-]{0,199}."


def deactivated_broker_leads_no_partitions(url: str, name: str) -> None:
    """It gets no new leaderships, and a broker with replicas is not removed."""
    with Calls(url) as call:
        broker = call("GET", "/brokers")["brokers"][0]["broker_id"]
        assert call("POST", "/admin/broker/deactivate", broker_host=broker)["broker_id"] == broker
        try:
            call("POST", "/topics", name=name, number_of_partitions=3, replication=2)
            leaders = [one["leader"] for one in call("GET", f"/topics/{name}/partitions")["partitions"]]
            assert broker not in leaders
        finally:
            call("POST", "/admin/broker/activate", broker_host=broker)
        held = max(call("GET", "/brokers")["brokers"], key=lambda one: int(one["replicas"]))
        said = call.refused("POST", "/admin/broker/remove", broker_host=held["broker_host"])
        assert said.endswith("only a broker without replicas can be removed.")


def message_with_the_same_sequence_is_stored_once(url: str, name: str) -> None:
    """The retry returns the same offset."""
    with Calls(url) as call:
        producer = call("POST", "/producer/register", topic=name)["producer_id"]
        send = {"topic": name, "producer_id": producer, "message": "tea"}
        for _ in range(2):
            stored = call("POST", "/producer/produce", **send, partition_index=0, sequence=0)
            assert stored == {"partition_index": 0, "offset": 0}
        said = call.refused("POST", "/producer/produce", **send, sequence=1)
        assert said == "'sequence' requires 'partition_index': sequences are counted per partition."
        said = call.refused("POST", "/producer/produce", **send, partition_index=0, sequence=7)
        assert "expected sequence 1, got 7" in said


BODIES: list[Callable[[str, str], None]] = [
    simple_api_produces_and_consumes_round_robin,
    simple_consumers_start_at_latest_or_read_one_partition,
    simple_api_returns_exact_error_messages,
    message_with_the_same_sequence_is_stored_once,
    deactivated_broker_leads_no_partitions,
]
