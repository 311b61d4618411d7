"""Delete records: everything below an offset is gone for readers, on all replicas and for good.

The leader commits a trim, as it does for retention, with an offset that may lie in a batch. It is answered when a
majority has the trim on disk and this leader has carried it out. To ask again changes nothing, and where records
begin never goes back: so whoever gets no answer asks again, here or the next leader.

The answer says nothing about space. Entries that lie wholly below the offset are let go of; the one that the offset is
in stays as long as it has a record that is not deleted.
"""

import asyncio
import contextlib
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request

from flotilla.access import Scope as Permission
from flotilla.serving.appends import PARTITION_MAX
from flotilla.serving.errors import Refusal
from flotilla.serving.gate import caller_of
from flotilla_broker.api.fetch import out_of_range
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.log import DiskFull
from flotilla_broker.partition.partition import Partition
from flotilla_broker.server import Broker

_NUMBER_MAX = (1 << 63) - 1
_TRIM_BYTES = 32  # of the entry: an instruction and a number

Name = Annotated[str, Query(max_length=300, description="The topic's name, or `id:` with its id")]
Index = Annotated[int, Query(ge=0, le=PARTITION_MAX)]
Number = Annotated[int, Query(ge=0, le=_NUMBER_MAX)]
Below = Annotated[Number | Literal["latest"], Query(description="Records below it go; `latest`: all that are there")]


def add_deleting(app: FastAPI, broker: Broker, lookup: Lookup) -> None:
    """Add the route."""

    @app.post("/v1/delete-records", tags=["records"])
    async def delete_records(request: Request, topic: Name, partition: Index, offset: Below) -> dict[str, Any]:
        """Delete the records below an offset. Ask the leader; to say it again changes nothing."""
        lookup.require(caller_of(request.scope), Permission.ADMIN, topic, partition)
        found = lookup.settled_leader(topic, partition)
        wanted = found.committed_offset if offset == "latest" else offset
        if wanted > found.committed_offset:
            text = f"offset {wanted} is yet to come: the next record gets {found.committed_offset}"
            raise out_of_range(found, text)
        if wanted > found.start_offset:
            if found.is_sealed:
                raise Refusal("sealed", "this epoch of the partition has ended; ask for its new replicas")
            _admit(broker, found, wanted)
            lookup.lead(found, lambda: found.trim(wanted))
            broker.engine.touch(found.key)
            broker.wake()
            await _until_gone(broker, found, wanted)
        return {"status": "ok", "first_offset": found.start_offset, "next_offset": found.committed_offset}


def _admit(broker: Broker, partition: Partition, offset: int) -> None:
    """Ask for room. A full disk takes only what makes room, so that the reserve is not used up by small steps."""
    try:
        broker.log.admit(_TRIM_BYTES)
    except DiskFull as error:
        if not partition.frees_entries(offset):
            raise Refusal("disk_full", str(error)) from error


async def _until_gone(broker: Broker, partition: Partition, offset: int) -> None:
    """Wait until it is committed that the records are gone. Raises Refusal if that cannot be known here."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(broker.settings.append_s_max):
            while partition.start_offset < offset and partition.raft.leadership is not None:
                changed = asyncio.Event()
                undo = partition.watch(changed.set)
                try:
                    await changed.wait()
                finally:
                    undo()
    if partition.start_offset < offset:
        raise Refusal("unknown_outcome", "it is not known whether the records will be gone; ask again")
