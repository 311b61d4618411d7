"""v1 API except batches and groups: metadata, topics and offsets.

Clients read the metadata once, send requests to leaders if they can, and refresh the metadata after `not_leader`. The
leader in the metadata is a hint; the broker knows.
"""

import asyncio
import contextlib
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request
from msgspec import UNSET
from pydantic.config import JsonDict

from flotilla.access import Scope
from flotilla.limits import GIVEN_NAME_LENGTH_MAX, INT64_MAX
from flotilla.protocol import topics
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.responses import (
    BrokerResponse,
    LimitsResponse,
    MetadataResponse,
    PartitionOffsetsResponse,
    PartitionResponse,
    TopicOffsetsResponse,
    TopicResponse,
)
from flotilla_manager.api.bodies import AsStruct
from flotilla_manager.api.delete_records import add_delete_records
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Topic
from flotilla_manager.routing.gateway import offsets_in
from flotilla_server.authorization import caller_of, require

TOPICS = "/v1/topics"
_NAMES_MAX = 1000
_TOPIC_PARAMETER = "Topic to describe; repeat it for several topics, omit it for all"
_TIMESTAMP_PARAMETER = "Also return the offset of the first record appended at this time or later"
_REFRESH_S = 1.0
AnyName = Annotated[str, Path(max_length=GIVEN_NAME_LENGTH_MAX)]
_NEW: JsonDict = {"name": "orders", "partitions": 2}
_CHANGES: JsonDict = {"retention_ms": 86_400_000}
NewTopic = Annotated[topics.NewTopic, Body(), AsStruct(topics.NewTopic, _NEW)]
TopicChanges = Annotated[topics.TopicChanges, Body(), AsStruct(topics.TopicChanges, _CHANGES)]


def make_v1(manager: Manager) -> APIRouter:
    """Create the routes."""
    router = APIRouter(prefix="/v1")
    _add_metadata(router, manager)
    _add_topics(router, manager)
    add_delete_records(router, manager, _require)
    return router


def _add_metadata(router: APIRouter, manager: Manager) -> None:
    @router.get("/metadata", tags=["metadata"])
    async def metadata(
        request: Request,
        topic: Annotated[list[str] | None, Query(max_length=_NAMES_MAX, description=_TOPIC_PARAMETER)] = None,
    ) -> dict[str, Any]:
        """Describe topics and brokers. Topics include partitions, replicas and leaders; the leader is a hint.

        Without `topic`, all topics are listed on which the caller has any scope. `missing` lists unknown names.
        """
        caller = caller_of(request.scope)
        if topic is None:
            await _refresh(manager)
        else:
            await _refresh_briefly(manager)
        missing = [name for name in topic or () if not caller.sees(name) or await _find(manager, name) is None]
        snapshot = manager.snapshot
        wanted = (
            snapshot.ready.values() if topic is None else filter(None, map(snapshot.ready.get, dict.fromkeys(topic)))
        )
        return MetadataResponse(
            version=snapshot.version,
            cluster_id=snapshot.cluster_id,
            topics=[_describe(manager, one) for one in wanted if caller.sees(one.name)],
            missing=missing,
            brokers=[
                BrokerResponse(
                    id=one.id,
                    name=one.name,
                    url=one.url,
                    rack=one.rack,
                    active=one.active,
                    cordoned=one.cordoned,
                )
                for one in snapshot.brokers
                if not one.removed
            ],
            limits=LimitsResponse(
                body_bytes_max=manager.settings.body_bytes_max,
                message_bytes_max=manager.settings.message_bytes_max,
            ),
        ).to_dict()

    @router.get("/topics/{name}/offsets", tags=["records"])
    async def offsets(
        name: AnyName,
        timestamp_ms: Annotated[int | None, Query(ge=0, le=INT64_MAX, description=_TIMESTAMP_PARAMETER)] = None,
    ) -> dict[str, Any]:
        """List the first and next offset of each partition. With `timestamp_ms`, also the offset for that time."""
        await _refresh(manager)  # partitions may have been added
        topic = await _require(manager, name)
        found = await asyncio.gather(
            *(_offsets(manager, topic, index, timestamp_ms) for index in range(len(topic.partitions)))
        )
        return TopicOffsetsResponse(topic=topic.name, partitions=found).to_dict()


def _add_topics(router: APIRouter, manager: Manager) -> None:
    @router.get("/topics", tags=["topics"])
    async def list_topics(request: Request) -> dict[str, Any]:
        """List topics in order of creation. Topics on which the caller has no scope are left out."""
        await _refresh(manager)
        caller = caller_of(request.scope)
        seen = (topic for topic in manager.snapshot.ready.values() if caller.sees(topic.name))
        return {"topics": [describe(manager, topic) for topic in seen]}

    @router.post("/topics", tags=["topics"])
    async def create_topic(request: Request, body: NewTopic) -> dict[str, Any]:
        """Create a topic. Its partitions have leaders when the request succeeds."""
        require(request.scope, Scope.ADMIN, body.name)
        topic = await manager.writer.topics.create(**body.given())
        return describe(manager, topic)

    @router.get("/topics/{name}", tags=["topics"])
    async def describe_topic(name: AnyName) -> dict[str, Any]:
        """Describe a topic."""
        await _refresh(manager)
        return describe(manager, await _require(manager, name))

    @router.patch("/topics/{name}", tags=["topics"])
    async def change_topic(name: AnyName, body: TopicChanges) -> dict[str, Any]:
        """Change settings of a topic, or add partitions. Omitted settings keep their value."""
        return describe(manager, await manager.writer.topics.patch(name, **body.given()))

    @router.delete("/topics/{name}", tags=["topics"])
    async def delete_topic(name: AnyName) -> dict[str, str]:
        """Delete a topic and its records."""
        await manager.writer.topics.delete(name)
        return {"status": "ok"}


async def _refresh(manager: Manager) -> None:
    """Refresh the cache; without the database, use the cached metadata."""
    try:
        await manager.metadata.refresh()
    except MetadataError:
        if manager.metadata.snapshot is None:
            raise


async def _refresh_briefly(manager: Manager) -> None:
    """Refresh the cache, but wait only briefly: clients need leaders also while the database is unavailable."""
    if manager.metadata.last_error is None or manager.metadata.snapshot is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_S):
                await _refresh(manager)


async def _find(manager: Manager, name: str) -> Topic | None:
    try:
        return await manager.metadata.find_topic(name)
    except MetadataError as error:
        text = f"topic {name[:200]!r} is not cached and the database is unavailable; try again"
        raise Refusal("unavailable", text) from error


async def _require(manager: Manager, name: str) -> Topic:
    topic = await _find(manager, name)
    if topic is None:
        raise not_found("topic", f"topic {name[:200]!r} does not exist")
    return topic


async def _offsets(manager: Manager, topic: Topic, index: int, timestamp_ms: int | None) -> PartitionOffsetsResponse:
    query = "offset=latest" if timestamp_ms is None else f"timestamp_ms={timestamp_ms}"
    response = await manager.gateway.fetch(
        topic, index, f"{query}&max_bytes=1", timeout_s=manager.settings.request_s_max
    )
    offsets = offsets_in(response)
    return PartitionOffsetsResponse(
        index=index,
        first_offset=offsets.first,
        next_offset=offsets.next,
        offset=UNSET if timestamp_ms is None else int(response.headers[b"flotilla-offset"]),
    )


def describe(manager: Manager, topic: Topic) -> dict[str, Any]:
    """Describe a topic, as in the metadata."""
    return _describe(manager, topic).to_dict()


def _describe(manager: Manager, topic: Topic) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        id=topic.id,
        replication=topic.replication,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        batch_bytes_max=topic.batch_bytes_max,
        compression=topic.compression,
        owner=topic.owner,
        partitions=[
            PartitionResponse(
                index=one.index,
                epoch=one.epoch,
                replicas=one.members,
                leader=manager.gateway.leaders.guess(topic, one),
            )
            for one in topic.partitions
        ],
    )
