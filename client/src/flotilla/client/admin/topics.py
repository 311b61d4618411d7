"""Topics: create, list, describe, configure, grow and delete; offsets; delete records."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from flotilla.client.admin.results import PartitionDescription, PartitionOffsets
from flotilla.client.cluster import Cluster, ManagerClient, TopicInfo, read_as
from flotilla.client.config import require, to_ms
from flotilla.client.errors import TopicExists, TopicMissing
from flotilla.limits import PARTITIONS_DEFAULT, REPLICATION_DEFAULT, CompressionName

TOPICS = "/v1/topics"


class AsyncTopics:
    """Manages topics: `client.topics`.

    ```python
    await client.topics.create("orders", partitions=4, retention_ms=86_400_000)
    print([topic.name for topic in await client.topics.list()])
    await client.topics.grow("orders", 8)
    await client.topics.delete_records("orders", {0: 100})
    ```

    Every method raises Refused (also as TopicMissing, TopicExists, NotAllowed) or ServerUnreachable.
    """

    def __init__(self, managers: ManagerClient, cluster: Cluster) -> None:
        self._managers = managers
        self._cluster = cluster

    async def create(
        self,
        name: str,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        replication: int = REPLICATION_DEFAULT,
        retention_ms: int | UnsetType | None = UNSET,
        retention_bytes: int | UnsetType | None = UNSET,
        batch_bytes_max: int | None = None,
        compression: CompressionName | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Create a topic. It is ready for use when this returns.

        Without `retention_ms` or `retention_bytes`, the managers' default applies; None means no limit. With
        `exist_ok`, an existing topic is returned unchanged; without, TopicExists is raised.
        """
        wanted = {
            "name": name,
            "partitions": partitions,
            "replication": replication,
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "batch_bytes_max": batch_bytes_max,
            "compression": compression,
        }
        try:
            response = await self._managers.call("POST", TOPICS, _given(wanted), repeatable=exist_ok)
        except TopicExists:
            if not exist_ok:
                raise
            return await self.describe(name)
        return self._learn(response)

    async def list(self) -> tuple[TopicInfo, ...]:
        """List the topics on which the caller has a scope, in the order of creation."""
        return read_as(_Listed, await self._managers.call("GET", TOPICS)).topics

    async def describe(self, name: str) -> TopicInfo:
        """Return a topic's settings, and the replicas of its partitions."""
        return self._learn(await self._managers.call("GET", _path(name)))

    async def partitions(self, name: str) -> tuple[PartitionDescription, ...]:
        """Return offsets and size of a topic's partitions, from their leaders."""
        await self.describe(name)  # has better errors
        response = await self._managers.call("GET", f"/topics/{_quoted(name)}/partitions")
        return read_as(_Described, response).partitions

    async def configure(
        self,
        name: str,
        *,
        retention_ms: int | UnsetType | None = UNSET,
        retention_bytes: int | UnsetType | None = UNSET,
        batch_bytes_max: int | UnsetType | None = UNSET,
        compression: CompressionName | UnsetType | None = UNSET,
    ) -> TopicInfo:
        """Change a topic's settings. Omitted ones keep their value; None means no limit, or the default."""
        changes = {
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "batch_bytes_max": batch_bytes_max,
            "compression": compression,
        }
        return self._learn(await self._managers.call("PATCH", _path(name), _given(changes)))

    async def grow(self, name: str, partitions: int) -> TopicInfo:
        """Add partitions up to this number; it cannot be decreased. Keys move to other partitions."""
        return self._learn(await self._managers.call("PATCH", _path(name), {"partitions": partitions}))

    async def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic and its records. Cannot be undone."""
        try:
            await self._managers.call("DELETE", _path(name), repeatable=missing_ok)
        except TopicMissing:
            if not missing_ok:
                raise
        finally:
            self._cluster.forget_topic(name)

    async def offsets(self, name: str, at: datetime | int | None = None) -> tuple[PartitionOffsets, ...]:
        """Return first and next offsets; with a time, also the offset of the first record from that time."""
        query = "" if at is None else f"?timestamp_ms={to_ms(at, 'at')}"
        return read_as(_Offsets, await self._managers.call("GET", f"{_path(name)}/offsets{query}")).partitions

    async def delete_records(
        self, name: str, before: Mapping[int, int | Literal["latest"]]
    ) -> tuple[PartitionOffsets, ...]:
        """Delete the records below an offset in each given partition. Cannot be undone.

        "latest" deletes all records. Offsets of other records do not change. Returns the new first and next offsets.
        """
        require(bool(before), "before", "given for at least one partition")
        cuts = [{"partition": index, "offset": offset} for index, offset in before.items()]
        response = await self._managers.call("POST", f"{_path(name)}/delete-records", {"partitions": cuts})
        found = read_as(_Cut, response).partitions
        return tuple(PartitionOffsets(one.partition, one.first_offset, one.next_offset) for one in found)

    def _learn(self, response: object) -> TopicInfo:
        topic = read_as(TopicInfo, response)
        self._cluster.update_topic(topic)  # producers use new partitions at once
        return topic


class _Listed(msgspec.Struct, frozen=True):
    topics: tuple[TopicInfo, ...]


class _Described(msgspec.Struct, frozen=True):
    partitions: tuple[PartitionDescription, ...]


class _Offsets(msgspec.Struct, frozen=True):
    partitions: tuple[PartitionOffsets, ...]


class _CutPartition(msgspec.Struct, frozen=True):
    partition: int
    first_offset: int
    next_offset: int


class _Cut(msgspec.Struct, frozen=True):
    partitions: tuple[_CutPartition, ...]


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not UNSET}


def _quoted(name: str) -> str:
    require(bool(name.strip("./")), "name", "the name of a topic", name)  # else the path means another resource
    return quote(name, safe="")


def _path(name: str) -> str:
    return f"{TOPICS}/{_quoted(name)}"
