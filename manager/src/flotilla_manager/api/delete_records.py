"""Delete records below an offset in partitions of a topic.

Any manager handles the request and sends it to the leaders. All partitions and offsets are checked before anything is
deleted. If a partition fails later, the error lists the partitions that are done. The request is idempotent, so clients
retry it.

The response is delayed by `FRESH_S`, the lifetime of cached records: after it, no manager returns a deleted record.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path

from flotilla.limits import GIVEN_NAME_LENGTH_MAX
from flotilla.protocol.errors import Refusal
from flotilla.protocol.responses import DeletedPartitionResponse, DeleteRecordsResponse
from flotilla.protocol.topics import DeletePoint, DeleteRecords
from flotilla_manager.api.bodies import AsStruct
from flotilla_manager.manager import Manager
from flotilla_manager.model import Topic
from flotilla_manager.record_cache import FRESH_S
from flotilla_manager.routing.gateway import Offsets

DELETE_RECORDS = "/delete-records"
_TOGETHER_MAX = 64  # concurrent requests to leaders


DeleteRecordsBody = Annotated[
    DeleteRecords, Body(), AsStruct(DeleteRecords, {"partitions": [{"partition": 0, "offset": "latest"}]})
]


def add_delete_records(router: APIRouter, manager: Manager, find: Callable[[Manager, str], Awaitable[Topic]]) -> None:
    """Add the route."""

    @router.post("/topics/{name}" + DELETE_RECORDS, tags=["records"])
    async def delete_records(
        name: Annotated[str, Path(max_length=GIVEN_NAME_LENGTH_MAX)], body: DeleteRecordsBody
    ) -> dict[str, Any]:
        """Delete records below an offset. Idempotent.

        Deleted records cannot be restored. Nothing is deleted if a partition is unavailable or an offset is invalid.
        """
        topic = await find(manager, name)
        await check_points(manager, topic, body.partitions)
        found = await _at_all(body.partitions, lambda point: _delete(manager, topic, point))
        await asyncio.sleep(FRESH_S)
        done = {index: one for index, one in found.items() if isinstance(one, Offsets)}
        _raise_any(found, done=list(done))
        partitions = [
            DeletedPartitionResponse(partition=index, first_offset=offsets.first, next_offset=offsets.next)
            for index, offsets in done.items()
        ]
        return DeleteRecordsResponse(topic=topic.name, partitions=partitions).to_dict()


async def check_points(manager: Manager, topic: Topic, points: list[DeletePoint]) -> None:
    """Check all partitions and offsets. Raises Refusal."""
    indexes = [point.partition for point in points]
    for index in indexes:
        if index >= len(topic.partitions):
            text = f"topic {topic.name!r} has no partition {index}; it has {len(topic.partitions)}"
            raise Refusal("unknown_partition", text)
        if indexes.count(index) > 1:
            raise Refusal("bad_request", f"partition {index} is given more than once")
    found = await _at_all(points, lambda point: _fetch_offsets(manager, topic, point))
    _raise_any(found)
    for point in points:
        offsets = found[point.partition]
        if isinstance(point.offset, int) and isinstance(offsets, Offsets) and point.offset > offsets.next:
            where = f"offset {point.offset} of partition {point.partition}"
            raise Refusal(
                "offset_out_of_range",
                f"{where} is above the next offset, {offsets.next}",
                partition=point.partition,
                first_offset=offsets.first,
                next_offset=offsets.next,
            )


async def _at_all(
    points: list[DeletePoint], act: Callable[[DeletePoint], Awaitable[Offsets]]
) -> dict[int, Offsets | Refusal]:
    """Act on all partitions concurrently; return the result or error of each."""
    some = asyncio.Semaphore(_TOGETHER_MAX)

    async def one(point: DeletePoint) -> Offsets | Refusal:
        async with some:
            try:
                return await act(point)
            except Refusal as refusal:
                refusal.details = {**refusal.details, "partition": point.partition}
                return refusal

    return dict(zip((point.partition for point in points), await asyncio.gather(*map(one, points)), strict=True))


def _raise_any(found: dict[int, Offsets | Refusal], **details: Any) -> None:  # noqa: ANN401 - any JSON
    """Raise one of the errors, preferably one with an unknown outcome."""
    refusals = [one for one in found.values() if isinstance(one, Refusal)]
    if refusals:
        refusal = max(refusals, key=lambda one: one.code == "unknown_outcome")
        refusal.details |= details
        raise refusal


async def _fetch_offsets(manager: Manager, topic: Topic, point: DeletePoint) -> Offsets:
    return await manager.gateway.offsets(topic, point.partition, timeout_s=manager.settings.request_s_max)


async def _delete(manager: Manager, topic: Topic, point: DeletePoint) -> Offsets:
    return await manager.gateway.delete_records(
        topic, point.partition, point.offset, timeout_s=manager.settings.request_s_max
    )
