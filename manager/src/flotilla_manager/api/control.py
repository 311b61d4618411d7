"""For operators and brokers, never exposed to the world: what there is, what should be, and heartbeats. And health."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from flotilla.limits import PARTITIONS_MAX, REPLICATION_MAX, TOPIC_NAME_RULE
from flotilla.serving.errors import Refusal
from flotilla_manager.api import groups
from flotilla_manager.api.deleting import DELETE_RECORDS
from flotilla_manager.api.endpoint import away
from flotilla_manager.api.metrics import Metrics
from flotilla_manager.api.programs import BY_SETTING, TOPICS, BatchBytes, Compressions
from flotilla_manager.api.tokens import TOKENS
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.writer.reports import Beat

_NUMBER_MAX = (1 << 63) - 1
_TEXT = r"^[^\x00-\x1f\x7f]*$"  # no database has to store what cannot be seen
_OWNER = Field(
    max_length=500, pattern=_TEXT, description="The resource that owns it, which alone may change or delete it"
)
TopicName = Annotated[str, Path(pattern=f"^{TOPIC_NAME_RULE}$")]
TopicId = Annotated[str, Query(pattern="^[0-9a-f]{32}$")]
BrokerId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
_decoder = msgspec.json.Decoder(Beat)


class TopicBody(BaseModel):
    """What a topic should be."""

    model_config = ConfigDict(extra="forbid")

    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_MAX)] = 2
    replication: Annotated[int, Field(ge=1, le=REPLICATION_MAX)] = 3
    retention_ms: Annotated[int, Field(ge=0, le=_NUMBER_MAX, description=BY_SETTING)] | None = None
    retention_bytes: Annotated[int, Field(ge=0, le=_NUMBER_MAX, description=BY_SETTING)] | None = None
    batch_bytes_max: BatchBytes | None = None
    compression: Compressions | None = None
    owner: Annotated[str, _OWNER] | None = None


class BrokerBody(BaseModel):
    """What a broker should be."""

    model_config = ConfigDict(extra="forbid")

    rack: Annotated[str, Field(max_length=253, pattern=_TEXT)] | None = None
    wanted: bool = True
    cordoned: bool = False


def make_control(manager: Manager) -> APIRouter:
    """Make the routes of the control API."""
    router = APIRouter(prefix="/v1/control", tags=["control"])

    @router.get("/state")
    async def state() -> dict[str, Any]:
        """The whole topology at one version, and what brokers said last."""
        await manager.view.refresh()
        return manager.writer.describe()

    @router.put("/topics/{name}")
    async def put_topic(name: TopicName, body: TopicBody) -> dict[str, Any]:
        """Have a topic as it should be. To say it again changes nothing."""
        topic = await manager.writer.put_topic(name, **body.model_dump(exclude_unset=True))
        found: dict[str, Any] = msgspec.to_builtins(topic)
        return found

    @router.delete("/topics/{name}")
    async def delete_topic(
        name: TopicName, owner: Annotated[str, Query(max_length=500)] = "", topic_id: TopicId | None = None
    ) -> dict[str, str]:
        """Remove a topic and its records; with an id, only if it is the topic of that id."""
        await manager.writer.delete_topic(name, owner or None, topic_id)
        return {"status": "ok"}

    @router.delete("/topics/{name}/owner")
    async def release_topic(
        name: TopicName, owner: Annotated[str, Query(min_length=1, max_length=500)]
    ) -> dict[str, str]:
        """Have a topic belong to nobody, which only its owner may say. The topic stays as it is."""
        await manager.writer.release_topic(name, owner)
        return {"status": "ok"}

    @router.put("/brokers/{broker_id}")
    async def put_broker(broker_id: BrokerId, body: BrokerBody) -> dict[str, Any]:
        """Say what a broker should be: its rack, whether it is wanted, whether it takes new replicas."""
        found: dict[str, Any] = msgspec.to_builtins(await manager.writer.put_broker(broker_id, **body.model_dump()))
        return found

    @router.delete("/brokers/{broker_id}")
    async def delete_broker(broker_id: BrokerId) -> dict[str, str]:
        """Do without a broker that holds nothing."""
        await manager.writer.delete_broker(broker_id)
        return {"status": "ok"}

    @router.post("/heartbeat")
    async def heartbeat(request: Request) -> Response:
        """Hear of a broker."""
        try:
            beat = _decoder.decode(await request.body())
        except msgspec.DecodeError as error:
            raise Refusal("bad_request", f"this is not a broker's heartbeat: {error}") from error
        answer = await manager.writer.heartbeat(beat)
        return Response(msgspec.json.encode(answer), media_type="application/json")  # tokens are many, and written

    return router


def add_health(app: FastAPI, manager: Manager, metrics: Metrics) -> None:
    """Add what probes and Prometheus ask for."""

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Alive: the loop turns. A manager that waits for others is alive."""
        return {"status": "alive", "role": manager.role}

    @app.get("/readyz", tags=["health"], response_model=None)
    async def readyz() -> JSONResponse:
        """Ready: produce and consume work here."""
        reasons = await manager.unready_reasons()
        return JSONResponse(
            {"status": "unready" if reasons else "ready", "role": manager.role, "reasons": reasons},
            503 if reasons else 200,
        )

    @app.get("/metrics", tags=["health"], response_class=Response)
    async def prometheus() -> Response:
        """Figures for Prometheus."""
        return Response(metrics.to_bytes(), media_type="text/plain; version=0.0.4")


def add_metadata_errors(app: FastAPI, manager: Manager) -> None:
    """Answer trouble with the database as a refusal."""

    async def on_error(_: Request, error: Exception) -> JSONResponse:
        if isinstance(error, Fenced):
            refusal = manager.writer.fenced(error)
        else:
            refusal = away(error) if isinstance(error, MetadataError) else Refusal("internal", "unexpected")
        return JSONResponse(refusal.to_dict(), refusal.status, {"retry-after": "1"})

    app.add_exception_handler(MetadataError, on_error)


CONTROL = "/v1/control/"


def is_for_writer(method: str, path: str) -> bool:
    """Tell whether a request with a path below /v1 is answered by the writer alone."""
    if path.startswith((CONTROL, f"{TOKENS}/")) or path == TOKENS:
        return True
    if path.startswith(f"{groups.GROUPS}/"):
        return groups.is_for_writer(method, path)
    if method == "POST" and path.startswith(f"{TOPICS}/") and path.endswith(DELETE_RECORDS):
        return False
    return method != "GET" and (path == TOPICS or path.startswith(f"{TOPICS}/"))
