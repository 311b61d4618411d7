"""The API besides append and fetch: commands of the writer, status of the broker and its replicas."""

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from flotilla.limits import INT64_MAX, REPLICATION_MAX, RETENTION_MS_DEFAULT, TOPIC_BATCH_BYTES_MIN, TOPIC_NAME_RULE
from flotilla.protocol.errors import Refusal, not_found
from flotilla.records import BATCH_BYTES_MAX
from flotilla_broker.api.delete_records import add_delete_records
from flotilla_broker.api.descriptions import describe, describe_broken, describe_broker
from flotilla_broker.api.lookup import Lookup
from flotilla_broker.api.metrics import Metrics
from flotilla_broker.engine import ReplicaBroken
from flotilla_broker.identity import BrokerAddress, ForeignCluster, StaleWriter
from flotilla_broker.partition.meta import GroupKey, ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.peers.addresses import PEERS_MAX
from flotilla_broker.server import Broker, EpochUnsupported, ReplicaClosed
from flotilla_server.handlers import add_handlers

_ID = "^[0-9a-f]{32}$"
_REPLICA = "/v1/replicas/{topic_id}/{partition}/{epoch}"
_COUNT_MAX = (1 << 32) - 1
_EPOCH_RULE = "Epoch of the writer; a command with a lower epoch than an earlier one is rejected"
_CLUSTER_RULE = "Id of the cluster; a command of another cluster is rejected"
WriterEpoch = Annotated[int, Query(ge=0, le=INT64_MAX, description=_EPOCH_RULE)]
ClusterId = Annotated[str | None, Query(pattern=_ID, description=_CLUSTER_RULE)]
TopicId = Annotated[str, Path(pattern=_ID, description="Id of the topic: 32 hexadecimal digits")]
Count = Annotated[int, Path(ge=0, le=_COUNT_MAX)]
BrokerId = Annotated[str, Field(pattern=_ID)]
Retention = Annotated[int, Field(ge=0, le=INT64_MAX, description="Null: no limit")]
BatchBytes = Annotated[int, Field(ge=TOPIC_BATCH_BYTES_MIN, le=BATCH_BYTES_MAX)]


class _Command(BaseModel):
    """Fields of every command."""

    model_config = ConfigDict(extra="forbid")

    writer_epoch: Annotated[int, Field(ge=0, le=INT64_MAX, description=_EPOCH_RULE)]
    cluster_id: Annotated[BrokerId | None, Field(description=_CLUSTER_RULE)] = None


class ReplicaCommand(_Command):
    """Create a replica, or change its settings."""

    topic: Annotated[str, Field(pattern=f"^{TOPIC_NAME_RULE}$")]
    members: Annotated[
        list[BrokerId],
        Field(
            min_length=1,
            max_length=REPLICATION_MAX,
            description="Ids of the brokers with a replica, this broker included",
        ),
    ]
    retention_ms: Retention | None = RETENTION_MS_DEFAULT
    retention_bytes: Retention | None = None
    batch_bytes_max: BatchBytes | None = None


class Address(BaseModel):
    """Addresses of a broker: for clients, and for other brokers."""

    model_config = ConfigDict(extra="forbid")

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$")]
    port: Annotated[int, Field(ge=1, le=65535)]
    peer_host: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\s\x00-\x1f\x7f/?#@]+$")]
    peer_port: Annotated[int, Field(ge=1, le=65535)]
    tls: Annotated[bool, Field(description="Clients connect with TLS")] = False
    name: Annotated[str, Field(max_length=253, pattern=r"^[^\s\x00-\x1f\x7f]*$", description="Name for users")] = ""


class BrokersCommand(_Command):
    """Set the addresses of all brokers."""

    brokers: Annotated[dict[BrokerId, Address], Field(max_length=PEERS_MAX)]


class CampaignCommand(_Command):
    """Start an election."""


class TransferLeadershipCommand(_Command):
    """Transfer leadership to another member."""

    target: Annotated[BrokerId | None, Field(description="Null: the most up-to-date connected member")] = None


def make_control(broker: Broker, lookup: Lookup, metrics: Metrics) -> FastAPI:
    """Create the FastAPI application."""
    app = FastAPI(
        title="Flotilla broker",
        version="1",
        docs_url=None,  # with assets of our own, from `flotilla_server.docs`
        redoc_url=None,
        description="Append and fetch batches of the partitions on this broker. The writer sends commands.",
    )
    add_handlers(app)
    _add_health(app, broker, metrics)
    _add_replicas(app, broker)
    _add_commands(app, broker)
    _add_leader_commands(app, broker, lookup)
    add_delete_records(app, broker, lookup)
    return app


def _add_health(app: FastAPI, broker: Broker, metrics: Metrics) -> None:
    @app.get("/healthz", tags=["health"], summary="Liveness probe")
    async def healthz() -> dict[str, str]:
        """Return 200 if the event loop responds. A broker that waits for other processes is alive."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"], response_model=None, summary="Readiness probe")
    async def readyz() -> JSONResponse:
        """Return 200 if recovery is complete, a manager accepted a heartbeat, and no replica lags too far behind.

        A partition without a leader does not make the broker unready.
        """
        reasons = broker.unready_reasons()
        status = {"status": "unready" if reasons else "ready", "reasons": reasons}
        return JSONResponse(status, 503 if reasons else 200)

    @app.get("/metrics", tags=["health"], response_class=Response, summary="Metrics")
    async def prometheus() -> Response:
        """Return metrics in the text format of Prometheus."""
        return Response(metrics.to_bytes(), media_type="text/plain; version=0.0.4")


def _add_replicas(app: FastAPI, broker: Broker) -> None:
    @app.get("/v1/broker", tags=["replicas"], summary="Describe this broker")
    async def show_broker() -> dict[str, Any]:
        """Return id, cluster, addresses and connected brokers."""
        return {**describe_broker(broker), "connected": sorted(broker.peers.connected)}

    @app.get("/v1/replicas", tags=["replicas"], summary="List replicas")
    async def list_replicas() -> dict[str, Any]:
        """Return all replicas on this broker. The lists of all brokers are enough to rebuild the metadata."""
        replicas = [describe(partition) for partition in broker.engine.partitions.values()]
        return {"replicas": replicas, "broken": describe_broken(broker)}

    @app.get("/v1/replicas/{topic_id}/{partition}/{epoch}", tags=["replicas"], summary="Describe a replica")
    async def show_replica(topic_id: TopicId, partition: Count, epoch: Count) -> dict[str, Any]:
        """Return role, term, offsets and lag of a replica."""
        return describe(_find(broker, topic_id, partition, epoch))


def _add_commands(app: FastAPI, broker: Broker) -> None:
    @app.put("/v1/brokers", tags=["commands"], summary="Set broker addresses")
    async def set_brokers(command: BrokersCommand) -> dict[str, Any]:
        """Set the addresses of all brokers; kept across restarts. The first cluster id assigns this broker for ever."""
        await _check_command(broker, command.writer_epoch, command.cluster_id)
        if command.cluster_id is not None:
            await _check_cluster(broker, command.cluster_id)  # another command may have arrived meanwhile
            broker.identity.join_cluster(command.cluster_id)
        broker.set_brokers({name: BrokerAddress(**address.model_dump()) for name, address in command.brokers.items()})
        await broker.durable()
        return {"status": "ok"}

    @app.put("/v1/replicas/{topic_id}/{partition}/{epoch}", tags=["commands"], summary="Create a replica")
    async def open_replica(
        topic_id: TopicId, partition: Count, epoch: Count, command: ReplicaCommand
    ) -> dict[str, Any]:
        """Create a replica, or change retention and batch size limit of an existing one. It is idempotent."""
        meta = ReplicaMeta(
            topic=command.topic,
            topic_id=bytes.fromhex(topic_id),
            partition=partition,
            epoch=epoch,
            members=tuple(sorted(command.members)),
            retention_ms=command.retention_ms,
            retention_bytes=command.retention_bytes,
            batch_bytes_max=command.batch_bytes_max,
        )
        _check_members(broker, meta)
        await _check_command(broker, command.writer_epoch, command.cluster_id)
        try:
            opened = broker.open_replica(meta)
        except ReplicaBroken as error:
            raise Refusal("broken", str(error)) from error
        except (ReplicaClosed, EpochUnsupported) as error:
            raise Refusal("conflict", str(error)) from error
        await broker.durable()
        return describe(opened)

    @app.delete("/v1/replicas/{topic_id}/{partition}/{epoch}", tags=["commands"], summary="Remove a replica")
    async def close_replica(
        topic_id: TopicId, partition: Count, epoch: Count, writer_epoch: WriterEpoch, cluster_id: ClusterId = None
    ) -> dict[str, Any]:
        """Remove a replica and its records. It can return to this broker only in a new partition epoch."""
        await _check_command(broker, writer_epoch, cluster_id)
        key = GroupKey(bytes.fromhex(topic_id), partition, epoch)
        if not broker.drop_replica(key):
            raise not_found("replica", f"no replica {key} on this broker")
        await broker.durable()
        return {"status": "ok"}


def _add_leader_commands(app: FastAPI, broker: Broker, lookup: Lookup) -> None:

    @app.post(f"{_REPLICA}/stand", tags=["commands"], summary="Alias of campaign until 0.4", deprecated=True)
    @app.post(f"{_REPLICA}/campaign", tags=["commands"], summary="Start an election")
    async def campaign(topic_id: TopicId, partition: Count, epoch: Count, command: CampaignCommand) -> dict[str, Any]:
        """Start an election at once if there is no leader, without waiting for the election timeout."""
        await _check_command(broker, command.writer_epoch, command.cluster_id)
        found = _find(broker, topic_id, partition, epoch)
        broker.campaign(found)
        return describe(found)

    @app.post(
        f"{_REPLICA}/hand-over", tags=["commands"], summary="Alias of transfer-leadership until 0.4", deprecated=True
    )
    @app.post(f"{_REPLICA}/transfer-leadership", tags=["commands"], summary="Transfer leadership")
    async def transfer_leadership(
        topic_id: TopicId, partition: Count, epoch: Count, command: TransferLeadershipCommand
    ) -> dict[str, Any]:
        """Transfer leadership to `target`, or to the most up-to-date connected member."""
        await _check_command(broker, command.writer_epoch, command.cluster_id)
        found = _find(broker, topic_id, partition, epoch)
        if command.target is not None and command.target not in found.raft.peers:
            raise Refusal("bad_request", f"target {command.target} is not another member of {found.meta.key}")
        lookup.lead(found, lambda: broker.transfer_leadership(found, command.target))
        await broker.durable()
        return describe(found)


async def _check_command(broker: Broker, writer_epoch: int, cluster_id: str | None) -> None:
    """Check cluster and writer epoch of a command. A new epoch is durable before the response."""
    await _check_cluster(broker, cluster_id)  # first: the epoch of another cluster must not count
    before = broker.identity.writer_epoch
    try:
        broker.identity.check_writer_epoch(writer_epoch)
    except StaleWriter as error:
        raise Refusal("stale_writer", str(error), writer_epoch=broker.identity.writer_epoch) from error
    if broker.identity.writer_epoch != before:
        await broker.durable()


async def _check_cluster(broker: Broker, cluster_id: str | None) -> None:
    try:
        broker.identity.check_cluster(cluster_id)
    except ForeignCluster as error:
        await broker.durable()  # the cluster id must be durable before the response
        raise Refusal("conflict", str(error), cluster_id=broker.identity.cluster_id) from error


def _check_members(broker: Broker, meta: ReplicaMeta) -> None:
    if broker.identity.id not in meta.members:
        raise Refusal("bad_request", f"members must include this broker, {broker.identity.id}")
    if len(set(meta.members)) != len(meta.members):
        raise Refusal("bad_request", "members must not contain a broker twice")
    named = broker.engine.names.get((meta.topic, meta.partition))
    if named is not None and named.meta.topic_id != meta.topic_id:
        raise Refusal(
            "conflict",
            f"topic {meta.topic!r}: this broker has a replica of another topic with this name, {named.meta.key}",
        )
    known = broker.engine.partitions.get(meta.key.to_bytes())
    if known is not None and (known.meta.members, known.meta.topic) != (meta.members, meta.topic):
        raise Refusal("conflict", f"replica {meta.key} exists with other members or another topic name")


def _find(broker: Broker, topic_id: str, partition: int, epoch: int) -> Partition:
    key = GroupKey(bytes.fromhex(topic_id), partition, epoch)
    found = broker.engine.partitions.get(key.to_bytes())
    if found is None:
        raise not_found("replica", f"no replica {key} on this broker")
    return found
