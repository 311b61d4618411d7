"""The API for programs, but for batches: where everything is, topics, offsets. One JSON shape for refusals.

Programs read metadata once, talk to leaders themselves if they can, and ask again when a broker says that it does not
lead. What is told about leaders is a hint; the broker that is asked knows.
"""

import asyncio
import contextlib
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from flotilla.access import Scope
from flotilla.limits import (
    PARTITIONS_MAX,
    PARTITIONS_TOTAL_MAX,
    REPLICATION_MAX,
    TOPIC_BATCH_BYTES_MIN,
    TOPIC_NAME_RULE,
    TOPICS_MAX,
)
from flotilla.records import BATCH_BYTES_MAX, RECORDS_MAX
from flotilla.serving.errors import Refusal
from flotilla.serving.gate import caller_of, require
from flotilla_manager.api.deleting import add_deleting
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import MetadataError
from flotilla_manager.model import Topic

TOPICS = "/v1/topics"
_NUMBER_MAX = (1 << 63) - 1
BY_SETTING = "null: no limit. By default, as managers are set: retention_ms is a week, retention_bytes no limit"
_NAMES_MAX = 1000
_GLANCE_S = 1.0
AnyName = Annotated[str, Path(max_length=1000)]
Partitions = Annotated[int, Field(ge=1, le=PARTITIONS_MAX, strict=True)]
Retention = Annotated[int, Field(ge=0, le=_NUMBER_MAX, strict=True)]  # `true` would be one: of what, nobody meant
BatchBytes = Annotated[
    int, Field(ge=TOPIC_BATCH_BYTES_MIN, le=BATCH_BYTES_MAX, strict=True, description="A larger batch is refused")
]
Compressions = Annotated[Literal["none", "zstd"], Field(description="What producers should use: a hint")]


class NewTopic(BaseModel):
    """A topic to make."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "orders", "partitions": 2}})

    name: Annotated[str, Field(pattern=f"^{TOPIC_NAME_RULE}$")]
    partitions: Partitions = 2
    replication: Annotated[int, Field(ge=1, le=REPLICATION_MAX)] = 3
    retention_ms: Annotated[Retention | None, Field(description=BY_SETTING)] = None
    retention_bytes: Annotated[Retention | None, Field(description=BY_SETTING)] = None
    batch_bytes_max: BatchBytes | None = None
    compression: Compressions | None = None


class TopicChanges(BaseModel):
    """What to change of a topic; what is left out stays as it is. There can only be more partitions."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"retention_ms": 86_400_000}})

    partitions: Partitions | None = None
    retention_ms: Retention | None = None
    retention_bytes: Retention | None = None
    batch_bytes_max: BatchBytes | None = None
    compression: Compressions | None = None


def make_programs(manager: Manager) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", tags=["programs"])
    _add_metadata(router, manager)
    _add_topics(router, manager)
    add_deleting(router, manager, _require)
    return router


def _add_metadata(router: APIRouter, manager: Manager) -> None:
    @router.get("/metadata")
    async def metadata(
        request: Request, topic: Annotated[list[str] | None, Query(max_length=_NAMES_MAX)] = None
    ) -> dict[str, Any]:
        """Where topics and brokers are: all topics on which the caller has any scope, or those that are named."""
        caller = caller_of(request.scope)
        if topic is None:
            await _refresh(manager)
        else:
            await _glance(manager)
        missing = [name for name in topic or () if not caller.sees(name) or await _find(manager, name) is None]
        snapshot = manager.snapshot
        wanted = (
            snapshot.ready.values() if topic is None else filter(None, map(snapshot.ready.get, dict.fromkeys(topic)))
        )
        return {
            "version": snapshot.version,
            "cluster_id": snapshot.cluster_id,
            "topics": [describe(manager, one) for one in wanted if caller.sees(one.name)],
            "missing": missing,
            "brokers": [
                {
                    "id": one.id,
                    "url": one.url,
                    "rack": one.rack,
                    "active": one.active,
                    "cordoned": one.cordoned,
                }
                for one in snapshot.brokers
                if not one.removed
            ],
            "limits": {
                "batch_bytes_max": BATCH_BYTES_MAX,
                "batch_records_max": RECORDS_MAX,
                "body_bytes_max": manager.settings.body_bytes_max,
                "message_bytes_max": manager.settings.message_bytes_max,
                "partitions_max": PARTITIONS_MAX,
                "partitions_total_max": PARTITIONS_TOTAL_MAX,
                "topics_max": TOPICS_MAX,
            },
        }

    @router.get("/topics/{name}/offsets")
    async def offsets(
        name: AnyName, timestamp_ms: Annotated[int | None, Query(ge=0, le=_NUMBER_MAX)] = None
    ) -> dict[str, Any]:
        """Where partitions begin and end, and where those records begin that were appended at a time or later."""
        await _refresh(manager)  # there may be more partitions than are known here
        topic = await _require(manager, name)
        query = "offset=latest" if timestamp_ms is None else f"timestamp_ms={timestamp_ms}"
        found = await asyncio.gather(
            *(_offsets(manager, topic, index, query) for index in range(len(topic.partitions)))
        )
        if timestamp_ms is None:
            found = [{key: value for key, value in one.items() if key != "offset"} for one in found]
        return {"topic": topic.name, "partitions": found}


def _add_topics(router: APIRouter, manager: Manager) -> None:
    @router.get("/topics")
    async def list_topics(request: Request) -> dict[str, Any]:
        """All topics on which the caller has any scope, in the order of their creation."""
        await _refresh(manager)
        caller = caller_of(request.scope)
        seen = (topic for topic in manager.snapshot.ready.values() if caller.sees(topic.name))
        return {"topics": [describe(manager, topic) for topic in seen]}

    @router.post("/topics")
    async def create_topic(request: Request, body: NewTopic) -> dict[str, Any]:
        """Make a topic. It can be used when this is answered."""
        require(request.scope, Scope.ADMIN, body.name)
        topic = await manager.writer.create_topic(**body.model_dump(exclude_unset=True))
        return describe(manager, topic)

    @router.get("/topics/{name}")
    async def describe_topic(name: AnyName) -> dict[str, Any]:
        """One topic."""
        await _refresh(manager)
        return describe(manager, await _require(manager, name))

    @router.patch("/topics/{name}")
    async def change_topic(name: AnyName, body: TopicChanges) -> dict[str, Any]:
        """Change a topic's settings, or add partitions."""
        given = body.model_dump(exclude_unset=True)
        if given.get("partitions", 0) is None:
            del given["partitions"]  # a topic cannot be without
        return describe(manager, await manager.writer.change_topic(name, **given))

    @router.delete("/topics/{name}")
    async def delete_topic(name: AnyName) -> dict[str, str]:
        """Remove a topic and its records."""
        await manager.writer.delete_topic(name)
        return {"status": "ok"}


async def _refresh(manager: Manager) -> None:
    """Look for what is new; while the database is away, what is known has to do."""
    try:
        await manager.view.refresh()
    except MetadataError:
        if manager.view.snapshot is None:
            raise


async def _glance(manager: Manager) -> None:
    """Look for what is new, such as partitions that were added, but do not wait for a database that says nothing.

    Who asks where a leader is wants to know it while the database is away, too.
    """
    if manager.view.trouble is None or manager.view.snapshot is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GLANCE_S):
                await _refresh(manager)


async def _find(manager: Manager, name: str) -> Topic | None:
    try:
        return await manager.view.find_topic(name)
    except MetadataError as error:
        text = f"whether there is a topic {name[:200]!r} cannot be known now: the database does not answer"
        raise Refusal("unavailable", text) from error


async def _require(manager: Manager, name: str) -> Topic:
    topic = await _find(manager, name)
    if topic is None:
        raise Refusal("not_found", f"there is no topic {name[:200]!r}")
    return topic


async def _offsets(manager: Manager, topic: Topic, index: int, query: str) -> dict[str, Any]:
    response = await manager.gateway.fetch(topic, index, f"{query}&max_bytes=1", seconds=manager.settings.request_s_max)
    return {
        "index": index,
        "first_offset": int(response.headers[b"flotilla-first-offset"]),
        "next_offset": int(response.headers[b"flotilla-next-offset"]),
        "offset": int(response.headers[b"flotilla-offset"]),
    }


def describe(manager: Manager, topic: Topic) -> dict[str, Any]:
    """Tell everything about a topic that programs need."""
    return {
        "name": topic.name,
        "id": topic.id,
        "replication": topic.replication,
        "retention_ms": topic.retention_ms,
        "retention_bytes": topic.retention_bytes,
        "batch_bytes_max": topic.batch_bytes_max,
        "compression": topic.compression,
        "owner": topic.owner,
        "partitions": [
            {
                "index": one.index,
                "epoch": one.epoch,
                "replicas": list(one.members),
                "leader": manager.gateway.leaders.guess(topic, one),
            }
            for one in topic.partitions
        ],
    }
