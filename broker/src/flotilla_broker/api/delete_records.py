"""Delete records: all records below an offset, permanently and on all replicas.

The leader commits a trim, as for retention, with an offset that may be inside a batch. It responds when a majority has
the trim on disk and this leader has applied it. The first offset never decreases, so the call is idempotent: a client
without a response retries, here or with the next leader.

The response makes no statement about disk space. Entries entirely below the offset are removed; the entry that contains
the offset stays until all its records are deleted.
"""

import asyncio
import contextlib
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request

from flotilla.access import Scope as Permission
from flotilla.limits import INT64_MAX
from flotilla.protocol.appends import PARTITION_MAX
from flotilla.protocol.errors import Refusal
from flotilla_broker.api.fetch import out_of_range
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.log import DiskFull
from flotilla_broker.partition.partition import Partition
from flotilla_broker.server import Broker
from flotilla_server.authorization import caller_of

_TRIM_BYTES = 32  # of the entry: an instruction and a number

Name = Annotated[str, Query(max_length=300, description="Name of the topic, or `id:` and its id")]
Index = Annotated[int, Query(ge=0, le=PARTITION_MAX, description="Number of the partition")]
Number = Annotated[int, Query(ge=0, le=INT64_MAX)]
Below = Annotated[
    Number | Literal["latest"], Query(description="Delete the records below this offset; `latest`: all records")
]


def add_delete_records(app: FastAPI, broker: Broker, lookup: Lookup) -> None:
    """Add the route."""

    @app.post("/v1/delete-records", tags=["records"], summary="Delete records")
    async def delete_records(request: Request, topic: Name, partition: Index, offset: Below) -> dict[str, Any]:
        """Delete the records below an offset. Only the leader accepts it. It is idempotent."""
        lookup.require(caller_of(request.scope), Permission.ADMIN, topic, partition)
        found = lookup.leader_with_commit(topic, partition)
        wanted = found.committed_offset if offset == "latest" else offset
        if wanted > found.committed_offset:
            text = f"offset {wanted} is above the next offset, {found.committed_offset}"
            raise out_of_range(found, text)
        if wanted > found.start_offset:
            if found.is_sealed:
                raise Refusal("sealed", "the partition epoch is sealed; refresh the metadata and use the new replicas")
            _admit(broker, found, wanted)
            lookup.lead(found, lambda: found.trim(wanted))
            broker.engine.schedule(found.key)
            broker.wake()
            await _wait_deleted(broker, found, wanted)
        return {"status": "ok", "first_offset": found.start_offset, "next_offset": found.committed_offset}


def _admit(broker: Broker, partition: Partition, offset: int) -> None:
    """Check the disk space. On a full disk only a trim that frees an entry may use the reserve."""
    try:
        broker.log.admit(_TRIM_BYTES)
    except DiskFull as error:
        if not partition.frees_entries(offset):
            raise Refusal("disk_full", str(error)) from error


async def _wait_deleted(broker: Broker, partition: Partition, offset: int) -> None:
    """Wait until the trim is applied. Raises Refusal if the outcome is unknown."""
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
        raise Refusal(
            "unknown_outcome",
            f"deletion not committed within {broker.settings.append_s_max:g} s, and may still be: retry",
        )
