"""Delete records of a topic: everything below an offset, in each of the partitions that are named.

Any manager takes it, and asks the leaders. Bad input changes nothing, nor does it if a partition cannot be reached: all
of them are looked at before anything is deleted. If one refuses afterwards, the refusal names those that are done. To
say it again changes nothing either, so whoever gets no answer says it again.

The answer waits a moment longer than the leaders need. Managers keep records that they have just fetched, for consumers
that take one message after the other; when it is answered, no manager hands out a deleted one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from flotilla.limits import PARTITIONS_MAX
from flotilla.serving.errors import Refusal
from flotilla_manager.manager import Manager
from flotilla_manager.model import Topic
from flotilla_manager.records import FRESH_S
from flotilla_manager.routing.gateway import Offsets

DELETE_RECORDS = "/delete-records"
_NUMBER_MAX = (1 << 63) - 1
_TOGETHER_MAX = 64  # leaders that are asked at the same time


class Cut(BaseModel):
    """Up to where a partition's records go."""

    model_config = ConfigDict(extra="forbid")

    partition: Annotated[int, Field(ge=0, le=PARTITIONS_MAX - 1)]
    offset: Annotated[
        Annotated[int, Field(ge=0, le=_NUMBER_MAX, strict=True)] | Literal["latest"],
        Field(description="Records below it go; `latest`: all that are there now"),
    ]


class Cuts(BaseModel):
    """What to delete."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"partitions": [{"partition": 0, "offset": "latest"}]}}
    )

    partitions: Annotated[list[Cut], Field(min_length=1, max_length=PARTITIONS_MAX)]


def add_deleting(router: APIRouter, manager: Manager, find: Callable[[Manager, str], Awaitable[Topic]]) -> None:
    """Add the route."""

    @router.post("/topics/{name}" + DELETE_RECORDS)
    async def delete_records(name: Annotated[str, Path(max_length=1000)], body: Cuts) -> dict[str, Any]:
        """Delete the records below an offset, for all readers and for good. To say it again changes nothing."""
        topic = await find(manager, name)
        await check_cuts(manager, topic, body.partitions)
        found = await _at_all(body.partitions, lambda cut: _delete(manager, topic, cut))
        await asyncio.sleep(FRESH_S)
        done = {index: one for index, one in found.items() if isinstance(one, Offsets)}
        _raise_any(found, done=list(done))
        partitions = [
            {"partition": index, "first_offset": offsets.first, "next_offset": offsets.next}
            for index, offsets in done.items()
        ]
        return {"topic": topic.name, "partitions": partitions}


async def check_cuts(manager: Manager, topic: Topic, cuts: list[Cut]) -> None:
    """Refuse what cannot be done, before anything is."""
    indexes = [cut.partition for cut in cuts]
    for index in indexes:
        if index >= len(topic.partitions):
            text = f"topic {topic.name!r} has no partition {index}; it has {len(topic.partitions)}"
            raise Refusal("unknown_partition", text)
        if indexes.count(index) > 1:
            raise Refusal("bad_request", f"partition {index} is there twice; say once what goes of it")
    found = await _at_all(cuts, lambda cut: _look(manager, topic, cut))
    _raise_any(found)
    for cut in cuts:
        offsets = found[cut.partition]
        if isinstance(cut.offset, int) and isinstance(offsets, Offsets) and cut.offset > offsets.next:
            raise Refusal(
                "offset_out_of_range",
                f"offset {cut.offset} of partition {cut.partition} is yet to come: the next record gets {offsets.next}",
                partition=cut.partition,
                first_offset=offsets.first,
                next_offset=offsets.next,
            )


async def _at_all(cuts: list[Cut], act: Callable[[Cut], Awaitable[Offsets]]) -> dict[int, Offsets | Refusal]:
    """Act on all partitions, some at a time. If one refuses, the others go on all the same."""
    some = asyncio.Semaphore(_TOGETHER_MAX)

    async def one(cut: Cut) -> Offsets | Refusal:
        async with some:
            try:
                return await act(cut)
            except Refusal as refusal:
                refusal.details = {**refusal.details, "partition": cut.partition}
                return refusal

    return dict(zip((cut.partition for cut in cuts), await asyncio.gather(*map(one, cuts)), strict=True))


def _raise_any(found: dict[int, Offsets | Refusal], **details: Any) -> None:  # noqa: ANN401 - any JSON
    """Raise one refusal for all; rather one that leaves something in doubt."""
    refusals = [one for one in found.values() if isinstance(one, Refusal)]
    if refusals:
        refusal = max(refusals, key=lambda one: one.code == "unknown_outcome")
        refusal.details |= details
        raise refusal


async def _look(manager: Manager, topic: Topic, cut: Cut) -> Offsets:
    return await manager.gateway.offsets(topic, cut.partition, seconds=manager.settings.request_s_max)


async def _delete(manager: Manager, topic: Topic, cut: Cut) -> Offsets:
    return await manager.gateway.delete_records(
        topic, cut.partition, cut.offset, seconds=manager.settings.request_s_max
    )
