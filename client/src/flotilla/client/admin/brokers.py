"""Brokers: which there are, and what they hold. It is worked out from the metadata, which everybody may ask for."""

from flotilla.client.admin.results import BrokerDescription, BrokerPartition
from flotilla.client.cluster import BrokerInfo, Managers, Metadata, read_as
from flotilla.client.config import require
from flotilla.client.errors import NotFound


class AsyncBrokers:
    """The brokers of a system, as `client.brokers`.

    ```python
    for broker in await client.brokers.list():
        print(broker.id, broker.url, broker.active, len(broker.partitions), broker.leads)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    def __init__(self, managers: Managers) -> None:
        self._managers = managers

    async def list(self) -> tuple[BrokerDescription, ...]:
        """List the brokers."""
        return describe_brokers(read_as(Metadata, await self._managers.ask("GET", "/v1/metadata")))

    async def describe(self, broker: str) -> BrokerDescription:
        """Describe a broker, by its id, by the beginning of its id, or by its URL."""
        require(bool(broker), "broker", "an id or a URL")
        brokers = await self.list()
        found = [one for one in brokers if broker in {one.id, one.url}]
        found = found or [one for one in brokers if one.id.startswith(broker)]
        if len(found) == 1:
            return found[0]
        text = f"'{broker}' is the beginning of {len(found)} ids" if found else f"there is no broker '{broker}'"
        raise NotFound(text, "not_found", {})


def describe_brokers(metadata: Metadata) -> tuple[BrokerDescription, ...]:
    """Put together who holds what. Pure."""
    held: dict[str, list[BrokerPartition]] = {broker.id: [] for broker in metadata.brokers}
    for topic in metadata.topics:
        for partition in topic.partitions:
            for member in partition.replicas:
                held.setdefault(member, []).append(
                    BrokerPartition(topic.name, partition.index, member == partition.leader)
                )
    return tuple(_describe(broker, held[broker.id]) for broker in metadata.brokers)


def _describe(broker: BrokerInfo, held: list[BrokerPartition]) -> BrokerDescription:
    partitions = tuple(sorted(held, key=lambda one: (one.topic, one.partition)))
    return BrokerDescription(broker.id, broker.url, broker.rack, broker.active, broker.cordoned, partitions)
