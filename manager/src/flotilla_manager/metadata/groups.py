"""Consumer groups: members, assigned partitions (holdings), and committed offsets.

Only the writer changes members and holdings. It locks the row of `state`, as for all its changes, and then the group.
Any manager commits offsets, with or without a writer. It takes the group's lock in shared mode, so that no partition
changes its owner between the check and the commit, and then the locks of the topics in shared mode, so that none is
deleted meanwhile. All locks are taken in this order, to avoid deadlocks: `state`, group, topics, rows.

A group without members consists of its row and its commits. Deleting a topic deletes its holdings and commits.
When a group is deleted, `state` keeps its generation as the first generation of new groups. So a request of a member of
the deleted group is never valid in a new group with the same name.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, Select, Table, bindparam, delete, func, select, update

from flotilla.groups import membership
from flotilla.groups.offsets import Commit, ListedGroup
from flotilla.groups.state import Group, Holding, Member, PartitionId, Strategy
from flotilla.limits import GROUPS_MAX
from flotilla_manager.metadata import rows, tables
from flotilla_manager.metadata.clock import now_ms
from flotilla_manager.metadata.database import Database, state_row
from flotilla_manager.metadata.errors import (
    GroupChanged,
    GroupHasMembers,
    GroupMissing,
    NotOwner,
    TooManyGroups,
    TopicMissing,
)
from flotilla_manager.metadata.locks import lock_group, lock_topics
from flotilla_manager.metadata.upsert import insert_missing, upsert
from flotilla_manager.model import TopicState

_groups = tables.groups
_members = tables.members
_holdings = tables.holdings
_commits = tables.commits
_topics = tables.topics
_state = tables.state


class Groups(Database):
    """Consumer groups and their committed offsets."""

    def load_group(self, name: str) -> Group | None:
        """Load a group from one snapshot; None if it does not exist."""
        with self.read_transaction() as connection:
            return _load(connection, [name]).get(name)

    def load_group_as_writer(self, epoch: int, name: str) -> Group:
        """Load a group, after earlier writes of this writer; a new Group if it does not exist. Raises Fenced."""
        with self.writer_transaction(epoch) as connection:
            found = _load(connection, [name]).get(name)
            return found or Group(name=name, generation=state_row(connection).generation_min)

    def load_groups_with_members(self, epoch: int, after: str, limit: int) -> list[Group]:
        """Load a page of groups with members by name, after the name `after`, as the writer. Raises Fenced."""
        has_members = select(_members.c.group_name).where(_members.c.group_name > after).distinct()
        with self.writer_transaction(epoch) as connection:
            names = connection.execute(has_members.order_by(_members.c.group_name).limit(limit)).scalars().all()
            return list(_load(connection, names).values())

    def list_groups(self, after: str, limit: int) -> list[ListedGroup]:
        """List a page of groups by name, after the name `after`."""
        with self.read_transaction() as connection:
            names = connection.execute(rows.page(select(_groups.c.name), _groups.c.name, after, limit)).scalars().all()
            committed: defaultdict[str, list[str]] = defaultdict(list)
            for name, topic_id in connection.execute(_COMMITTED, {"names": names}):
                committed[name].append(topic_id)
            return [ListedGroup(group, tuple(committed[name])) for name, group in _load(connection, names).items()]

    def committed_offsets(self, name: str, topic_id: str | None = None) -> list[Commit] | None:
        """Return the committed offsets of a group, in one topic or all; None if the group does not exist."""
        query = select(_commits).where(_commits.c.group_name == name)
        if topic_id is not None:
            query = query.where(_commits.c.topic_id == topic_id)
        with self.read_transaction() as connection:
            if connection.execute(select(_groups.c.name).where(_groups.c.name == name)).one_or_none() is None:
                return None
            return [_commit(row) for row in connection.execute(query.order_by(*_PLACE))]

    # -- changes of the writer ----------------------------------------------------------------------------

    def save_group(self, epoch: int, before: Group, after: Group, commits: Sequence[Commit] = ()) -> None:
        """Write the difference of two versions of a group, and commits, atomically.

        Raises Fenced, GroupChanged, TooManyGroups, TopicMissing.
        """
        with self.writer_transaction(epoch) as connection:
            self._update_group(connection, before, after)
            changed = _changed(before.holdings, after.holdings)
            _require_ready(connection, [*changed, *(commit.tp for commit in commits)])
            self._write_rows(connection, _members, _member_rows(before, after), after.name, ("id",))
            self._write_rows(connection, _holdings, _holding_rows(before, after), after.name, ("topic_id", "partition"))
            self._put_commits(connection, after.name, commits)

    def delete_group(self, epoch: int, name: str, *, force: bool = False) -> None:
        """Delete a group, also with members if `force`. Raises Fenced, GroupMissing, GroupHasMembers."""
        with self.writer_transaction(epoch) as connection:
            lock_group(connection, name, shared=False)
            group = _find(connection, name)
            if group is None:
                raise GroupMissing(name)
            count = _count(connection, name)
            if count and not force:
                raise GroupHasMembers(name, count)
            lower = _state.c.generation_min < group.generation
            connection.execute(update(_state).where(lower).values(generation_min=group.generation))
            connection.execute(delete(_groups).where(_groups.c.name == name))

    def _update_group(self, connection: Connection, before: Group, after: Group) -> None:
        """Lock a group, and insert or update its row. Raises GroupChanged if `before` is outdated."""
        lock_group(connection, after.name, shared=False)
        found = _find(connection, after.name) or self._insert_group(connection, after.name)
        if before.generation != found.generation:
            text = f"group '{after.name}' has generation {found.generation}; expected {before.generation}"
            raise GroupChanged(text)
        values = {"strategy": None if after.strategy is None else after.strategy.value, "generation": after.generation}
        if (found.strategy, found.generation) != tuple(values.values()):
            connection.execute(update(_groups).where(_groups.c.name == after.name).values(**values))

    def _insert_group(self, connection: Connection, name: str) -> Row[Any]:
        """Insert a group, unless a concurrent transaction with a shared lock did; return the row."""
        _require_capacity(connection)
        new = insert_missing(self._dialect, _groups, "name")
        generation = state_row(connection).generation_min
        connection.execute(new.values(name=name, strategy=None, generation=generation, created_ms=now_ms()))
        return connection.execute(_query(name)).one()

    def _write_rows(
        self,
        connection: Connection,
        table: Table,
        difference: tuple[list[dict[str, Any]], list[dict[str, Any]]],
        name: str,
        key: tuple[str, ...],
    ) -> None:
        put, deleted = difference
        if deleted:
            match = [table.c[column] == bindparam(f"key_{column}") for column in key]
            keys = [{f"key_{column}": row[column] for column in key} for row in deleted]
            connection.execute(delete(table).where(table.c.group_name == name, *match), keys)
        if put:
            connection.execute(
                upsert(self._dialect, table, "group_name", *key), [{"group_name": name, **row} for row in put]
            )

    # -- changes of any manager ---------------------------------------------------------------------------

    def commit_offsets(self, name: str, commits: Sequence[Commit], member: tuple[str, int] | None) -> None:
        """Commit offsets atomically, for a member and its generation, or for a group without members.

        Raises TopicMissing, NotOwner, GroupHasMembers, TooManyGroups; and UnknownMember and StaleGeneration of
        `membership`.
        """
        partitions = [commit.tp for commit in commits]
        with self.write_transaction() as connection:
            lock_group(connection, name, shared=True)
            lock_topics(connection, (tp.topic_id for tp in partitions), shared=True)
            _require_ready(connection, partitions)
            group = _find(connection, name)
            if group is None and member is None:
                group = self._insert_group(connection, name)
            if member is None:
                count = _count(connection, name)
                if count:
                    raise GroupHasMembers(name, count)
            else:
                _require_owner(connection, name, 0 if group is None else group.generation, member, partitions)
            self._put_commits(connection, name, commits)

    def _put_commits(self, connection: Connection, name: str, commits: Sequence[Commit]) -> None:
        """Write commits, sorted by partition to avoid deadlocks. Of several for a partition, the last is written."""
        last = {commit.tp: commit for commit in commits}
        if not last:
            return
        at = connection.execute(select(now_ms())).scalar_one()
        connection.execute(
            upsert(self._dialect, _commits, "group_name", "topic_id", "partition"),
            [
                {
                    "group_name": name,
                    **tp._asdict(),
                    "next_offset": last[tp].offset,
                    "note": last[tp].note,
                    "committed_ms": at,
                }
                for tp in sorted(last)
            ],
        )


_PLACE = (_commits.c.topic_id, _commits.c.partition)
_NAMES: BindParameter[Any] = bindparam("names", expanding=True)
_COMMITTED = (
    select(_commits.c.group_name, _commits.c.topic_id)
    .where(_commits.c.group_name.in_(_NAMES))
    .distinct()
    .order_by(_commits.c.group_name, _commits.c.topic_id)
)
_STATES = select(_topics.c.id, _topics.c.state).where(_topics.c.id.in_(bindparam("ids", expanding=True)))
_OWNED = select(_holdings).where(
    _holdings.c.group_name == bindparam("name"),
    _holdings.c.topic_id.in_(bindparam("ids", expanding=True)),
    _holdings.c.partition.in_(bindparam("partitions", expanding=True)),
)


def _query(name: str) -> Select[Any]:
    return select(_groups).where(_groups.c.name == name)


def _find(connection: Connection, name: str) -> Row[Any] | None:
    return connection.execute(_query(name)).one_or_none()


def _count(connection: Connection, name: str) -> int:
    counted = select(func.count()).select_from(_members).where(_members.c.group_name == name)
    return int(connection.execute(counted).scalar_one())


def _require_capacity(connection: Connection) -> None:
    count = connection.execute(select(func.count()).select_from(_groups)).scalar_one()
    if count >= GROUPS_MAX:
        raise TooManyGroups(f"the number of groups is {count}; the limit is {GROUPS_MAX}: delete unused groups")


def _require_ready(connection: Connection, partitions: Iterable[PartitionId]) -> None:
    """Reject rows of a topic that is being deleted: they would never be deleted. Raises TopicMissing."""
    for some in rows.chunks(sorted({tp.topic_id for tp in partitions})):
        found = {row.id: row.state for row in connection.execute(_STATES, {"ids": some})}
        for topic_id in some:
            if found.get(topic_id) != TopicState.READY:
                raise TopicMissing(topic_id, found.get(topic_id))


def _require_owner(
    connection: Connection, name: str, generation: int, member: tuple[str, int], partitions: Sequence[PartitionId]
) -> None:
    """Reject a commit of a member that does not own the partitions in its generation. Raises NotOwner."""
    member_id, member_generation = member
    row = connection.execute(
        select(_members).where(_members.c.group_name == name, _members.c.id == member_id)
    ).one_or_none()
    values = {
        "name": name,
        "ids": sorted({tp.topic_id for tp in partitions}),
        "partitions": sorted({tp.partition for tp in partitions}),
    }
    held = {_place(found): _holding(found) for found in connection.execute(_OWNED, values)}
    rejected = membership.find_not_owned(
        None if row is None else _member(row), member_generation, generation, held, partitions
    )
    if rejected:
        raise NotOwner(member_id, member_generation, rejected)


def _changed(before: Mapping[PartitionId, Holding], after: Mapping[PartitionId, Holding]) -> list[PartitionId]:
    return [tp for tp, holding in after.items() if before.get(tp) != holding]


def _member_rows(before: Group, after: Group) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows to upsert, and the keys of rows to delete."""
    old = before.members
    put = [
        {
            "id": one.id,
            "topics": " ".join(one.topics),
            "timeout_ms": one.timeout_ms,
            "joined": one.joined,
            "synced": one.synced,
        }
        for id_, one in sorted(after.members.items())
        if old.get(id_) != one
    ]
    return put, [{"id": id_} for id_ in sorted(old.keys() - after.members.keys())]


def _holding_rows(before: Group, after: Group) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    old = before.holdings
    put = [
        {**tp._asdict(), "owner": one.owner, "since": one.since, "target": one.target}
        for tp in sorted(_changed(old, after.holdings))
        for one in (after.holdings[tp],)
    ]
    return put, [tp._asdict() for tp in sorted(old.keys() - after.holdings.keys())]


def _load(connection: Connection, names: Sequence[str]) -> dict[str, Group]:
    """Load groups with their members and holdings, sorted by name."""
    members: defaultdict[str, dict[str, Member]] = defaultdict(dict)
    holdings: defaultdict[str, dict[PartitionId, Holding]] = defaultdict(dict)
    values = {"names": names}
    for row in connection.execute(select(_members).where(_members.c.group_name.in_(_NAMES)), values):
        members[row.group_name][row.id] = _member(row)
    for row in connection.execute(select(_holdings).where(_holdings.c.group_name.in_(_NAMES)), values):
        holdings[row.group_name][_place(row)] = _holding(row)
    found = connection.execute(select(_groups).where(_groups.c.name.in_(_NAMES)).order_by(_groups.c.name), values)
    return {
        row.name: Group(
            name=row.name,
            strategy=None if row.strategy is None else Strategy(row.strategy),
            generation=row.generation,
            members=members[row.name],
            holdings=holdings[row.name],
        )
        for row in found
    }


def _place(row: Row[Any]) -> PartitionId:
    return PartitionId(row.topic_id, row.partition)


def _holding(row: Row[Any]) -> Holding:
    return Holding(owner=row.owner, since=row.since, target=row.target)


def _member(row: Row[Any]) -> Member:
    return Member(
        id=row.id, topics=tuple(row.topics.split()), timeout_ms=row.timeout_ms, joined=row.joined, synced=row.synced
    )


def _commit(row: Row[Any]) -> Commit:
    return Commit(tp=_place(row), offset=row.next_offset, note=row.note, committed_ms=row.committed_ms)
