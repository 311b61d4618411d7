"""Coordinator of consumer groups: membership, assignment and session timeouts.

Pure functions decide (`flotilla.groups.membership`). Every change is written to the database first, fenced by the
writer's epoch, and then applied in memory. Changes of one group run one after another. Groups with members are cached.
A group is loaded again after a failed write, whose outcome is unknown. Heartbeats change memory only.

Deadlines use the clock of this process. After a change of the writer, and after a pause of the process, all members get
a full session timeout. Without a writer, members keep their partitions and commit.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

from flotilla.groups import membership
from flotilla.groups.offsets import Commit
from flotilla.groups.responses import AssignmentResponse, HeartbeatResponse, assignment_response, heartbeat_response
from flotilla.groups.sessions import GroupSessions
from flotilla.groups.state import Group, GroupTopic, Member, PartitionId, Strategy, Topology
from flotilla.limits import GROUP_MEMBERS_MAX, GROUP_PARTITIONS_MAX, GROUPS_MAX
from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata import AsyncMetadata
from flotilla_manager.metadata.errors import (
    Fenced,
    GroupChanged,
    GroupHasMembers,
    GroupMissing,
    MetadataError,
    TooManyGroups,
    TopicMissing,
)
from flotilla_manager.metadata_cache import MetadataCache
from flotilla_manager.model import Snapshot
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.pauses import PAUSED_S

logger = logging.getLogger(__name__)

SWEEP_S = 0.5
_LATE_S = 0.1  # a wait longer than planned by this much means that the event loop was busy
_LOCK_S = 10.0  # longest wait for the lock of a group
_PAGE = 200  # groups per query
_ID_BYTES = 16
_CHANGED = "The group was changed by another request; try again."
_REMOVED = "A topic of the group was deleted during the request; try again."
_BUSY = "Timed out waiting for other changes of this group; try again."
_NOTHING_WRITTEN = (GroupHasMembers, GroupMissing, TooManyGroups)  # errors after which no reload is needed


class _GroupsRefused(Refusal):
    """Some groups could not be swept. The errors were logged."""


class GroupCoordinator:
    """Coordinates groups. Raises Refusal if this manager is not the writer, GroupError, MetadataError."""

    def __init__(
        self,
        election: WriterElection,
        database: AsyncMetadata,
        metadata: MetadataCache,
        *,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._election = election
        self._database = database
        self._metadata = metadata
        self._clock = clock
        self._random_bytes = random_bytes
        self._sessions: dict[str, GroupSessions] = {}
        self._reload_needed: set[str] = set()  # groups to load again before use
        self._loaded_epoch: int | None = None  # epoch in which all groups with members were loaded
        self._loading = asyncio.Lock()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._topology: tuple[Snapshot, Topology] | None = None
        self._last_error = ""
        self._refusals: dict[str, str] = {}  # errors of the last sweep, by group

    def known(self, name: str) -> Group | None:
        """Return a cached group that has members."""
        cached = self._sessions.get(name) if self._loaded_epoch == self._election.epoch else None
        return None if cached is None else cached.group

    # -- members ------------------------------------------------------------------------------------------

    async def join(
        self, name: str, member_id: str | None, topics: Collection[str], timeout_ms: int, strategy: Strategy
    ) -> AssignmentResponse:
        """Add a member, or replace the member with this id. The topics must exist."""
        id_ = member_id or self._random_bytes(_ID_BYTES).hex()

        def decide(group: Group) -> Group:
            topology = self._topics()
            check_group_limits(group, id_, topics, topology)
            return membership.join(group, id_, topics, timeout_ms, strategy, topology)

        group = await self._change(name, decide, renewed_id=id_)
        logger.info("member joined group=%s member=%s generation=%d", name, id_, group.generation)
        return assignment_response(group, id_)

    async def sync(
        self, name: str, member_id: str, generation: int, owned: Collection[PartitionId]
    ) -> AssignmentResponse:
        """Record the partitions that a member owns; return its assignment."""
        group = await self._change(
            name, lambda group: membership.sync(group, member_id, generation, owned), renewed_id=member_id
        )
        return assignment_response(group, member_id)

    async def heartbeat(self, name: str, member_id: str, generation: int, held: int | None = None) -> HeartbeatResponse:
        """Extend a member's session. `held` is its number of partitions. Does not use the database."""
        group = await self._find(name)
        member = membership.check(group, member_id, generation)
        self._renew_session(name, member)
        return heartbeat_response(group, member, generation, held)

    async def leave(self, name: str, member_id: str, generation: int) -> None:
        """Remove a member that leaves."""
        await self._change(name, lambda group: membership.leave(group, member_id, generation, self._topics()))
        logger.info("member left group=%s member=%s", name, member_id)

    # -- administration -----------------------------------------------------------------------

    async def reset(self, name: str, commits: Sequence[Commit], *, force: bool) -> None:
        """Reset committed offsets. `force` removes members, whose next commits would undo the reset."""

        def decide(group: Group) -> Group:
            if group.members and not force:
                raise GroupHasMembers(name, len(group.members))
            return membership.remove(group, list(group.members), self._topics()) if group.members else group

        await self._change(name, decide, commits=commits)
        logger.info("group offsets reset group=%s partitions=%d", name, len(commits))

    async def delete(self, name: str, *, force: bool) -> None:
        """Delete a group and its commits."""
        async with self._locked(name) as epoch:
            cached = self._sessions.get(name)
            if cached is not None and not force:
                raise GroupHasMembers(name, len(cached.group.members))
            with self._reload_if_unknown(name):
                await self._database.call(self._database.store.delete_group, epoch, name, force=force)
            self._sessions.pop(name, None)
        logger.info("group deleted group=%s", name)

    async def run(self) -> None:
        """Sweep groups periodically, until cancelled."""
        sweeping: asyncio.Task[None] | None = None
        try:
            while True:
                began = self._clock()
                await asyncio.sleep(SWEEP_S)
                late_s = self._clock() - began - SWEEP_S
                if late_s > PAUSED_S:
                    self.extend_deadlines()
                elif late_s > _LATE_S:
                    for cached in self._sessions.values():
                        cached.extend(late_s)
                if self._election.epoch is not None and (sweeping is None or sweeping.done()):
                    # In a task of its own: a slow database must not look like a pause of the process.
                    sweeping = asyncio.get_running_loop().create_task(self._sweep_and_log(self._clock()))
        finally:
            if sweeping is not None:
                sweeping.cancel()

    def extend_deadlines(self) -> None:
        """Give all members a full session timeout: their heartbeats may have been missed."""
        for cached in self._sessions.values():
            cached.restart(self._clock())

    async def sweep(self, now: float) -> None:
        """Remove expired members, and reassign after changes of topics. Raises MetadataError."""
        await self._load_all(self._election.require_epoch())
        for name in list(self._reload_needed):
            async with self._locked(name) as epoch:
                await self._load(epoch, name)
        topology = self._topics()
        refusals: dict[str, Refusal] = {}
        for name, cached in list(self._sessions.items()):
            if cached.topology is topology and not cached.expired(now):
                continue
            try:
                async with self._locked(name) as epoch:
                    await self._sweep_group(epoch, name, now)
            except Refusal as error:
                if self._election.epoch is None:
                    raise
                refusals[name] = error  # only this group fails; continue with the others
        self._log_refusals(refusals)
        if refusals:
            last = list(refusals.values())[-1]
            raise _GroupsRefused(last.code, str(last)) from last

    def _log_refusals(self, refusals: Mapping[str, Refusal]) -> None:
        """Log the error of each group, unless the last sweep had the same one."""
        before, self._refusals = self._refusals, {name: str(error) for name, error in refusals.items()}
        for name, text in self._refusals.items():
            if before.get(name) != text:
                logger.warning("group sweep failed group=%s error=%r", name, text)

    async def _sweep_and_log(self, now: float) -> None:
        try:
            await self.sweep(now)
            self._last_error = ""
        except _GroupsRefused:  # logged for each group
            self._last_error = ""
        except Fenced as error:
            self._election.lose(error.epoch, str(error))
        except (MetadataError, Refusal) as error:
            if str(error) != self._last_error:
                logger.warning("group sweep failed error=%r", str(error))
            self._last_error = str(error)
        except Exception as error:
            if repr(error) != self._last_error:
                logger.exception("group sweep failed")
            self._last_error = repr(error)

    async def _sweep_group(self, epoch: int, name: str, now: float) -> None:
        cached = self._sessions.get(name)
        if cached is None:
            return
        topology = self._topics()  # read again: topics may have changed during the sweep
        expired = cached.expired(now)
        after = membership.remove(cached.group, expired, topology) if expired else cached.group
        after = membership.apply_topology(after, topology)
        await self._save(epoch, cached.group, after)
        if expired:
            logger.info("members expired group=%s members=%s", name, ",".join(expired))
        if name in self._sessions:
            self._sessions[name].topology = topology

    # -- serialized changes -----------------------------------------------------------------------

    async def _change(
        self,
        name: str,
        decide: Callable[[Group], Group],
        *,
        renewed_id: str | None = None,
        commits: Sequence[Commit] = (),
    ) -> Group:
        async with self._locked(name) as epoch:
            before = await self._load(epoch, name)
            after = decide(before)
            await self._save(epoch, before, after, commits)
            if renewed_id is not None:
                self._renew_session(name, after.members[renewed_id])
            return after

    def _renew_session(self, name: str, member: Member) -> None:
        cached = self._sessions.get(name)
        if cached is not None:
            cached.renew(member, self._clock())

    async def _find(self, name: str) -> Group:
        """Return a group from the cache, or load it."""
        await self._load_all(self._election.require_epoch())
        cached = self._sessions.get(name)
        if cached is None and name in self._reload_needed:
            async with self._locked(name) as epoch:
                return await self._load(epoch, name)
        return Group(name=name) if cached is None else cached.group

    async def _load(self, epoch: int, name: str) -> Group:
        """Return a group from the cache, or load it under the epoch."""
        cached = self._sessions.get(name)
        if cached is not None:
            return cached.group
        group = await self._database.call(self._database.store.load_group_as_writer, epoch, name)
        self._require_loaded(epoch)
        self._reload_needed.discard(name)
        self._cache(group)
        return group

    async def _save(self, epoch: int, before: Group, after: Group, commits: Sequence[Commit] = ()) -> None:
        if after is not before or commits:
            with self._reload_if_unknown(after.name):
                await self._database.call(self._database.store.save_group, epoch, before, after, commits)
            self._require_loaded(epoch)
        self._reload_needed.discard(after.name)
        self._cache(after)

    def _cache(self, group: Group) -> None:
        """Cache a group that has members."""
        if not group.members:
            self._sessions.pop(group.name, None)
        elif group.name in self._sessions:
            self._sessions[group.name].update(group, self._clock())
        else:
            self._sessions[group.name] = GroupSessions(group, self._clock())

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[int]:
        """Lock a group; yield the writer's epoch. Raises Refusal after a timeout."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(_LOCK_S):
                await lock.acquire()
        except TimeoutError:
            raise Refusal("unavailable", _BUSY) from None
        try:
            epoch = self._election.require_epoch()
            await self._load_all(epoch)
            yield epoch
        finally:
            lock.release()

    @contextmanager
    def _reload_if_unknown(self, name: str) -> Iterator[None]:
        """Drop a group from the cache, and load it again before use, if the outcome of a write is unknown."""
        try:
            yield
        except _NOTHING_WRITTEN:
            raise
        except BaseException as error:
            self._sessions.pop(name, None)
            self._reload_needed.add(name)
            if len(self._reload_needed) > GROUPS_MAX:  # too many: load all groups again instead
                self._loaded_epoch = None
            if isinstance(error, GroupChanged):
                logger.warning("group state conflict group=%s error=%r", name, str(error))
                raise Refusal("unavailable", _CHANGED) from error
            if isinstance(error, TopicMissing):
                self._metadata.refresh_soon()
                raise Refusal("unavailable", _REMOVED) from error
            raise

    async def _load_all(self, epoch: int) -> None:
        """Load all groups that have members, once per epoch and before any change."""
        if self._loaded_epoch == epoch:
            return
        async with self._loading:
            if self._loaded_epoch == epoch:
                return
            await self._metadata.refresh()  # existing topics must not look deleted
            found: list[Group] = []
            while True:
                after = found[-1].name if found else ""
                store = self._database.store
                page = await self._database.call(store.load_groups_with_members, epoch, after, _PAGE)
                found += page
                if len(page) < _PAGE:
                    break
            self._sessions.clear()
            self._reload_needed.clear()
            for group in found:
                self._cache(group)
            self._loaded_epoch = epoch

    def _require_loaded(self, epoch: int) -> None:
        """Raise Refusal if the groups were loaded in another epoch."""
        if self._loaded_epoch != epoch:
            raise Refusal("unavailable", "Another manager became the writer during the request; try again.")

    def _topics(self) -> Topology:
        """Return the ready topics; the same object as long as nothing has changed."""
        snapshot = self._metadata.require_snapshot()
        if self._topology is None or self._topology[0] is not snapshot:
            found = {name: GroupTopic(topic.id, len(topic.partitions)) for name, topic in snapshot.ready.items()}
            is_same = self._topology is not None and self._topology[1] == found
            self._topology = (snapshot, self._topology[1] if self._topology and is_same else found)
        return self._topology[1]


def check_group_limits(group: Group, member_id: str, topics: Collection[str], topology: Topology) -> None:
    """Check that a member with these topics can join. Raises Refusal."""
    if member_id not in group.members and len(group.members) >= GROUP_MEMBERS_MAX:
        text = f"group '{group.name}' has {len(group.members)} members; the limit is {GROUP_MEMBERS_MAX}. "
        text += "Stop a consumer of the group, or use another group."
        raise Refusal("conflict", text)
    total = sum(topology[name].partitions for name in group.topics.union(topics) if name in topology)
    if total > GROUP_PARTITIONS_MAX:
        text = f"the topics of group '{group.name}' have {total} partitions; the limit is {GROUP_PARTITIONS_MAX}. "
        text += "Subscribe to fewer topics, or use several groups."
        raise Refusal("conflict", text)
