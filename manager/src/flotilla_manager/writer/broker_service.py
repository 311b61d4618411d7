"""Heartbeats of brokers, and requests to add, remove, cordon and configure brokers."""

import logging
from typing import Any
from urllib.parse import urlsplit

import msgspec

from flotilla.protocol.errors import Refusal
from flotilla_manager.access import TokenCache
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Broker, Snapshot, TopicState
from flotilla_manager.writer import brokers
from flotilla_manager.writer.commands import CommandFailed, Commands
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.reconciler import BrokerReconciler
from flotilla_manager.writer.reports import Heartbeat, Reports, limit_s
from flotilla_manager.writer.start_checks import StartChecks
from flotilla_server.broker_starts import StartVerdict

logger = logging.getLogger(__name__)


class BrokerService:
    """Changes brokers. Raises Refusal if this manager is not the writer."""

    def __init__(
        self,
        election: WriterElection,
        database: AsyncMetadata,
        metadata: MetadataCache,
        registry: brokers.BrokerRegistry,
        reports: Reports,
        starts: StartChecks,
        reconciler: BrokerReconciler,
        commands: Commands,
        *,
        tokens: TokenCache,
        scheme: str = "http",
    ) -> None:
        """`scheme` is that of broker addresses without one."""
        self._election = election
        self._database = database
        self._metadata = metadata
        self._registry = registry
        self._reports = reports
        self._starts = starts
        self._reconciler = reconciler
        self._commands = commands
        self._tokens = tokens
        self._scheme = scheme
        self._foreign: set[str] = set()  # brokers of another cluster whose heartbeats were logged

    async def heartbeat(self, heartbeat: Heartbeat) -> dict[str, Any]:
        """Accept a heartbeat; register the broker if it is new."""
        epoch = self._election.require_epoch()
        if self._metadata.snapshot is None:
            await self._metadata.refresh()
        snapshot = self._metadata.require_snapshot()
        self._check_cluster(heartbeat, snapshot)
        known = snapshot.brokers_by_id.get(heartbeat.id)
        verdict = await self._evaluate_start(heartbeat, known, epoch)
        if verdict is not StartVerdict.CONFIRMED:
            return {**self._answer(heartbeat, epoch, known=known is not None), "start": verdict}
        is_removed = known is not None and known.removed
        is_changed = not is_removed and heartbeat.to_broker(known) != known
        if is_changed:
            broker = await self._registry.change(epoch, heartbeat.id, brokers.from_heartbeat(heartbeat))
            is_removed = broker.removed
        if is_removed:
            return self._answer(heartbeat, epoch, known=False)
        is_first = not self._reports.is_alive(heartbeat.id)
        self._reports.record(heartbeat)
        if is_first or is_changed:
            self._reconciler.wake()
        return self._answer(heartbeat, epoch, known=True)

    async def _evaluate_start(self, heartbeat: Heartbeat, known: Broker | None, epoch: int) -> StartVerdict:
        """Return the verdict on the start of a broker."""
        if heartbeat.start is None:
            return StartVerdict.CONFIRMED
        if self._starts.epoch != epoch:
            stored = await self._database.call(self._database.store.broker_starts)
            if self._starts.epoch != epoch:  # not loaded by a heartbeat of another broker meanwhile
                self._starts.load(epoch, stored)
        address = heartbeat.to_broker(None)
        verdict = self._starts.evaluate(
            heartbeat.id,
            heartbeat.start,
            limit_s=limit_s(heartbeat.manager_heartbeat_s),
            same_address=known is not None and known.url == address.url,
        )
        if verdict in {StartVerdict.OLDER_COPY, StartVerdict.DUPLICATE}:
            line = "broker start rejected broker=%s id=%s url=%s start=%d recovered_lsn=%d verdict=%s"
            start = heartbeat.start
            logger.error(line, address.label, heartbeat.id, address.url, start.number, start.recovered_lsn, verdict)
        return verdict

    def _answer(self, heartbeat: Heartbeat, epoch: int, *, known: bool) -> dict[str, Any]:
        """Return the response to a heartbeat, with the tokens if the broker's table is outdated."""
        answer: dict[str, Any] = {"status": "ok", "known": known, "writer_epoch": epoch}
        if heartbeat.access not in {None, self._tokens.table.version}:
            answer["access"] = msgspec.Raw(self._tokens.written)
        return answer

    def _check_cluster(self, heartbeat: Heartbeat, snapshot: Snapshot) -> None:
        """Reject a broker of another cluster. A new database after a loss has another cluster id, too."""
        if heartbeat.cluster_id in {None, snapshot.cluster_id}:
            return
        label = heartbeat.to_broker(None).label
        text = (
            f"Broker {label} belongs to cluster {heartbeat.cluster_id}; the database belongs to cluster "
            f"{snapshot.cluster_id}. If the database replaced a lost one, stop the writer and run "
            "flotilla admin rebuild-metadata."
        )
        if heartbeat.id not in self._foreign and len(self._foreign) < brokers.BROKERS_MAX:
            self._foreign.add(heartbeat.id)
            line = "heartbeat rejected broker=%s id=%s cluster_id=%s database_cluster_id=%s error=%r"
            logger.error(line, label, heartbeat.id, heartbeat.cluster_id, snapshot.cluster_id, text)
        raise Refusal("conflict", text)

    async def add(self, host: str) -> str:
        """Register a broker at an address, also if it was removed."""
        epoch = self._election.require_epoch()
        url = _url(host, self._scheme)
        await self._metadata.refresh()
        is_ours = any(broker.url == url for broker in self._metadata.require_snapshot().brokers)
        try:
            description = await self._commands.describe(url, is_ours=is_ours)
        except CommandFailed as error:
            raise Refusal("bad_request", f"{error}.") from error
        keys = ("id", "host", "port", "peer_host", "peer_port", "rack", "cluster_id", "tls", "name")
        try:
            heartbeat = msgspec.convert({key: description[key] for key in keys if key in description}, Heartbeat)
        except msgspec.ValidationError as error:
            raise Refusal("bad_request", f"The description of the broker at {host} is invalid: {error}.") from error
        await self._metadata.refresh()
        if heartbeat.cluster_id not in {None, self._metadata.require_snapshot().cluster_id}:
            raise Refusal("conflict", f"The broker at {host} belongs to another cluster.")
        return await self._change(epoch, heartbeat.id, brokers.add(heartbeat))

    async def remove(self, reference: str) -> str:
        """Remove a broker that holds no replicas. `reference` is a name, an address or an id."""
        return await self._change(self._election.require_epoch(), await self._find(reference), brokers.remove)

    async def delete(self, id_: str) -> None:
        """Remove a broker by id. Idempotent."""
        await self._change(self._election.require_epoch(), id_, brokers.remove)

    async def cordon(self, reference: str, *, cordoned: bool) -> str:
        """Cordon or uncordon a broker. `reference` is a name, an address or an id."""
        id_ = await self._find(reference)
        return await self._change(self._election.require_epoch(), id_, brokers.cordon(cordoned=cordoned))

    async def configure(self, id_: str, *, rack: str | None, wanted: bool, cordoned: bool) -> Broker:
        """Set rack, `wanted` and `cordoned` of a registered broker."""
        await self._change(
            self._election.require_epoch(), id_, brokers.configure(rack=rack, wanted=wanted, cordoned=cordoned)
        )
        return self._metadata.require_snapshot().brokers_by_id[id_]

    async def _change(self, epoch: int, id_: str, decide: brokers.Decision) -> str:
        broker = await self._registry.change(epoch, id_, decide)
        self._reconciler.wake()
        return broker.id

    async def _find(self, reference: str) -> str:
        await self._metadata.refresh()
        return brokers.find(self._metadata.require_snapshot(), reference).id

    def describe(self) -> dict[str, Any]:
        """Describe the topology at one version, and the last heartbeats."""
        snapshot = self._metadata.require_snapshot()
        return {
            "version": snapshot.version,
            "cluster_id": snapshot.cluster_id,
            "writer_epoch": snapshot.writer.epoch,
            "topics": [msgspec.to_builtins(one) for one in snapshot.topics if one.state != TopicState.DELETED],
            "brokers": [msgspec.to_builtins(one) for one in snapshot.brokers],
            "reports": self._reports.describe(),
        }


def _url(host: str, scheme: str) -> str:
    """Parse the address of a broker: HOST:PORT or a URL. Raises Refusal."""
    text = host if "//" in host else f"{scheme}://{host}"
    try:
        parts = urlsplit(text)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port is not None
    except ValueError:
        right = False
    if not right or parts.path not in {"", "/"} or parts.query or parts.username is not None:
        raise Refusal(
            "bad_request", f"'broker_host' is {host!r}; it must be HOST:PORT or a URL, for example 127.0.0.1:8090."
        )
    return text.rstrip("/")
