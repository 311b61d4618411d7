"""Everything but append and fetch: orders from the writer, and what operators look at."""

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from flotilla.records import BATCH_BYTES_MAX
from flotilla.serving.errors import Refusal
from flotilla.serving.handlers import add_handlers
from flotilla_broker.api.deleting import add_deleting
from flotilla_broker.api.describing import describe, describe_broken, describe_broker
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.engine import ReplicaBroken
from flotilla_broker.identity import BrokerAddress, ForeignCluster, StaleWriter
from flotilla_broker.partition.entries import Seal
from flotilla_broker.partition.meta import GroupKey, ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.peers.addresses import PEERS_MAX
from flotilla_broker.server import Broker, ReplicaClosed

_ID = "^[0-9a-f]{32}$"
_COUNT_MAX = (1 << 32) - 1
_NUMBER_MAX = (1 << 63) - 1
WriterEpoch = Annotated[int, Query(ge=0, le=_NUMBER_MAX)]
ClusterId = Annotated[str | None, Query(pattern=_ID)]
TopicId = Annotated[str, Path(pattern=_ID, description="The id of the topic, as hexadecimal digits")]
Count = Annotated[int, Path(ge=0, le=_COUNT_MAX)]
BrokerId = Annotated[str, Field(pattern=_ID)]


class _Order(BaseModel):
    """What every order carries."""

    model_config = ConfigDict(extra="forbid")

    writer_epoch: Annotated[int, Field(ge=0, le=_NUMBER_MAX, description="Orders of a lower one are refused")]
    cluster_id: Annotated[BrokerId | None, Field(description="Orders of another cluster are refused")] = None


class OpenOrder(_Order):
    """Have a replica."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
    members: Annotated[list[BrokerId], Field(min_length=1, max_length=7, description="Brokers, this one among them")]
    retention_ms: Annotated[int, Field(ge=0, le=_NUMBER_MAX)] | None = 7 * 24 * 3600 * 1000
    retention_bytes: Annotated[int, Field(ge=0, le=_NUMBER_MAX)] | None = None
    batch_bytes_max: Annotated[int, Field(ge=1, le=BATCH_BYTES_MAX)] | None = None


class Address(BaseModel):
    """Where a broker is reached."""

    model_config = ConfigDict(extra="forbid")

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$")]
    port: Annotated[int, Field(ge=1, le=65535)]
    peer_host: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$")]
    peer_port: Annotated[int, Field(ge=1, le=65535)]
    tls: Annotated[bool, Field(description="Clients speak TLS with it")] = False


class BrokersOrder(_Order):
    """Know where the brokers are reached."""

    brokers: Annotated[dict[BrokerId, Address], Field(max_length=PEERS_MAX)]


class SealOrder(_Order):
    """End an epoch: no records are taken any more."""


class StandOrder(_Order):
    """Ask for an election."""


class HandOverOrder(_Order):
    """Make another member leader."""

    target: BrokerId | None = None


def make_control(broker: Broker, lookup: Lookup, metrics: Metrics) -> FastAPI:
    """Make the FastAPI part of the API."""
    app = FastAPI(
        title="Flotilla broker",
        version="1",
        docs_url=None,  # with assets of our own, from `flotilla.serving.docs`
        redoc_url=None,
        description="Keeps replicas of partitions. Append and fetch batches; orders come from the writer.",
    )
    add_handlers(app)
    _add_health(app, broker, metrics)
    _add_replicas(app, broker)
    _add_orders(app, broker)
    _add_leader_orders(app, broker, lookup)
    add_deleting(app, broker, lookup)
    return app


def _add_health(app: FastAPI, broker: Broker, metrics: Metrics) -> None:
    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """Alive: the loop turns. A broker that waits for others is alive."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"], response_model=None)
    async def readyz() -> JSONResponse:
        """Ready: recovered, registered, no replica far behind its leader. A replica without a leader is no reason."""
        reasons = broker.unready_reasons()
        status = {"status": "unready" if reasons else "ready", "reasons": reasons}
        return JSONResponse(status, 503 if reasons else 200)

    @app.get("/metrics", tags=["health"], response_class=Response)
    async def prometheus() -> Response:
        """Figures for Prometheus."""
        return Response(metrics.to_bytes(), media_type="text/plain; version=0.0.4")


def _add_replicas(app: FastAPI, broker: Broker) -> None:
    @app.get("/v1/broker", tags=["replicas"])
    async def show_broker() -> dict[str, Any]:
        """Who this broker is, and where it is reached."""
        return {**describe_broker(broker), "connected": sorted(broker.peers.connected)}

    @app.get("/v1/replicas", tags=["replicas"])
    async def list_replicas() -> dict[str, Any]:
        """All replicas on this broker; from these of all brokers, metadata can be rebuilt."""
        replicas = [describe(partition) for partition in broker.engine.partitions.values()]
        return {"replicas": replicas, "broken": describe_broken(broker)}

    @app.get("/v1/replicas/{topic_id}/{partition}/{epoch}", tags=["replicas"])
    async def show_replica(topic_id: TopicId, partition: Count, epoch: Count) -> dict[str, Any]:
        """One replica."""
        return describe(_find(broker, topic_id, partition, epoch))


def _add_orders(app: FastAPI, broker: Broker) -> None:
    @app.put("/v1/brokers", tags=["orders"])
    async def set_brokers(order: BrokersOrder) -> dict[str, Any]:
        """Know where the brokers are reached, and which cluster this is. It is remembered over a restart."""
        await _heed(broker, order.writer_epoch, order.cluster_id)
        if order.cluster_id is not None:
            await _check_cluster(broker, order.cluster_id)  # another order may have come meanwhile
            broker.identity.join_cluster(order.cluster_id)
        broker.set_brokers({name: BrokerAddress(**address.model_dump()) for name, address in order.brokers.items()})
        await broker.durable()
        return {"status": "ok"}

    @app.put("/v1/replicas/{topic_id}/{partition}/{epoch}", tags=["orders"])
    async def open_replica(topic_id: TopicId, partition: Count, epoch: Count, order: OpenOrder) -> dict[str, Any]:
        """Have a replica. To say it again changes nothing."""
        meta = ReplicaMeta(
            topic=order.topic,
            topic_id=bytes.fromhex(topic_id),
            partition=partition,
            epoch=epoch,
            members=tuple(sorted(order.members)),
            retention_ms=order.retention_ms,
            retention_bytes=order.retention_bytes,
            batch_bytes_max=order.batch_bytes_max,
        )
        _check_members(broker, meta)
        await _heed(broker, order.writer_epoch, order.cluster_id)
        try:
            opened = broker.open_replica(meta)
        except ReplicaBroken as error:
            raise Refusal("broken", str(error)) from error
        except ReplicaClosed as error:
            raise Refusal("conflict", str(error)) from error
        await broker.durable()
        return describe(opened)

    @app.delete("/v1/replicas/{topic_id}/{partition}/{epoch}", tags=["orders"])
    async def close_replica(
        topic_id: TopicId, partition: Count, epoch: Count, writer_epoch: WriterEpoch, cluster_id: ClusterId = None
    ) -> dict[str, Any]:
        """Remove a replica and its records."""
        await _heed(broker, writer_epoch, cluster_id)
        key = GroupKey(bytes.fromhex(topic_id), partition, epoch)
        if not broker.drop_replica(key):
            raise Refusal("not_found", f"there is no replica {key} on this broker")
        await broker.durable()
        return {"status": "ok"}


def _add_leader_orders(app: FastAPI, broker: Broker, lookup: Lookup) -> None:
    @app.post("/v1/replicas/{topic_id}/{partition}/{epoch}/seal", tags=["orders"])
    async def seal_replica(topic_id: TopicId, partition: Count, epoch: Count, order: SealOrder) -> dict[str, Any]:
        """End an epoch; ask again until `sealed` is committed."""
        await _heed(broker, order.writer_epoch, order.cluster_id)
        found = _find(broker, topic_id, partition, epoch)
        if not found.is_sealed:
            lookup.lead(found, lambda: found.instruct(Seal()))
            broker.engine.touch(found.key)
            broker.wake()
        await broker.durable()
        return describe(found)

    @app.post("/v1/replicas/{topic_id}/{partition}/{epoch}/stand", tags=["orders"])
    async def stand(topic_id: TopicId, partition: Count, epoch: Count, order: StandOrder) -> dict[str, Any]:
        """Ask for an election at once, if there is no leader: a new partition need not wait for one."""
        await _heed(broker, order.writer_epoch, order.cluster_id)
        found = _find(broker, topic_id, partition, epoch)
        broker.stand(found)
        return describe(found)

    @app.post("/v1/replicas/{topic_id}/{partition}/{epoch}/hand-over", tags=["orders"])
    async def hand_over(topic_id: TopicId, partition: Count, epoch: Count, order: HandOverOrder) -> dict[str, Any]:
        """Make another member leader."""
        await _heed(broker, order.writer_epoch, order.cluster_id)
        found = _find(broker, topic_id, partition, epoch)
        if order.target is not None and order.target not in found.raft.peers:
            raise Refusal("bad_request", f"{order.target} is not another member of {found.meta.key}")
        lookup.lead(found, lambda: broker.hand_over(found, order.target))
        await broker.durable()
        return describe(found)


async def _heed(broker: Broker, writer_epoch: int, cluster_id: str | None) -> None:
    """Check an order's cluster and epoch; what is answered afterwards is answered by one who remembers it."""
    await _check_cluster(broker, cluster_id)  # before its epoch counts: a stranger's must not
    before = broker.identity.writer_epoch
    try:
        broker.identity.heed(writer_epoch)
    except StaleWriter as error:
        raise Refusal("stale_writer", str(error), writer_epoch=broker.identity.writer_epoch) from error
    if broker.identity.writer_epoch != before:
        await broker.durable()


async def _check_cluster(broker: Broker, cluster_id: str | None) -> None:
    try:
        broker.identity.check_cluster(cluster_id)
    except ForeignCluster as error:
        await broker.durable()  # what is answered is answered by one who remembers it
        raise Refusal("conflict", str(error), cluster_id=broker.identity.cluster_id) from error


def _check_members(broker: Broker, meta: ReplicaMeta) -> None:
    if broker.identity.id not in meta.members:
        raise Refusal("bad_request", f"this broker, {broker.identity.id}, is not among the members")
    if len(set(meta.members)) != len(meta.members):
        raise Refusal("bad_request", "a broker is among the members twice")
    named = broker.engine.names.get((meta.topic, meta.partition))
    if named is not None and named.meta.topic_id != meta.topic_id:
        raise Refusal("conflict", f"there is a replica of another topic with this name: {named.meta.key}")
    known = broker.engine.partitions.get(meta.key.to_bytes())
    if known is not None and (known.meta.members, known.meta.topic) != (meta.members, meta.topic):
        raise Refusal("conflict", f"the replica {meta.key} is here already, with other members or another topic's name")


def _find(broker: Broker, topic_id: str, partition: int, epoch: int) -> Partition:
    key = GroupKey(bytes.fromhex(topic_id), partition, epoch)
    found = broker.engine.partitions.get(key.to_bytes())
    if found is None:
        raise Refusal("not_found", f"there is no replica {key} on this broker")
    return found
