"""`flotilla admin rebuild-metadata`: rebuild the metadata database from the replicas of brokers.

For a database that was lost, or restored from a backup that is too old. The writer must be stopped first; a paused
writer is fenced when it continues. The command keeps what only an old database knows: deleted topics, owners of topics,
and settings of brokers (rack, cordoned, wanted).
"""

import argparse
import asyncio
import os
import re
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from flotilla.net import Disconnected, Pool
from flotilla.net.urls import parse_url
from flotilla_manager.access import system_headers
from flotilla_manager.metadata import DatabaseNotEmpty, MetadataError, Store, open_store
from flotilla_manager.metadata.errors import SchemaMissing
from flotilla_manager.model import Broker, Replica, Snapshot, Topic, TopicState
from flotilla_manager.topology_rebuild import BrokerReport, RebuiltTopology, rebuild_topology
from flotilla_manager.writer.reports import Heartbeat, ReplicaReport, replicas_of
from flotilla_server.tls import make_client_context

EXIT_FAILED = 1
_REQUEST_S = 10.0
_UNAUTHORIZED = 401
_DESCRIPTION = (
    "Rebuild the metadata database from the brokers, after the database was lost or restored from an old backup. "
    "Stop the writer first, and try it with --dry-run. With an old backup, which needs --force, owners of topics, "
    "tokens, committed offsets and settings of brokers are kept as of the backup, and topics that were deleted before "
    "it stay deleted. With an empty database, all of these are lost."
)
_WATCH_S = 2.5  # a running writer sends a heartbeat every second


class CannotRebuild(Exception):
    """The rebuild failed; the message has the reason."""


def main(arguments: Sequence[str] | None = None, echo: Callable[[str], None] = print) -> int:
    """Collect reports of brokers, print the rebuilt topology, and write it; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        _run(options, echo)
    except (CannotRebuild, MetadataError, ValueError) as error:
        print(f"rebuild-metadata: {error}", file=sys.stderr)  # noqa: T201 - output of a command
        return EXIT_FAILED
    return 0


def _run(options: argparse.Namespace, echo: Callable[[str], None]) -> None:
    database = options.database or os.environ.get("FLOTILLA_DATABASE")
    if database is None:
        raise CannotRebuild("no database given: use --database or FLOTILLA_DATABASE")
    brokers = [parse_url(url) for url in options.broker]
    ca = options.ca or os.environ.get("FLOTILLA_TLS_CA")
    tls = None if ca is None else make_client_context(Path(ca))
    reports = asyncio.run(collect_reports(brokers, tls, system_headers(_secret(options))))
    store = open_store(database)
    try:
        old = _load_old(store, may_migrate=not options.dry_run)
        rebuilt = rebuild_topology(reports, _deleted_topics(old) | set(options.delete_topic))
        print_topology(rebuilt, echo)
        _check(rebuilt, accept_problems=options.accept_problems)
        if options.dry_run:
            echo("Dry run: nothing was written.")
            return
        write(store, merge_old(rebuilt, old, options.delete_topic), force=options.force)
    finally:
        store.close()
    echo("Metadata written. Start the writer now.")


def _secret(options: argparse.Namespace) -> bytes | None:
    """Read the secret that authenticates servers to brokers; None if none is given."""
    if options.secret_file is None:
        text = os.environ.get("FLOTILLA_SECRET")
        return None if text is None else text.encode()
    try:
        secret: bytes = options.secret_file.read_bytes().strip()
    except OSError as error:
        raise CannotRebuild(f"secret_file {options.secret_file} cannot be read: {error.strerror}") from error
    return secret


def _load_old(store: Store, *, may_migrate: bool) -> Snapshot | None:
    """Load the topology of the old database; None if it is empty. Raises MetadataError, CannotRebuild."""
    if not store.is_migrated():
        if not store.has_tables():
            return None
        if not may_migrate:
            raise CannotRebuild("the database has the schema of an older version, which a dry run does not migrate")
        store.migrate()
    try:
        return store.snapshot()
    except SchemaMissing:
        return None


def _deleted_topics(old: Snapshot | None) -> set[str]:
    topics = () if old is None else old.topics
    return {topic.id for topic in topics if topic.state in {TopicState.DELETING, TopicState.DELETED}}


def _check(rebuilt: RebuiltTopology, *, accept_problems: bool) -> None:
    """Reject an inconsistent topology, and problems that the user has not accepted. Raises CannotRebuild."""
    if rebuilt.problems and not accept_problems:
        raise CannotRebuild("problems found, see above; nothing was written. Use --accept-problems to continue")
    names = [topic.name for topic in rebuilt.topics]
    for topic in rebuilt.topics:
        delete = f"--delete-topic {topic.id}"
        if names.count(topic.name) > 1:
            raise CannotRebuild(f"several topics have the name '{topic.name}': delete all but one, e.g. {delete}")
        if [one.index for one in topic.partitions] != list(range(len(topic.partitions))):
            raise CannotRebuild(
                f"topic '{topic.name}' lacks partitions: name the brokers that hold them, or use {delete}"
            )


def merge_old(rebuilt: RebuiltTopology, old: Snapshot | None, deleted: Sequence[str]) -> RebuiltTopology:
    """Add data that brokers do not store: tombstones of deleted topics, owners of topics, and settings of brokers."""
    topics = {} if old is None else old.topics_by_id
    brokers = {} if old is None else old.brokers_by_id
    tombstones = [topics[id_] for id_ in sorted(_deleted_topics(old))]
    tombstones += [topics.get(id_) or _tombstone(id_) for id_ in sorted(set(deleted) - _deleted_topics(old))]
    owned = [replace(one, owner=topics[one.id].owner) if one.id in topics else one for one in rebuilt.topics]
    return replace(
        rebuilt,
        # Tombstones are written first, because names are unique among topics that are not deleted.
        topics=(*(replace(one, state=TopicState.DELETED, partitions=()) for one in tombstones), *owned),
        brokers=tuple(_merge_broker(one, brokers.get(one.id)) for one in rebuilt.brokers),
    )


def _tombstone(topic_id: str) -> Topic:
    """Create a tombstone of a topic that is unknown except for its id."""
    return Topic(
        id=topic_id,
        name=topic_id,
        state=TopicState.DELETED,
        partitions=(),
        retention_ms=None,
        retention_bytes=None,
    )


def _merge_broker(broker: Broker, old: Broker | None) -> Broker:
    if old is None:
        return broker
    return replace(
        broker,
        rack=broker.rack if broker.rack is not None else old.rack,
        cordoned=old.cordoned,
        wanted=old.wanted,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flotilla admin rebuild-metadata", description=_DESCRIPTION)
    parser.add_argument("--database", metavar="URL", help="URL of the database (or FLOTILLA_DATABASE)")
    parser.add_argument(
        "--broker", metavar="URL", action="append", required=True, help="URL of a broker; repeat it for every broker"
    )
    parser.add_argument(
        "--ca", metavar="FILE", help="CA bundle for brokers at https:// (or FLOTILLA_TLS_CA; default: system CAs)"
    )
    parser.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="file with the servers' secret, if brokers require authentication (or FLOTILLA_SECRET)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the topics in the database; an old backup needs this"
    )
    parser.add_argument(
        "--delete-topic",
        metavar="ID",
        action="append",
        default=[],
        type=_topic_id,
        help="delete the topic with this id; repeatable",
    )
    parser.add_argument(
        "--accept-problems",
        action="store_true",
        help="continue although replicas are missing or contradict each other; their records may be lost",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what was found, and write nothing")
    return parser


def _topic_id(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise argparse.ArgumentTypeError("a topic id has 32 hexadecimal digits")
    return text


async def collect_reports(
    urls: Sequence[str], tls: ssl.SSLContext | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> list[BrokerReport]:
    """Request the reports of all brokers, with `headers` as authentication. Raises CannotRebuild if a request fails."""
    pool = Pool(bytes_max=64 << 20, tls=tls)
    try:
        return list(await asyncio.gather(*(_request_report(pool, url, headers) for url in urls)))
    finally:
        pool.close()


async def _request_report(pool: Pool, url: str, headers: tuple[tuple[str, str], ...]) -> BrokerReport:
    try:
        broker = await pool.request(url, "GET", "/v1/broker", headers=headers, timeout_s=_REQUEST_S)
        if broker.status == _UNAUTHORIZED:
            text = "give the servers' secret with FLOTILLA_SECRET or --secret-file"
            raise CannotRebuild(f"the broker at {url} requires authentication: {text}")
        replicas = await pool.request(url, "GET", "/v1/replicas", headers=headers, timeout_s=_REQUEST_S)
        return parse_report(broker.json(), replicas.json())
    except (Disconnected, TimeoutError, OSError) as error:
        raise CannotRebuild(f"the broker at {url} is unreachable: {error}") from error
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
        raise CannotRebuild(f"the server at {url} is not a broker: {error}") from error


def parse_report(described: dict[str, Any], held: dict[str, Any]) -> BrokerReport:
    """Parse the responses of GET /v1/broker and GET /v1/replicas."""
    keys = ("id", "host", "port", "peer_host", "peer_port", "rack", "cluster_id", "writer_epoch", "tls", "name")
    heartbeat = msgspec.convert({key: described[key] for key in keys if key in described}, Heartbeat)
    replicas = tuple(_parse_replica(one, heartbeat.id) for one in held["replicas"])
    broken = tuple(msgspec.convert(one, ReplicaReport) for one in held["broken"])
    known: tuple[Replica, ...] = replicas_of(msgspec.structs.replace(heartbeat, replicas=replicas, broken=broken))
    broker: Broker = heartbeat.to_broker(None)
    return BrokerReport(
        broker=broker, cluster_id=heartbeat.cluster_id, writer_epoch=heartbeat.writer_epoch, replicas=known
    )


def _parse_replica(described: dict[str, Any], broker: str) -> ReplicaReport:
    return msgspec.convert({**described, "leads": described["leader"] == broker}, ReplicaReport)


def print_topology(rebuilt: RebuiltTopology, echo: Callable[[str], None]) -> None:
    """Print the rebuilt topology and its problems."""
    cluster, brokers, topics = rebuilt.cluster_id or "(unknown)", rebuilt.brokers, rebuilt.topics
    echo(f"{len(brokers)} brokers of cluster {cluster} report {len(topics)} topics:")
    for topic in topics:
        echo(f"  {topic.name} ({topic.id}): {len(topic.partitions)} partitions x {topic.replication} replicas")
    for problem in rebuilt.problems:
        echo(f"problem: {problem}")


def write(store: Store, rebuilt: RebuiltTopology, *, force: bool) -> None:
    """Write the topology, unless a writer is running. Raises CannotRebuild, MetadataError."""
    store.migrate()
    before = store.writer()
    time.sleep(_WATCH_S)  # time for a heartbeat of a running writer
    if store.writer() != before:
        raise CannotRebuild(f"the writer at {before.url} is running; stop it first")
    cluster_id = rebuilt.cluster_id or store.snapshot().cluster_id
    epoch = max(rebuilt.writer_epoch, before.epoch) + 1  # fences earlier writers
    try:
        store.replace_all(rebuilt.topics, rebuilt.brokers, epoch, cluster_id, force=force)
    except DatabaseNotEmpty as error:
        raise CannotRebuild(f"{error}. Use --force to replace them") from error


if __name__ == "__main__":
    sys.exit(main())
