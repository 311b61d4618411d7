"""The control state: the operator reads what managers send."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import msgspec
from fastapi import FastAPI

from flotilla_manager.api.control import make_control
from flotilla_manager.manager import Manager
from flotilla_manager.writer.reports import Disk
from flotilla_operator.cluster_state import decode_state
from support.writer_harness import Bench, WriterHarness, on_bench


async def get_state(writer: WriterHarness) -> bytes:
    """Request the control state, over HTTP."""
    app = FastAPI()
    manager = SimpleNamespace(metadata=writer.metadata, writer=writer.service)
    app.include_router(make_control(cast("Manager", manager)))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://manager") as client:
        return (await client.get("/v1/control/state")).raise_for_status().content


def differences(read: Any, sent: Any, path: str = "state") -> list[str]:  # noqa: ANN401 - any JSON
    """List the fields that the operator read, but that were not sent, or with another value."""
    if isinstance(read, dict):
        missing = [f"{path}.{name} is missing" for name in read if name not in sent]
        return missing + [
            found for name in read if name in sent for found in differences(read[name], sent[name], f"{path}.{name}")
        ]
    if isinstance(read, list | tuple) and len(read) == len(sent):
        return [
            found
            for at, (one, other) in enumerate(zip(read, sent, strict=True))
            for found in differences(one, other, f"{path}[{at}]")
        ]
    return [] if read == sent else [f"{path} is {read!r}, sent was {sent!r}"]


def test_operator_reads_every_field_of_the_control_state_as_managers_send_it(tmp_path: Path) -> None:
    """A field that managers no longer send would silently have its default."""

    async def work(bench: Bench) -> None:
        writer = await bench.writer()
        first = next(iter(bench.brokers.values()))
        first.rack = "a"
        topic = await writer.create(
            "orders",
            partitions=2,
            retention_bytes=1 << 30,
            owner="Topic q/orders",
            batch_bytes_max=4096,
            compression="zstd",
        )
        await writer.service.brokers.configure(first.id, rack="a", wanted=False, cordoned=True)
        await writer.reconcile()
        held = first.heartbeat().replicas
        counted = msgspec.structs.replace(
            held[0], settled=True, leads=True, first_offset=3, next_offset=9, size_bytes=700, lag=2
        )
        await writer.service.brokers.heartbeat(
            first.heartbeat(disk=Disk(used_bytes=5000), replicas=(counted,), broken=held[1:], manager_heartbeat_s=2.0)
        )
        writer.clock.move(0.5)

        response = await get_state(writer)

        state = decode_state(response)
        assert differences(msgspec.to_builtins(state), msgspec.json.decode(response)) == []
        (found,) = state.topics
        assert (found.id, found.owner, found.compression, len(found.partitions)) == (
            topic.id,
            "Topic q/orders",
            "zstd",
            2,
        )
        (broker,) = (one for one in state.brokers if one.id == first.id)
        assert (broker.rack, broker.wanted, broker.cordoned) == ("a", False, True)
        report = state.reports[first.id]
        assert (report.seconds_ago, report.heartbeat_limit_s, report.disk.used_bytes) == (0.5, 6.0, 5000)
        (replica,), (broken,) = report.replicas, report.broken
        assert (replica.settled, replica.first_offset, replica.next_offset) == (True, 3, 9)
        assert (replica.size_bytes, replica.lag) == (700, 2)
        assert broken.partition != replica.partition

    on_bench(tmp_path, work)


def test_missing_and_changed_fields_are_found() -> None:
    sent = {"a": 1, "b": [{"c": 2}], "more": 5}
    assert differences({"a": 1, "b": [{"c": 2}]}, sent) == []
    assert differences({"a": 2, "b": [{"c": 2, "d": None}]}, sent) == [
        "state.a is 2, sent was 1",
        "state.b[0].d is missing",
    ]
    assert differences({"b": []}, sent) == ["state.b is [], sent was [{'c': 2}]"]
