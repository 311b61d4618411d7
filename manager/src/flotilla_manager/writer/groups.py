"""The writer's side of consumer groups: who is in them, and who fell silent.

What a group becomes is decided by pure functions (`flotilla.groups.membership`). Here every change is written
to the database first, under the writer's epoch, and only then remembered and told. Of each group, one change is made at
a time. Groups that have members are kept in memory; if a write fails, nobody knows what is true, and the group is read
again. Signs of life change memory only.

Deadlines are by the clock of this process. A new writer, and one whose process stood still, has not listened to
anybody: everybody gets a full timeout. While there is no writer, members keep what they have, and commit.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

from flotilla.groups import membership
from flotilla.groups.listening import Kept
from flotilla.groups.offsets import Commit
from flotilla.groups.state import Group, Member, Place, Strategy, Subscribed, Topology
from flotilla.groups.telling import Answer, Beaten, answer, answer_beat
from flotilla.limits import GROUP_MEMBERS_MAX, GROUP_PARTITIONS_MAX, GROUPS_MAX
from flotilla.serving.errors import Refusal
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
from flotilla_manager.model import Snapshot
from flotilla_manager.view import View
from flotilla_manager.writer.leadership import Leadership

logger = logging.getLogger(__name__)

SWEEP_S = 0.5
_ASLEEP_S = 2.0  # a wait that took so much longer than it should: the process stood still
_LATE_S = 0.1  # so much longer: it was too busy to listen
_TURN_S = 10.0  # for one's turn with a group
_PAGE = 200  # groups that are read at once
_ID_BYTES = 16
_CHANGED = "The group changed in a way that was not expected; try again."
_REMOVED = "A topic of the group was removed just now; try again."
_BUSY = "Others are changing this group, and it takes long; try again."
_CERTAIN = (GroupHasMembers, GroupMissing, TooManyGroups)  # the database says that it changed nothing


class Groups:
    """Consumer groups. Calls raise Refusal if this manager is not the writer now, GroupError, MetadataError."""

    def __init__(
        self,
        leadership: Leadership,
        database: AsyncMetadata,
        view: View,
        *,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._leadership = leadership
        self._database = database
        self._view = view
        self._clock = clock
        self._random_bytes = random_bytes
        self._kept: dict[str, Kept] = {}
        self._doubtful: set[str] = set()  # groups to be read again before anything is said of them
        self._opened: int | None = None  # the epoch in which all groups with members were read
        self._opening = asyncio.Lock()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._topology: tuple[Snapshot, Topology] | None = None
        self._trouble = ""

    def known(self, name: str) -> Group | None:
        """Look up a group that has members, as far as is known here."""
        kept = self._kept.get(name) if self._opened == self._leadership.epoch else None
        return None if kept is None else kept.group

    # -- members ------------------------------------------------------------------------------------------

    async def join(
        self, name: str, member_id: str | None, topics: Collection[str], timeout_ms: int, strategy: Strategy
    ) -> Answer:
        """Let a member in, or begin a new life of one that is there. The topics are there."""
        id_ = member_id or self._random_bytes(_ID_BYTES).hex()

        def decide(group: Group) -> Group:
            topology = self._topics()
            check_room(group, id_, topics, topology)
            return membership.join(group, id_, topics, timeout_ms, strategy, topology)

        group = await self._change(name, decide, heard_of=id_)
        logger.info("group %s: %s joined; generation %d", name, id_, group.generation)
        return answer(group, id_)

    async def sync(self, name: str, member_id: str, generation: int, owned: Collection[Place]) -> Answer:
        """Hear what a member has, and tell it what it should have."""
        group = await self._change(
            name, lambda group: membership.sync(group, member_id, generation, owned), heard_of=member_id
        )
        return answer(group, member_id)

    async def heartbeat(self, name: str, member_id: str, generation: int, held: int | None = None) -> Beaten:
        """Hear that a member lives, and how many partitions it has if it says so. The database is not asked."""
        group = await self._find(name)
        member = membership.check(group, member_id, generation)
        self._hear(name, member)
        return answer_beat(group, member, generation, held)

    async def leave(self, name: str, member_id: str, generation: int) -> None:
        """Let a member go."""
        await self._change(name, lambda group: membership.leave(group, member_id, generation, self._topics()))
        logger.info("group %s: %s left", name, member_id)

    # -- whoever looks after groups -----------------------------------------------------------------------

    async def reset(self, name: str, commits: Sequence[Commit], *, force: bool) -> None:
        """Have a group go on elsewhere. By force, its members are taken out: their next commit would undo it."""

        def decide(group: Group) -> Group:
            if group.members and not force:
                raise GroupHasMembers(name, len(group.members))
            return membership.remove(group, list(group.members), self._topics()) if group.members else group

        await self._change(name, decide, commits=commits)
        logger.info("group %s was reset in %d partitions", name, len(commits))

    async def delete(self, name: str, *, force: bool) -> None:
        """Remove a group and its commits."""
        async with self._alone(name) as epoch:
            kept = self._kept.get(name)
            if kept is not None and not force:
                raise GroupHasMembers(name, len(kept.group.members))
            with self._in_doubt(name):
                await self._database.call(self._database.store.delete_group, epoch, name, force=force)
            self._kept.pop(name, None)
        logger.info("group %s was removed", name)

    async def run(self) -> None:
        """Look for members that fell silent and for topics that changed, until cancelled."""
        sweeping: asyncio.Task[None] | None = None
        try:
            while True:
                began = self._clock()
                await asyncio.sleep(SWEEP_S)
                late_s = self._clock() - began - SWEEP_S
                if late_s > _ASLEEP_S:
                    self.forgive()
                elif late_s > _LATE_S:
                    for kept in self._kept.values():
                        kept.wait_longer(late_s)
                if self._leadership.epoch is not None and (sweeping is None or sweeping.done()):
                    # Beside this loop: a database that takes its time must not look as if the process had slept.
                    sweeping = asyncio.get_running_loop().create_task(self._sweep_or_say(self._clock()))
        finally:
            if sweeping is not None:
                sweeping.cancel()

    def forgive(self) -> None:
        """Give everybody a full timeout: it is not known whether they were silent."""
        for kept in self._kept.values():
            kept.forgive(self._clock())

    async def sweep(self, now: float) -> None:
        """Take out who was silent until `now`, and fit in topics that appeared, grew or went. Raises MetadataError."""
        await self._open(self._epoch())
        for name in list(self._doubtful):
            async with self._alone(name) as epoch:
                await self._load(epoch, name)
        topology, refused = self._topics(), None
        for name, kept in list(self._kept.items()):
            if kept.fitted is topology and not kept.silent(now):
                continue
            try:
                async with self._alone(name) as epoch:
                    await self._tend(epoch, name, now)
            except Refusal as error:
                refused = error  # it is this group's trouble: the others have their turn all the same
        if refused is not None:
            raise refused

    async def _sweep_or_say(self, now: float) -> None:
        try:
            await self.sweep(now)
            self._trouble = ""
        except Fenced as error:
            self._leadership.lose(error.epoch, str(error))
        except (MetadataError, Refusal) as error:
            if str(error) != self._trouble:
                logger.warning("groups could not be looked after: %s", error)
            self._trouble = str(error)
        except Exception as error:
            if repr(error) != self._trouble:
                logger.exception("groups could not be looked after")
            self._trouble = repr(error)

    async def _tend(self, epoch: int, name: str, now: float) -> None:
        kept = self._kept.get(name)
        if kept is None:
            return
        topology = self._topics()  # as they are now: the group may know of some that came while others had their turn
        silent = kept.silent(now)
        after = membership.remove(kept.group, silent, topology) if silent else kept.group
        after = membership.refit(after, topology)
        await self._save(epoch, kept.group, after)
        if silent:
            logger.info("group %s: %s fell silent", name, ", ".join(silent))
        if name in self._kept:
            self._kept[name].fitted = topology

    # -- one change after the other -----------------------------------------------------------------------

    async def _change(
        self,
        name: str,
        decide: Callable[[Group], Group],
        *,
        heard_of: str | None = None,
        commits: Sequence[Commit] = (),
    ) -> Group:
        async with self._alone(name) as epoch:
            before = await self._load(epoch, name)
            after = decide(before)
            await self._save(epoch, before, after, commits)
            if heard_of is not None:
                self._hear(name, after.members[heard_of])
            return after

    def _hear(self, name: str, member: Member) -> None:
        kept = self._kept.get(name)
        if kept is not None:
            kept.hear(member, self._clock())

    async def _find(self, name: str) -> Group:
        """Look a group up, as it is or was a moment ago."""
        await self._open(self._epoch())
        kept = self._kept.get(name)
        if kept is None and name in self._doubtful:
            async with self._alone(name) as epoch:
                return await self._load(epoch, name)
        return Group(name=name) if kept is None else kept.group

    async def _load(self, epoch: int, name: str) -> Group:
        """Take a group from memory, or read it."""
        kept = self._kept.get(name)
        if kept is not None:
            return kept.group
        group = await self._database.call(self._database.store.take_group, epoch, name)
        self._require(epoch)
        self._doubtful.discard(name)
        self._keep(group)
        return group

    async def _save(self, epoch: int, before: Group, after: Group, commits: Sequence[Commit] = ()) -> None:
        if after is not before or commits:
            with self._in_doubt(after.name):
                await self._database.call(self._database.store.save_group, epoch, before, after, commits)
            self._require(epoch)
        self._doubtful.discard(after.name)
        self._keep(after)

    def _keep(self, group: Group) -> None:
        """Remember a group that has members."""
        if not group.members:
            self._kept.pop(group.name, None)
        elif group.name in self._kept:
            self._kept[group.name].become(group, self._clock())
        else:
            self._kept[group.name] = Kept(group, self._clock())

    @asynccontextmanager
    async def _alone(self, name: str) -> AsyncIterator[int]:
        """Wait for one's turn with a group; tell the writer's epoch. Raises Refusal if it does not come."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(_TURN_S):
                await lock.acquire()
        except TimeoutError:
            raise Refusal("unavailable", _BUSY) from None
        try:
            epoch = self._epoch()
            await self._open(epoch)
            yield epoch
        finally:
            lock.release()

    @contextmanager
    def _in_doubt(self, name: str) -> Iterator[None]:
        """Forget a group if it is not certain what was written."""
        try:
            yield
        except _CERTAIN:
            raise
        except BaseException as error:
            self._kept.pop(name, None)
            self._doubtful.add(name)
            if len(self._doubtful) > GROUPS_MAX:  # names that nobody asks for again: read everything anew instead
                self._opened = None
            if isinstance(error, GroupChanged):
                logger.warning("%s", error)
                raise Refusal("unavailable", _CHANGED) from error
            if isinstance(error, TopicMissing):
                self._view.refresh_soon()
                raise Refusal("unavailable", _REMOVED) from error
            raise

    async def _open(self, epoch: int) -> None:
        """Read all groups that have members, once in the writer's life. Nobody changes any before that."""
        if self._opened == epoch:
            return
        async with self._opening:
            if self._opened == epoch:
                return
            await self._view.refresh()  # topics that are there must not seem to be gone
            found: list[Group] = []
            while True:
                after = found[-1].name if found else ""
                store = self._database.store
                page = await self._database.call(store.load_groups_with_members, epoch, after, _PAGE)
                found += page
                if len(page) < _PAGE:
                    break
            self._kept.clear()
            self._doubtful.clear()
            for group in found:
                self._keep(group)
            self._opened = epoch

    def _epoch(self) -> int:
        if self._leadership.epoch is None:
            raise Refusal("unavailable", "There is no writer at the moment; try again.")
        return self._leadership.epoch

    def _require(self, epoch: int) -> None:
        """Refuse to remember what was true for an earlier life of this writer."""
        if self._opened != epoch:
            raise Refusal("unavailable", "Another manager was the writer meanwhile; try again.")

    def _topics(self) -> Topology:
        """The topics that can be used; the same object as long as nothing has changed."""
        snapshot = self._view.snapshot
        if snapshot is None:
            raise Refusal("unavailable", "The metadata is not known yet; try again.")
        if self._topology is None or self._topology[0] is not snapshot:
            found = {name: Subscribed(topic.id, len(topic.partitions)) for name, topic in snapshot.ready.items()}
            is_same = self._topology is not None and self._topology[1] == found
            self._topology = (snapshot, self._topology[1] if self._topology and is_same else found)
        return self._topology[1]


def check_room(group: Group, member_id: str, topics: Collection[str], topology: Topology) -> None:
    """Refuse a member that would be too many, or would bring too many partitions. Raises Refusal."""
    if member_id not in group.members and len(group.members) >= GROUP_MEMBERS_MAX:
        text = f"group '{group.name}' has {len(group.members)} members; {GROUP_MEMBERS_MAX} is the limit"
        raise Refusal("conflict", text)
    total = sum(topology[name].partitions for name in group.topics.union(topics) if name in topology)
    if total > GROUP_PARTITIONS_MAX:
        text = f"the topics of group '{group.name}' have {total} partitions; {GROUP_PARTITIONS_MAX} is the limit"
        raise Refusal("conflict", text)
