"""Topics: make, list, describe, change, delete; where their records begin and end; delete records."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from flotilla.client.admin.moments import to_ms
from flotilla.client.admin.results import PartitionDescription, PartitionOffsets
from flotilla.client.cluster import Cluster, Managers, TopicInfo, read_as
from flotilla.client.config import require
from flotilla.client.errors import TopicExists, TopicMissing

TOPICS = "/v1/topics"
Compressed = Literal["none", "zstd"]


class AsyncTopics:
    """The topics of a system, as `client.topics`.

    ```python
    await client.topics.create("orders", partitions=4, retention_ms=86_400_000)
    print([topic.name for topic in await client.topics.list()])
    await client.topics.grow("orders", 8)
    await client.topics.delete_records("orders", {0: 100})
    ```

    Every method raises Refused (also as TopicMissing, TopicExists, NotAllowed) or ServerUnreachable.
    """

    def __init__(self, managers: Managers, cluster: Cluster) -> None:
        self._managers = managers
        self._cluster = cluster

    async def create(
        self,
        name: str,
        *,
        partitions: int = 2,
        replication: int = 3,
        retention_ms: int | UnsetType | None = UNSET,
        retention_bytes: int | None = None,
        batch_bytes_max: int | None = None,
        compression: Compressed | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Make a topic. It can be used when this returns.

        Records stay a week unless `retention_ms` says otherwise; None is for ever. With `exist_ok`, a topic that is
        there already is returned as it is; without, TopicExists is raised.
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
            answer = await self._managers.ask("POST", TOPICS, _given(wanted), repeatable=exist_ok)
        except TopicExists:
            if not exist_ok:
                raise
            return await self.describe(name)
        return self._learn(answer)

    async def list(self) -> tuple[TopicInfo, ...]:
        """List the topics on which one has any scope, in the order of their creation."""
        return read_as(_Listed, await self._managers.ask("GET", TOPICS)).topics

    async def describe(self, name: str) -> TopicInfo:
        """Tell a topic's settings, and where its partitions are."""
        return self._learn(await self._managers.ask("GET", _path(name)))

    async def partitions(self, name: str) -> tuple[PartitionDescription, ...]:
        """Tell what is in a topic's partitions, as their leaders know it."""
        await self.describe(name)  # which tells better what is wrong, if something is
        answer = await self._managers.ask("GET", f"/topics/{_quoted(name)}/partitions")
        return read_as(_Described, answer).partitions

    async def configure(
        self,
        name: str,
        *,
        retention_ms: int | UnsetType | None = UNSET,
        retention_bytes: int | UnsetType | None = UNSET,
        batch_bytes_max: int | UnsetType | None = UNSET,
        compression: Compressed | UnsetType | None = UNSET,
    ) -> TopicInfo:
        """Change a topic's settings. What is left out stays; None takes a setting away."""
        changes = {
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "batch_bytes_max": batch_bytes_max,
            "compression": compression,
        }
        return self._learn(await self._managers.ask("PATCH", _path(name), _given(changes)))

    async def grow(self, name: str, partitions: int) -> TopicInfo:
        """Add partitions, so that there are this many. There cannot be fewer. Keys move to other partitions."""
        return self._learn(await self._managers.ask("PATCH", _path(name), {"partitions": partitions}))

    async def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Remove a topic and all of its records, for good."""
        try:
            await self._managers.ask("DELETE", _path(name), repeatable=missing_ok)
        except TopicMissing:
            if not missing_ok:
                raise
        finally:
            self._cluster.forget_topic(name)

    async def offsets(self, name: str, at: datetime | int | None = None) -> tuple[PartitionOffsets, ...]:
        """Tell where partitions begin and end; with a time (or milliseconds), where records from then on begin."""
        query = "" if at is None else f"?timestamp_ms={to_ms(at, 'at')}"
        return read_as(_Offsets, await self._managers.ask("GET", f"{_path(name)}/offsets{query}")).partitions

    async def delete_records(
        self, name: str, before: Mapping[int, int | Literal["latest"]]
    ) -> tuple[PartitionOffsets, ...]:
        """Delete the records below an offset in each partition that is named, for all readers and for good.

        "latest" deletes all that are there. Offsets do not change. Returns where these partitions begin and end now.
        """
        require(bool(before), "before", "given for one partition at least")
        cuts = [{"partition": index, "offset": offset} for index, offset in before.items()]
        answer = await self._managers.ask("POST", f"{_path(name)}/delete-records", {"partitions": cuts})
        found = read_as(_Cut, answer).partitions
        return tuple(PartitionOffsets(one.partition, one.first_offset, one.next_offset) for one in found)

    def _learn(self, answer: object) -> TopicInfo:
        topic = read_as(TopicInfo, answer)
        self._cluster.learn_topic(topic)  # producers know of new partitions at once
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
    require(bool(name.strip("./")), "name", "the name of a topic")  # a path that ends early is about something else
    return quote(name, safe="")


def _path(name: str) -> str:
    return f"{TOPICS}/{_quoted(name)}"
