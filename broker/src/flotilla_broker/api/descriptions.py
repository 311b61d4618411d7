"""JSON descriptions of a broker and its replicas."""

from typing import Any

import msgspec

from flotilla_broker.partition.meta import ReplicaMeta
from flotilla_broker.partition.partition import Partition
from flotilla_broker.server import Broker


def describe_broker(broker: Broker) -> dict[str, Any]:
    """Describe a broker: id, cluster, addresses, epochs."""
    identity = broker.identity
    return {
        "id": identity.id,
        "cluster_id": identity.cluster_id,
        **msgspec.structs.asdict(broker.address),
        "rack": broker.settings.rack,
        "starts": identity.start.number,
        "writer_epoch": identity.writer_epoch,
        "manager_heartbeat_s": broker.settings.manager_heartbeat_s,
    }


def describe_broken(broker: Broker) -> list[dict[str, Any]]:
    """List the replicas that are out of service, with the reason."""
    return [{**_identify(meta), "reason": reason} for meta, reason in broker.engine.broken.values()]


def describe(partition: Partition) -> dict[str, Any]:
    """Describe a replica completely."""
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
        "copying": raft.is_receiving_snapshot,
        "sealed_index": sealed,
    }


def summarize(partition: Partition) -> dict[str, Any]:
    """Describe a replica for heartbeats."""
    raft = partition.raft
    return {
        **_identify(partition.meta),
        "retention_ms": partition.meta.retention_ms,
        "retention_bytes": partition.meta.retention_bytes,
        "batch_bytes_max": partition.meta.batch_bytes_max,
        "leader": raft.leader,
        "leads": raft.is_leader,
        "settled": raft.has_committed_in_term,
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
