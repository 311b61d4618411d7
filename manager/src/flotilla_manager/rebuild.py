"""`flotilla admin rebuild-metadata`: write the metadata anew, from what brokers hold.

For a database that was lost, or restored from a backup that is too old. The writer has to be stopped meanwhile; one
that only sleeps is fenced when it wakes up. What an old database knows and brokers do not is kept: which topics were
deleted, who owns the others, and what was decided about brokers.
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
from flotilla.serving.tls import make_client_context
from flotilla_manager.access import system_headers
from flotilla_manager.metadata import MetadataError, MetadataPresent, Store, open_store
from flotilla_manager.metadata.errors import SchemaMissing
from flotilla_manager.model import Broker, Replica, Snapshot, Topic, TopicState
from flotilla_manager.rebuilding import BrokerReport, Rebuilt, rebuild
from flotilla_manager.writer.reports import Beat, BeatReplica, replicas_of

EXIT_FAILED = 1
_ANSWER_S = 10.0
_UNAUTHORIZED = 401
_WATCH_S = 2.5  # a living writer beats every second


class CannotRebuild(Exception):
    """It cannot go on; the text says why."""


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Ask the brokers, show what was found, and write it down."""
    options = _parser().parse_args(arguments)
    try:
        _run(options, say)
    except (CannotRebuild, MetadataError, ValueError) as error:
        print(f"rebuild-metadata: {error}", file=sys.stderr)  # noqa: T201 - a command talks to people
        return EXIT_FAILED
    return 0


def _run(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    database = options.database or os.environ.get("FLOTILLA_DATABASE")
    if database is None:
        raise CannotRebuild("name the database: --database, or FLOTILLA_DATABASE")
    brokers = [parse_url(url) for url in options.broker]
    ca = options.ca or os.environ.get("FLOTILLA_TLS_CA")
    tls = None if ca is None else make_client_context(Path(ca))
    reports = asyncio.run(ask_all(brokers, tls, system_headers(_secret(options))))
    store = open_store(database)
    try:
        known = _known(store)
        found = rebuild(reports, _deleted(known) | set(options.delete_topic))
        show(found, say)
        _check(found, accept_problems=options.accept_problems)
        if options.dry_run:
            say("Nothing was written (--dry-run).")
            return
        write(store, with_known(found, known, options.delete_topic), force=options.force)
    finally:
        store.close()
    say("The metadata was written. Start the writer now.")


def _secret(options: argparse.Namespace) -> bytes | None:
    """Read the secret that brokers know servers by, if there is one."""
    if options.secret_file is None:
        text = os.environ.get("FLOTILLA_SECRET")
        return None if text is None else text.encode()
    try:
        found: bytes = options.secret_file.read_bytes().strip()
    except OSError as error:
        raise CannotRebuild(f"secret_file {options.secret_file} cannot be read: {error.strerror}") from error
    return found


def _known(store: Store) -> Snapshot | None:
    """What the database knows; None if it is empty. Raises MetadataError."""
    try:
        return store.snapshot()
    except SchemaMissing:
        return None


def _deleted(known: Snapshot | None) -> set[str]:
    topics = () if known is None else known.topics
    return {topic.id for topic in topics if topic.state in {TopicState.DELETING, TopicState.DELETED}}


def _check(found: Rebuilt, *, accept_problems: bool) -> None:
    """Refuse what cannot be written, and what somebody has to decide about first."""
    if found.problems and not accept_problems:
        raise CannotRebuild("there are problems, see above; nothing was written. To go on: --accept-problems")
    names = [topic.name for topic in found.topics]
    for topic in found.topics:
        way = f"or do without all of this topic: --delete-topic {topic.id}"
        if names.count(topic.name) > 1:
            raise CannotRebuild(f"there are several topics '{topic.name}': choose which one to delete, {way}")
        if [one.index for one in topic.partitions] != list(range(len(topic.partitions))):
            raise CannotRebuild(f"topic '{topic.name}' lacks partitions: give the brokers that hold them, {way}")


def with_known(found: Rebuilt, known: Snapshot | None, deleted: Sequence[str]) -> Rebuilt:
    """Add what brokers cannot tell, from an old database and from whoever asks: a deleted topic stays deleted."""
    topics = {} if known is None else known.topics_by_id
    brokers = {} if known is None else known.brokers_by_id
    gone = [topics[id_] for id_ in sorted(_deleted(known))]
    gone += [topics.get(id_) or _nameless(id_) for id_ in sorted(set(deleted) - _deleted(known))]
    owned = [replace(one, owner=topics[one.id].owner) if one.id in topics else one for one in found.topics]
    return replace(
        found,
        # Those that are gone come first: they make room for names.
        topics=(*(replace(one, state=TopicState.DELETED, partitions=()) for one in gone), *owned),
        brokers=tuple(_as_decided(one, brokers.get(one.id)) for one in found.brokers),
    )


def _nameless(topic_id: str) -> Topic:
    """A topic of which nothing but the id has to be remembered."""
    return Topic(
        id=topic_id,
        name=topic_id,
        state=TopicState.DELETED,
        partitions=(),
        retention_ms=None,
        retention_bytes=None,
    )


def _as_decided(broker: Broker, known: Broker | None) -> Broker:
    if known is None:
        return broker
    return replace(
        broker,
        rack=broker.rack if broker.rack is not None else known.rack,
        cordoned=known.cordoned,
        wanted=known.wanted,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flotilla admin rebuild-metadata", description=__doc__)
    parser.add_argument("--database", metavar="URL", help="the database to write (or FLOTILLA_DATABASE)")
    parser.add_argument(
        "--broker", metavar="URL", action="append", required=True, help="a broker's base URL; give all of them"
    )
    parser.add_argument(
        "--ca", metavar="FILE", help="who signs certificates of brokers at https:// (or FLOTILLA_TLS_CA)"
    )
    parser.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="a file with the secret that all servers share, if brokers check callers (or FLOTILLA_SECRET)",
    )
    parser.add_argument("--force", action="store_true", help="replace topics that the database holds")
    parser.add_argument(
        "--delete-topic", metavar="ID", action="append", default=[], type=_topic_id, help="a topic to do without"
    )
    parser.add_argument("--accept-problems", action="store_true", help="go on although something is missing or unclear")
    parser.add_argument("--dry-run", action="store_true", help="only show what was found")
    return parser


def _topic_id(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{32}", text):
        raise argparse.ArgumentTypeError("a topic's id has 32 hexadecimal digits")
    return text


async def ask_all(
    urls: Sequence[str], tls: ssl.SSLContext | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> list[BrokerReport]:
    """Ask all brokers what they hold, and show them `headers`. Raises CannotRebuild if one does not answer."""
    pool = Pool(bytes_max=64 << 20, tls=tls)
    try:
        return list(await asyncio.gather(*(_ask(pool, url, headers) for url in urls)))
    finally:
        pool.close()


async def _ask(pool: Pool, url: str, headers: tuple[tuple[str, str], ...]) -> BrokerReport:
    try:
        told = await pool.request(url, "GET", "/v1/broker", headers=headers, timeout_s=_ANSWER_S)
        if told.status == _UNAUTHORIZED:
            text = "give it the secret that all servers share: FLOTILLA_SECRET, or --secret-file"
            raise CannotRebuild(f"the broker at {url} does not know who asks; {text}")
        held = await pool.request(url, "GET", "/v1/replicas", headers=headers, timeout_s=_ANSWER_S)
        return read_report(told.json(), held.json())
    except (Disconnected, TimeoutError, OSError) as error:
        raise CannotRebuild(f"the broker at {url} does not answer: {error}") from error
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
        raise CannotRebuild(f"what answers at {url} is not a broker: {error}") from error


def read_report(told: dict[str, Any], held: dict[str, Any]) -> BrokerReport:
    """Read what a broker says of itself and of its replicas."""
    keys = ("id", "host", "port", "peer_host", "peer_port", "rack", "cluster_id", "writer_epoch", "tls")
    beat = msgspec.convert({key: told[key] for key in keys if key in told}, Beat)
    replicas = tuple(_read_replica(one, beat.id) for one in held["replicas"])
    broken = tuple(msgspec.convert(one, BeatReplica) for one in held["broken"])
    known: tuple[Replica, ...] = replicas_of(msgspec.structs.replace(beat, replicas=replicas, broken=broken))
    broker: Broker = beat.to_broker(None)
    return BrokerReport(broker=broker, cluster_id=beat.cluster_id, writer_epoch=beat.writer_epoch, replicas=known)


def _read_replica(told: dict[str, Any], broker: str) -> BeatReplica:
    return msgspec.convert({**told, "leads": told["leader"] == broker}, BeatReplica)


def show(found: Rebuilt, say: Callable[[str], None]) -> None:
    """Tell what was found."""
    say(f"{len(found.brokers)} brokers of cluster {found.cluster_id or '(unknown)'} report {len(found.topics)} topics:")
    for topic in found.topics:
        say(f"  {topic.name} ({topic.id}): {len(topic.partitions)} partitions x {topic.replication} replicas")
    for problem in found.problems:
        say(f"problem: {problem}")


def write(store: Store, found: Rebuilt, *, force: bool) -> None:
    """Write the metadata, unless a writer lives. Raises CannotRebuild, MetadataError."""
    store.migrate()
    before = store.writer()
    time.sleep(_WATCH_S)  # that nothing happens can only be waited for
    if store.writer() != before:
        raise CannotRebuild(f"the writer at {before.url} is running; stop it first")
    cluster_id = found.cluster_id or store.snapshot().cluster_id
    epoch = max(found.writer_epoch, before.epoch) + 1  # whoever was the writer is not any more
    try:
        store.replace_all(found.topics, found.brokers, epoch, cluster_id, force=force)
    except MetadataPresent as error:
        raise CannotRebuild(f"{error}. To replace them by what brokers report: --force") from error


if __name__ == "__main__":
    sys.exit(main())
