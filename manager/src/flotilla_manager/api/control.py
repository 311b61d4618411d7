"""Control API for the operator and brokers (not on the public port), and health checks."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, FastAPI, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from flotilla.limits import TOPIC_NAME_RULE
from flotilla.protocol import topics
from flotilla.protocol.errors import Refusal
from flotilla_manager.api import groups
from flotilla_manager.api.bodies import AsStruct
from flotilla_manager.api.delete_records import DELETE_RECORDS
from flotilla_manager.api.endpoint import database_refusal
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.api.tokens import TOKENS
from flotilla_manager.api.v1 import TOPICS
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.writer.reports import Heartbeat

_TEXT = r"^[^\x00-\x1f\x7f]*$"  # no control characters
TopicName = Annotated[str, Path(pattern=f"^{TOPIC_NAME_RULE}$")]
TopicId = Annotated[str, Query(pattern="^[0-9a-f]{32}$")]
BrokerId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
TopicBody = Annotated[topics.TopicBody, Body(), AsStruct(topics.TopicBody)]
_decoder = msgspec.json.Decoder(Heartbeat)


class BrokerBody(BaseModel):
    """Desired state of a broker."""

    model_config = ConfigDict(extra="forbid")

    rack: Annotated[str, Field(max_length=253, pattern=_TEXT, description="Failure domain of the broker")] | None = None
    wanted: Annotated[bool, Field(description="False if a scale-down will remove the broker")] = True
    cordoned: Annotated[bool, Field(description="True if the broker gets no new replicas and leads no partition")] = (
        False
    )


def make_control(manager: Manager) -> APIRouter:
    """Create the routes of the control API."""
    router = APIRouter(prefix="/v1/control", tags=["control"])

    @router.get("/state")
    async def state() -> dict[str, Any]:
        """Return the topology at one version, and the last heartbeat of each broker."""
        await manager.metadata.refresh()
        return manager.writer.brokers.describe()

    @router.put("/topics/{name}")
    async def put_topic(name: TopicName, body: TopicBody) -> dict[str, Any]:
        """Create a topic, or change its settings, owner and number of partitions. Idempotent."""
        topic = await manager.writer.topics.put(name, **body.given())
        found: dict[str, Any] = msgspec.to_builtins(topic)
        return found

    @router.delete("/topics/{name}")
    async def delete_topic(
        name: TopicName, owner: Annotated[str, Query(max_length=500)] = "", topic_id: TopicId | None = None
    ) -> dict[str, str]:
        """Delete a topic and its records. With `topic_id`, only the topic with this id."""
        await manager.writer.topics.delete(name, owner or None, topic_id)
        return {"status": "ok"}

    @router.delete("/topics/{name}/owner")
    async def release_topic(
        name: TopicName, owner: Annotated[str, Query(min_length=1, max_length=500)]
    ) -> dict[str, str]:
        """Remove the owner of a topic. The topic stays."""
        await manager.writer.topics.release(name, owner)
        return {"status": "ok"}

    @router.put("/brokers/{broker_id}")
    async def put_broker(broker_id: BrokerId, body: BrokerBody) -> dict[str, Any]:
        """Set rack, `wanted` and `cordoned` of a broker. Idempotent."""
        found: dict[str, Any] = msgspec.to_builtins(
            await manager.writer.brokers.configure(broker_id, **body.model_dump())
        )
        return found

    @router.delete("/brokers/{broker_id}")
    async def delete_broker(broker_id: BrokerId) -> dict[str, str]:
        """Remove a broker that holds no replicas."""
        await manager.writer.brokers.delete(broker_id)
        return {"status": "ok"}

    @router.post("/heartbeat")
    async def heartbeat(request: Request) -> Response:
        """Accept a heartbeat of a broker."""
        try:
            heartbeat = _decoder.decode(await request.body())
        except msgspec.DecodeError as error:
            raise Refusal("bad_request", f"invalid heartbeat: {error}") from error
        answer = await manager.writer.brokers.heartbeat(heartbeat)
        return Response(msgspec.json.encode(answer), media_type="application/json")  # tokens are already encoded

    return router


def add_health(app: FastAPI, manager: Manager, metrics: Metrics) -> None:
    """Add the routes of probes and metrics."""

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Check liveness. Responds while the process runs, also without database or brokers."""
        return {"status": "alive", "role": manager.role}

    @app.get("/readyz", tags=["health"], response_model=None)
    async def readyz() -> JSONResponse:
        """Check readiness. Responds with 200 if produce and consume work, and with 503 and `reasons` otherwise."""
        reasons = await manager.unready_reasons()
        return JSONResponse(
            {"status": "unready" if reasons else "ready", "role": manager.role, "reasons": reasons},
            503 if reasons else 200,
        )

    @app.get("/metrics", tags=["health"], response_class=Response)
    async def prometheus() -> Response:
        """Return metrics in the Prometheus text format."""
        return Response(metrics.to_bytes(), media_type="text/plain; version=0.0.4")


def add_metadata_errors(app: FastAPI, manager: Manager) -> None:
    """Respond to database errors with an error of the API."""

    async def on_error(_: Request, error: Exception) -> JSONResponse:
        if isinstance(error, Fenced):
            refusal = manager.writer.give_up_role(error)
        else:
            refusal = database_refusal(error) if isinstance(error, MetadataError) else Refusal("internal", "unexpected")
        return JSONResponse(refusal.to_dict(), refusal.status, {"retry-after": "1"})

    app.add_exception_handler(MetadataError, on_error)


CONTROL = "/v1/control/"


def is_for_writer(method: str, path: str) -> bool:
    """Return whether only the writer handles a request below /v1."""
    if path.startswith((CONTROL, f"{TOKENS}/")) or path == TOKENS:
        return True
    if path.startswith(f"{groups.GROUPS}/"):
        return groups.is_for_writer(method, path)
    if method == "POST" and path.startswith(f"{TOPICS}/") and path.endswith(DELETE_RECORDS):
        return False
    return method != "GET" and (path == TOPICS or path.startswith(f"{TOPICS}/"))
