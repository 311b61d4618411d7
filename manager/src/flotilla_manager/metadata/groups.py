"""Consumer groups: who is in them, who has which partition, and how far they have come.

Only the writer changes members and holdings. It locks the row of `state`, as for everything that it decides, and then
the group. Any manager commits, with or without a writer: it shares the group's lock, so that nobody's partitions change
hands between the check and the commit, and then those of the topics, so that none of them is removed meanwhile. That is
the order of all locks here: `state`, group, topics, and then rows, so nobody waits in a circle.

A group without members is a row and its commits. A topic that is being removed takes its holdings and commits along.
When a group is deleted, `state` remembers its generation, and all that are made later begin there: what was said in a
group that is gone is never taken for something said in one that has its name now.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, Select, Table, bindparam, delete, func, select, update

from flotilla.groups import membership
from flotilla.groups.offsets import Commit, Listed
from flotilla.groups.state import Group, Holding, Member, Place, Strategy
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
    """Groups, as the writer changes them and as everybody reads them and commits to them."""

    def load_group(self, name: str) -> Group | None:
        """Read a group as it was at one moment."""
        with self.reading() as connection:
            return _load(connection, [name]).get(name)

    def take_group(self, epoch: int, name: str) -> Group:
        """Read a group as the writer that is about to change it: what it did before has ended. Raises Fenced.

        One that is not there is as it would be if it were made now.
        """
        with self.registering(epoch) as connection:
            found = _load(connection, [name]).get(name)
            return found or Group(name=name, generation=state_row(connection).generation_min)

    def load_groups_with_members(self, epoch: int, after: str, limit: int) -> list[Group]:
        """Read the next groups that have members, in the order of their names, as a new writer. Raises Fenced."""
        has_members = select(_members.c.group_name).where(_members.c.group_name > after).distinct()
        with self.registering(epoch) as connection:
            names = connection.execute(has_members.order_by(_members.c.group_name).limit(limit)).scalars().all()
            return list(_load(connection, names).values())

    def list_groups(self, after: str, limit: int) -> list[Listed]:
        """List groups in the order of their names, from the one behind `after` on."""
        with self.reading() as connection:
            names = connection.execute(rows.page(select(_groups.c.name), _groups.c.name, after, limit)).scalars().all()
            committed: defaultdict[str, list[str]] = defaultdict(list)
            for name, topic_id in connection.execute(_COMMITTED, {"names": names}):
                committed[name].append(topic_id)
            return [Listed(group, tuple(committed[name])) for name, group in _load(connection, names).items()]

    def commits_of(self, name: str, topic_id: str | None = None) -> list[Commit] | None:
        """Tell how far a group has come, in one topic or in all; None if there is no such group."""
        question = select(_commits).where(_commits.c.group_name == name)
        if topic_id is not None:
            question = question.where(_commits.c.topic_id == topic_id)
        with self.reading() as connection:
            if connection.execute(select(_groups.c.name).where(_groups.c.name == name)).one_or_none() is None:
                return None
            return [_commit(row) for row in connection.execute(question.order_by(*_PLACE))]

    # -- the writer's -------------------------------------------------------------------------------------

    def save_group(self, epoch: int, before: Group, after: Group, commits: Sequence[Commit] = ()) -> None:
        """Write what differs, and commits beside it if there are any: all of it or nothing.

        Raises Fenced, GroupChanged, TooManyGroups, TopicMissing.
        """
        with self.registering(epoch) as connection:
            self._hold_group(connection, before, after)
            changed = _changed(before.holdings, after.holdings)
            _require_ready(connection, [*changed, *(commit.place for commit in commits)])
            self._write_rows(connection, _members, _member_rows(before, after), after.name, ("id",))
            self._write_rows(connection, _holdings, _holding_rows(before, after), after.name, ("topic_id", "partition"))
            self._put_commits(connection, after.name, commits)

    def delete_group(self, epoch: int, name: str, *, force: bool = False) -> None:
        """Remove a group and its commits. Raises Fenced, GroupMissing, GroupHasMembers."""
        with self.registering(epoch) as connection:
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

    def _hold_group(self, connection: Connection, before: Group, after: Group) -> None:
        """Lock a group, and write its row; make it if it is not there."""
        lock_group(connection, after.name, shared=False)
        found = _find(connection, after.name) or self._make_group(connection, after.name)
        if before.generation != found.generation:
            text = f"group '{after.name}' has generation {found.generation}, not {before.generation}: it is read again"
            raise GroupChanged(text)
        values = {"strategy": None if after.strategy is None else after.strategy.value, "generation": after.generation}
        if (found.strategy, found.generation) != tuple(values.values()):
            connection.execute(update(_groups).where(_groups.c.name == after.name).values(**values))

    def _make_group(self, connection: Connection, name: str) -> Row[Any]:
        """Make a group that is not there; of several who share its lock and make it, one does."""
        _require_room(connection)
        new = insert_missing(self._dialect, _groups, "name")
        generation = state_row(connection).generation_min
        connection.execute(new.values(name=name, strategy=None, generation=generation, created_ms=now_ms()))
        return connection.execute(_question(name)).one()

    def _write_rows(
        self,
        connection: Connection,
        table: Table,
        difference: tuple[list[dict[str, Any]], list[dict[str, Any]]],
        name: str,
        key: tuple[str, ...],
    ) -> None:
        put, gone = difference
        if gone:
            match = [table.c[column] == bindparam(f"key_{column}") for column in key]
            keys = [{f"key_{column}": row[column] for column in key} for row in gone]
            connection.execute(delete(table).where(table.c.group_name == name, *match), keys)
        if put:
            connection.execute(
                upsert(self._dialect, table, "group_name", *key), [{"group_name": name, **row} for row in put]
            )

    # -- everybody's --------------------------------------------------------------------------------------

    def commit(self, name: str, commits: Sequence[Commit], member: tuple[str, int] | None) -> None:
        """Note how far a group has come: for a member with its generation, or for a group that has no members.

        All or nothing. Raises TopicMissing, NotOwner, GroupHasMembers, TooManyGroups; UnknownMember or StaleGeneration,
        of membership.
        """
        places = [commit.place for commit in commits]
        with self.writing() as connection:
            lock_group(connection, name, shared=True)
            lock_topics(connection, (place.topic_id for place in places), shared=True)
            _require_ready(connection, places)
            group = _find(connection, name)
            if group is None and member is None:
                group = self._make_group(connection, name)
            if member is None:
                count = _count(connection, name)
                if count:
                    raise GroupHasMembers(name, count)
            else:
                _require_owner(connection, name, 0 if group is None else group.generation, member, places)
            self._put_commits(connection, name, commits)

    def _put_commits(self, connection: Connection, name: str, commits: Sequence[Commit]) -> None:
        """Write commits in the order of their places, as everybody does; of several for one place, the last counts."""
        last = {commit.place: commit for commit in commits}
        if not last:
            return
        at = connection.execute(select(now_ms())).scalar_one()
        connection.execute(
            upsert(self._dialect, _commits, "group_name", "topic_id", "partition"),
            [
                {
                    "group_name": name,
                    **place._asdict(),
                    "next_offset": last[place].offset,
                    "note": last[place].note,
                    "committed_ms": at,
                }
                for place in sorted(last)
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


def _question(name: str) -> Select[Any]:
    return select(_groups).where(_groups.c.name == name)


def _find(connection: Connection, name: str) -> Row[Any] | None:
    return connection.execute(_question(name)).one_or_none()


def _count(connection: Connection, name: str) -> int:
    counted = select(func.count()).select_from(_members).where(_members.c.group_name == name)
    return int(connection.execute(counted).scalar_one())


def _require_room(connection: Connection) -> None:
    count = connection.execute(select(func.count()).select_from(_groups)).scalar_one()
    if count >= GROUPS_MAX:
        raise TooManyGroups(f"there are {count} groups, and no more than {GROUPS_MAX} are possible: delete some")


def _require_ready(connection: Connection, places: Iterable[Place]) -> None:
    """Refuse to write of a topic that is being removed, as nobody would take that away again. Raises TopicMissing."""
    for some in rows.chunks(sorted({place.topic_id for place in places})):
        found = {row.id: row.state for row in connection.execute(_STATES, {"ids": some})}
        for topic_id in some:
            if found.get(topic_id) != TopicState.READY:
                raise TopicMissing(topic_id, found.get(topic_id))


def _require_owner(
    connection: Connection, name: str, generation: int, member: tuple[str, int], places: Sequence[Place]
) -> None:
    """Refuse a commit of somebody who does not own the partitions, or who means an earlier time."""
    member_id, member_generation = member
    row = connection.execute(
        select(_members).where(_members.c.group_name == name, _members.c.id == member_id)
    ).one_or_none()
    values = {
        "name": name,
        "ids": sorted({place.topic_id for place in places}),
        "partitions": sorted({place.partition for place in places}),
    }
    held = {_place(found): _holding(found) for found in connection.execute(_OWNED, values)}
    refused = membership.may_commit(None if row is None else _member(row), member_generation, generation, held, places)
    if refused:
        raise NotOwner(refused)


def _changed(before: Mapping[Place, Holding], after: Mapping[Place, Holding]) -> list[Place]:
    return [place for place, holding in after.items() if before.get(place) != holding]


def _member_rows(before: Group, after: Group) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Tell which rows to put and which to take away."""
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
        {**place._asdict(), "owner": one.owner, "since": one.since, "target": one.target}
        for place in sorted(_changed(old, after.holdings))
        for one in (after.holdings[place],)
    ]
    return put, [place._asdict() for place in sorted(old.keys() - after.holdings.keys())]


def _load(connection: Connection, names: Sequence[str]) -> dict[str, Group]:
    """Read groups with their members and holdings, in the order of their names."""
    members: defaultdict[str, dict[str, Member]] = defaultdict(dict)
    holdings: defaultdict[str, dict[Place, Holding]] = defaultdict(dict)
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


def _place(row: Row[Any]) -> Place:
    return Place(row.topic_id, row.partition)


def _holding(row: Row[Any]) -> Holding:
    return Holding(owner=row.owner, since=row.since, target=row.target)


def _member(row: Row[Any]) -> Member:
    return Member(
        id=row.id, topics=tuple(row.topics.split()), timeout_ms=row.timeout_ms, joined=row.joined, synced=row.synced
    )


def _commit(row: Row[Any]) -> Commit:
    return Commit(place=_place(row), offset=row.next_offset, note=row.note, committed_ms=row.committed_ms)
