"""In-memory coordinator of consumer groups: membership, committed offsets and session timeouts.

`flotilla.groups` decides, as in managers; this module stores the groups and turns errors into refusals. A group without
members keeps its generation and its committed offsets. When a group is deleted, later groups start above its
generation, so that a request for the deleted group is never accepted by a new one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from flotilla.groups import membership
from flotilla.groups.membership import GroupError, InconsistentStrategy
from flotilla.groups.offsets import Commit
from flotilla.groups.responses import AssignmentResponse, HeartbeatResponse, assignment_response, heartbeat_response
from flotilla.groups.sessions import GroupSessions
from flotilla.groups.state import Group, PartitionId, Strategy
from flotilla.protocol.errors import Refusal, not_found
from flotilla.testing.state import ClusterState


class Coordinator:
    """All consumer groups. Methods raise Refusal."""

    def __init__(self, state: ClusterState, clock: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock
        self._groups: dict[str, GroupSessions] = {}
        self._commits: dict[str, dict[PartitionId, Commit]] = {}
        self._generation_min = 0

    # -- members ------------------------------------------------------------------------------------------

    def join(
        self, name: str, member_id: str | None, topics: Collection[str], timeout_ms: int, strategy: Strategy
    ) -> AssignmentResponse:
        """Add a member, or replace the member with this id."""
        id_ = member_id or self._state.draw_id()
        with _as_refusal():
            after = membership.join(self._get(name), id_, topics, timeout_ms, strategy, self._state.topology)
        self._put(after, renew=id_)
        return assignment_response(after, id_)

    def sync(self, name: str, member_id: str, generation: int, owned: Collection[PartitionId]) -> AssignmentResponse:
        """Record the partitions that a member owns; return its assignment."""
        with _as_refusal():
            after = membership.sync(self._get(name), member_id, generation, owned)
        self._put(after, renew=member_id)
        return assignment_response(after, member_id)

    def heartbeat(self, name: str, member_id: str, generation: int, held: int | None) -> HeartbeatResponse:
        """Renew the session of a member."""
        group = self._get(name)
        with _as_refusal():
            member = membership.check(group, member_id, generation)
        self._groups[name].renew(member, self._clock())
        return heartbeat_response(group, member, generation, held)

    def leave(self, name: str, member_id: str, generation: int) -> None:
        """Remove a member that leaves."""
        with _as_refusal():
            self._put(membership.leave(self._get(name), member_id, generation, self._state.topology))

    def sweep(self) -> None:
        """Remove expired members, and rebalance after changes of topics."""
        now, topology = self._clock(), self._state.topology
        ids = {topic.id for topic in topology.values()}
        for sessions in list(self._groups.values()):
            left = membership.remove(sessions.group, sessions.expired(now), topology)
            self._put(membership.apply_topology(left, topology) if left.members else left)
        for commits in self._commits.values():
            for tp in [tp for tp in commits if tp.topic_id not in ids]:
                del commits[tp]

    # -- commits ------------------------------------------------------------------------------------------

    def commit(self, name: str, commits: Sequence[Commit], member: tuple[str, int] | None) -> list[PartitionId]:
        """Commit offsets, as a member or for a group without members; return the partitions that are not owned."""
        group = self._get(name)
        if member is None:
            self._require_empty(
                group, "conflict", "commit with member_id and generation of a member, or after all members left"
            )
            self._put(group)
        else:
            partitions = [commit.tp for commit in commits]
            with _as_refusal():
                found = group.members.get(member[0])
                refused = membership.find_not_owned(found, member[1], group.generation, group.holdings, partitions)
            if refused:
                return refused
        self._store_commits(name, commits)
        return []

    def reset(self, name: str, commits: Sequence[Commit], *, force: bool) -> None:
        """Reset committed offsets. `force` removes the members of the group."""
        group = self._get(name)
        if not force:
            self._require_empty(group, "group_not_empty", "stop them, or use force to remove them")
        self._put(membership.remove(group, list(group.members), self._state.topology))
        self._store_commits(name, commits)

    def delete(self, name: str, *, force: bool) -> None:
        """Delete a group and its committed offsets."""
        group = self.require(name)
        if not force:
            self._require_empty(group, "group_not_empty", "stop them, or use force to remove them")
        self._generation_min = max(self._generation_min, group.generation)
        del self._groups[name]
        self._commits.pop(name, None)

    def _store_commits(self, name: str, commits: Iterable[Commit]) -> None:
        self._commits.setdefault(name, {}).update((commit.tp, commit) for commit in commits)

    @staticmethod
    def _require_empty(group: Group, code: str, what_to_do: str) -> None:
        count = len(group.members)
        if count:
            text = f"group '{group.name}' has {count} member{'s' if count != 1 else ''}: {what_to_do}"
            raise Refusal(code, text, **({"members": count} if code == "group_not_empty" else {}))

    # -- queries ------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of all groups, sorted."""
        return sorted(self._groups)

    def find(self, name: str) -> Group | None:
        """Return a group, or None."""
        sessions = self._groups.get(name)
        return None if sessions is None else sessions.group

    def require(self, name: str) -> Group:
        """Return a group. Raises Refusal if it does not exist."""
        group = self.find(name)
        if group is None:
            raise not_found("group", f"group '{name}' does not exist")
        return group

    def commits_of(self, name: str) -> dict[PartitionId, Commit]:
        """Return the committed offsets of a group, sorted by partition."""
        return dict(sorted(self._commits.get(name, {}).items()))

    def _get(self, name: str) -> Group:
        return self.find(name) or Group(name=name, generation=self._generation_min)

    def _put(self, group: Group, renew: str | None = None) -> None:
        sessions, now = self._groups.get(group.name), self._clock()
        if sessions is None:
            sessions = self._groups[group.name] = GroupSessions(group, now)
        sessions.update(group, now)
        if renew is not None:
            sessions.renew(group.members[renew], now)


@contextmanager
def _as_refusal() -> Iterator[None]:
    """Turn errors of groups into refusals."""
    try:
        yield
    except GroupError as error:
        details = {"strategy": error.current} if isinstance(error, InconsistentStrategy) else {}
        raise Refusal(error.code, str(error), **details) from error
