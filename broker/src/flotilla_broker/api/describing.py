"""What a broker tells about itself and its replicas."""

from typing import Any

import msgspec

from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.server import Broker


def describe_broker(broker: Broker) -> dict[str, Any]:
    """Tell who a broker is, and where it is reached."""
    identity = broker.identity
    return {
        "id": identity.id,
        "cluster_id": identity.cluster_id,
        **msgspec.structs.asdict(broker.address),
        "rack": broker.settings.rack,
        "starts": identity.start.number,
        "writer_epoch": identity.writer_epoch,
    }


def describe_broken(broker: Broker) -> list[dict[str, Any]]:
    """Tell which replicas are out of service, and why."""
    return [{**_identify(meta), "reason": reason} for meta, reason in broker.engine.broken.values()]


def describe(partition: Partition) -> dict[str, Any]:
    """Tell everything about a replica."""
    raft, log = partition.raft, partition.log
    sealed = partition.sealed_index if 0 < partition.sealed_index <= partition.applied_index else None
    return {
        **summarize(partition),
        "role": raft.role.name.lower(),
        "term": raft.term,
        "first_index": log.anchor_index + 1,
        "last_index": log.last_index,
        "committed_index": partition.applied_index,
        "durable_index": log.durable_index,
        "producers": len(partition.producers),
        "copying": raft.is_copying,
        "sealed_index": sealed,
    }


def summarize(partition: Partition) -> dict[str, Any]:
    """Tell about a replica what managers want to know every second."""
    raft = partition.raft
    return {
        **_identify(partition.meta),
        "retention_ms": partition.meta.retention_ms,
        "retention_bytes": partition.meta.retention_bytes,
        "batch_bytes_max": partition.meta.batch_bytes_max,
        "leader": raft.leader,
        "leads": raft.is_leader,
        "settled": raft.is_settled,
        "first_offset": partition.start_offset,
        "next_offset": partition.committed_offset,
        "size_bytes": sum(run.live_bytes for run in partition.log.group.runs),
        "lag": raft.lag,
    }


def _identify(meta: ReplicaMeta) -> dict[str, Any]:
    return {
        "topic": meta.topic,
        "topic_id": meta.topic_id.hex(),
        "partition": meta.partition,
        "epoch": meta.epoch,
        "members": meta.members,
    }
