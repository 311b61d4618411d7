"""Reconciles brokers: observe, plan, execute, repeat.

A pure function plans from the database and from heartbeats. Unfinished work is not stored: what was lost or interrupted
is planned again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec

from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import Fenced, MetadataError
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Broker, Snapshot, TopicState
from flotilla_manager.planning import Campaign, Command, Plan, PutReplica, TransferLeadership, UpdatePeers, plan
from flotilla_manager.writer.brokers import BrokerRegistry, registered
from flotilla_manager.writer.commands import CommandFailed, Commands, StaleWriterRejected
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.pauses import PAUSED_S
from flotilla_manager.writer.reports import INTERVAL_S, Interval, Reports, grace_s, limit_s
from flotilla_manager.writer.start_checks import StartChecks

logger = logging.getLogger(__name__)

_RECONCILE_INTERVAL_S = 0.5
_DESCRIBE_TIMEOUT_S = 1.0
_CREATE_S_MAX = 60.0
_REPEAT_S = 5.0  # delay before a leader command is repeated; doubles each time
_REPEAT_S_MAX = 60.0  # longest delay
_FORGET_S = 600.0
_STORE_STARTS_S = 1.0


@dataclass(frozen=True)
class SentCommand:
    """A command about a leader: when it was last sent, and how often."""

    at: float
    times: int = 1

    def again(self, now: float) -> "SentCommand":
        """Count another attempt."""
        return SentCommand(now, self.times + 1)

    def is_recent(self, now: float) -> bool:
        """Return whether it is too early to repeat the command."""
        return now - self.at < min(_REPEAT_S * (1 << min(self.times - 1, 10)), _REPEAT_S_MAX)


class _BrokerDescription(msgspec.Struct):
    """The interval of heartbeats in a broker's description."""

    id: str
    manager_heartbeat_s: Interval = INTERVAL_S


class BrokerReconciler:
    """Reconciliation loop of the writer."""

    def __init__(
        self,
        election: WriterElection,
        database: AsyncMetadata,
        metadata: MetadataCache,
        reports: Reports,
        starts: StartChecks,
        commands: Commands,
        brokers: BrokerRegistry,
        *,
        clock: Callable[[], float],
        on_outdated: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._election = election
        self._database = database
        self._metadata = metadata
        self._reports = reports
        self._starts = starts
        self._starts_stored_at = clock()
        self._commands = commands
        self._brokers = brokers
        self._clock = clock
        self._on_outdated = on_outdated
        self._creating_since: dict[str, float] = {}  # topics in the state creating, since they were first seen
        self._excluded: set[str] = set()  # topics that a request creates now: not reconciled
        self._sent: dict[Command, SentCommand] = {}
        self._failures: dict[Command, str] = {}
        self._last_error = ""
        self._running_since = clock()
        self._wake_event = asyncio.Event()

    def wake(self) -> None:
        """Reconcile soon."""
        self._wake_event.set()

    @contextmanager
    def creating(self, topic_id: str) -> Iterator[None]:
        """Exclude a topic from reconciliation while a request creates it.

        Only that request marks the topic ready, or deletes it: a topic that was ready may be in use.
        """
        self._excluded.add(topic_id)
        try:
            yield
        finally:
            self._excluded.discard(topic_id)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            await self._wait()
            if self._election.epoch is None:
                continue
            try:
                await self.reconcile(self._election.epoch)
                self._last_error = ""
            except Fenced as error:
                self._election.lose(error.epoch, str(error))
            except MetadataError as error:
                self._log_once(f"{error}")
            except Exception as error:
                if f"{error!r}" != self._last_error:
                    logger.exception("reconcile failed")
                self._last_error = f"{error!r}"

    async def _wait(self) -> None:
        """Wait for the interval or for `wake`."""
        began = self._clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECONCILE_INTERVAL_S):  # wait_for can lose a concurrent cancellation
                await self._wake_event.wait()
        self._wake_event.clear()
        if self._clock() - began > _RECONCILE_INTERVAL_S + PAUSED_S:
            self._running_since = self._clock()

    def _log_once(self, last_error: str) -> None:
        if last_error != self._last_error:
            logger.warning("reconcile failed error=%r", last_error)
        self._last_error = last_error

    async def reconcile(self, epoch: int) -> Plan:
        """Observe, plan and execute once. Raises MetadataError."""
        reports = self._reports.for_planning()  # before the snapshot, which must not be older
        await self._metadata.refresh()
        snapshot = self._metadata.snapshot
        if snapshot is None or snapshot.writer.epoch != epoch:
            return Plan()
        found = plan(snapshot, reports, self._recently_sent())
        if found.outdated:
            self._on_outdated(found.outdated)
            return found
        await self._store_starts(epoch)
        await self._mark_inactive(epoch, snapshot)
        commands = tuple(command for command in found.commands if not self._is_in_creation(command))
        await self.send(commands, epoch, snapshot)
        sent = set(commands)
        self._failures = {command: text for command, text in self._failures.items() if command in sent}
        await self._delete_incomplete(epoch, snapshot)
        for change in found.topic_changes:
            if change.topic_id in self._excluded:
                continue
            await self._database.call(self._database.store.set_topic_state, epoch, change.topic_id, change.state)
            topic = snapshot.topics_by_id[change.topic_id]
            logger.info("topic state changed topic=%s topic_id=%s state=%s", topic.name, topic.id, change.state)
        return found

    def _is_in_creation(self, command: Command) -> bool:
        """Return whether a command concerns a topic that a request creates now."""
        return isinstance(command, PutReplica | Campaign) and command.topic_id in self._excluded

    async def _delete_incomplete(self, epoch: int, snapshot: Snapshot) -> None:
        """Delete topics whose creation was interrupted and cannot be completed."""
        now = self._clock()
        incomplete = {topic.id: topic.name for topic in snapshot.topics if topic.state == TopicState.CREATING}
        self._creating_since = {id_: self._creating_since.get(id_, now) for id_ in incomplete}
        for id_, since in self._creating_since.items():
            if now - since > _CREATE_S_MAX and id_ not in self._excluded:
                line = "topic creation timed out, deleting topic=%s topic_id=%s timeout_s=%d"
                logger.warning(line, incomplete[id_], id_, _CREATE_S_MAX)
                await self._database.call(self._database.store.set_topic_state, epoch, id_, TopicState.DELETING)

    async def send(self, commands: tuple[Command, ...], epoch: int, snapshot: Snapshot) -> list[CommandFailed]:
        """Send commands to registered brokers; return the failures."""
        known = snapshot.brokers_by_id
        reachable = [(command, known[command.broker]) for command in commands if command.broker in known]
        failures = []
        for command, failure in await self._commands.send_all(reachable, epoch, snapshot.cluster_id):
            self._record_result(command, failure, epoch, snapshot)
            if failure is not None:
                failures.append(failure)
        return failures

    def _record_result(self, command: Command, failure: CommandFailed | None, epoch: int, snapshot: Snapshot) -> None:
        """Record the result of a command."""
        if isinstance(command, Campaign | TransferLeadership):
            now = self._clock()
            self._sent[command] = self._sent[command].again(now) if command in self._sent else SentCommand(now)
        if failure is not None:
            if self._failures.get(command) != str(failure):
                logger.info("command failed %s error=%r", _describe(command, snapshot), str(failure))
            self._failures[command] = str(failure)
            if isinstance(failure, StaleWriterRejected):
                self._election.lose(epoch, str(failure))
        elif isinstance(command, UpdatePeers):
            self._reports.set_peers(command.broker, command.peers)
        elif not isinstance(command, Campaign | TransferLeadership):
            self._reports.mark_stale(command.broker)

    def _recently_sent(self) -> set[Command]:
        now = self._clock()
        self._sent = {command: sent for command, sent in self._sent.items() if now - sent.at < _FORGET_S}
        return {command for command, sent in self._sent.items() if sent.is_recent(now)}

    async def _store_starts(self, epoch: int) -> None:
        """Store the starts of brokers, with their LSNs, at most once per second."""
        now = self._clock()
        if self._starts.epoch == epoch and now - self._starts_stored_at >= _STORE_STARTS_S:
            self._starts_stored_at = now
            starts = self._starts.changed()
            if starts:
                await self._database.call(self._database.store.put_broker_starts, epoch, starts)
                self._starts.stored(starts)

    async def _mark_inactive(self, epoch: int, snapshot: Snapshot) -> None:
        """Mark brokers inactive that missed three heartbeats. The next heartbeat marks a broker active again.

        A manager that has just become the writer, or whose process was paused, first listens for four intervals. If
        it has no heartbeat of a broker after four default intervals, it requests the interval from that broker.
        """
        listened_s = self._clock() - max(self._election.since, self._running_since)
        if listened_s < grace_s(INTERVAL_S):
            return
        silent = [one for one in snapshot.brokers if one.active and not self._reports.is_alive(one.id)]
        await asyncio.gather(*(self._ask_interval(one) for one in silent if self._reports.interval_s(one.id) is None))
        for broker in silent:
            interval_s = self._reports.interval_s(broker.id) or INTERVAL_S
            if listened_s >= grace_s(interval_s) and not self._reports.is_alive(broker.id):
                logger.warning(
                    "broker marked inactive broker=%s url=%s no_heartbeat_s=%g heartbeat_interval_s=%g",
                    broker.label,
                    broker.url,
                    limit_s(interval_s),
                    interval_s,
                )
                await self._brokers.change(epoch, broker.id, self._mark_if_silent)

    async def _ask_interval(self, broker: Broker) -> None:
        """Request the interval of a broker; without a response, use the default."""
        interval_s = INTERVAL_S
        with contextlib.suppress(CommandFailed, msgspec.ValidationError, TimeoutError):
            async with asyncio.timeout(_DESCRIBE_TIMEOUT_S):  # commands to other brokers wait for it
                response = await self._commands.describe(broker.url, is_ours=True)
            description = msgspec.convert(response, _BrokerDescription)
            if description.id == broker.id:  # the address may belong to another broker now
                interval_s = description.manager_heartbeat_s
        self._reports.expect(broker.id, interval_s)

    def _mark_if_silent(self, known: Broker | None, _: Snapshot) -> Broker:
        broker = registered(known)
        return replace(broker, active=broker.active and self._reports.is_alive(broker.id))


def _describe(command: Command, snapshot: Snapshot) -> str:
    """Return the kind of a command, its broker and its replica, for logs."""
    found = f"command={type(command).__name__} broker={snapshot.brokers_by_id[command.broker].label}"
    if isinstance(command, UpdatePeers):
        return found
    topic = snapshot.topics_by_id.get(command.topic_id)
    name = command.topic if isinstance(command, PutReplica) else topic.name if topic else ""
    return f"{found} topic={name} topic_id={command.topic_id} partition={command.partition} epoch={command.epoch}"
