"""Brokers and their replicas, from the cluster metadata, which every caller may read."""

from collections import Counter
from collections.abc import Iterable, Sequence

from flotilla.client.admin.results import BrokerDescription, BrokerPartition
from flotilla.client.cluster import BrokerInfo, ManagerClient, Metadata, read_as
from flotilla.client.config import require
from flotilla.client.errors import NotFound

ID_SHOWN = 8  # characters of a broker's id


class AsyncBrokers:
    """Lists and describes brokers: `client.brokers`.

    ```python
    for broker in await client.brokers.list():
        print(broker.name, broker.url, broker.active, len(broker.partitions), broker.leads)
    ```

    Every method raises Refused (also as NotFound, NotAllowed) or ServerUnreachable.
    """

    def __init__(self, managers: ManagerClient) -> None:
        self._managers = managers

    async def list(self) -> tuple[BrokerDescription, ...]:
        """List the brokers."""
        return describe_brokers(read_as(Metadata, await self._managers.call("GET", "/v1/metadata")))

    async def describe(self, broker: str) -> BrokerDescription:
        """Return a broker, by its name, its URL, its id, or a unique prefix of its id."""
        require(bool(broker), "broker", "a name, an id or a URL", broker)
        brokers = await self.list()
        found = [one for one in brokers if broker in {one.id, one.url}]
        found = found or _with_name(brokers, broker)
        found = found or [one for one in brokers if one.id.startswith(broker)]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"'{broker}' matches {len(found)} brokers; use the id of one", "not_found", {})
        raise NotFound(f"broker '{broker}' does not exist", "not_found", {})


def _with_name(brokers: Sequence[BrokerDescription], name: str) -> list[BrokerDescription]:
    """Find brokers by name. A broker that lost its disk has an inactive predecessor of the same name."""
    found = [one for one in brokers if one.name == name]
    return [one for one in found if one.active] or found


def label_brokers(brokers: Iterable[BrokerInfo | BrokerDescription]) -> dict[str, str]:
    """Map the id of each broker to what tables show: its name, or the beginning of its id.

    If several brokers have one name, they get the beginning of their id as well, except for the only active one. Pure.
    """
    found = tuple(brokers)
    times = Counter(one.name for one in found)
    active = Counter(one.name for one in found if one.active)

    def label(one: BrokerInfo | BrokerDescription) -> str:
        if not one.name:
            return shorten_id(one.id)
        is_clear = times[one.name] == 1 or (one.active and active[one.name] == 1)
        return one.name if is_clear else f"{one.name}({shorten_id(one.id)})"

    return {one.id: label(one) for one in found}


def shorten_id(id_: str) -> str:
    """Return the beginning of an id, which `describe` accepts."""
    return id_[:ID_SHOWN]


def describe_brokers(metadata: Metadata) -> tuple[BrokerDescription, ...]:
    """Collect the replicas of each broker. Pure."""
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
    return BrokerDescription(
        broker.id, broker.url, broker.rack, broker.active, broker.cordoned, partitions, broker.name
    )
