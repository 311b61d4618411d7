"""Consumer groups in memory: who is in them, how far they have come, and who fell silent.

What a group becomes is decided by `flotilla.groups`, as it is in a real system. Here it is remembered, and refusals are
made of what is refused. A group without members keeps its generation and its commits. When one is deleted, all that are
made later begin behind its generation, so that nothing said in the old one is taken for something said in the new one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from flotilla.groups import membership
from flotilla.groups.listening import Kept
from flotilla.groups.membership import GroupError, OtherStrategy
from flotilla.groups.offsets import Commit
from flotilla.groups.state import Group, Place, Strategy
from flotilla.groups.telling import Answer, Beaten, answer, answer_beat
from flotilla.serving.errors import Refusal
from flotilla.testing.world import World

_NOT_OWNER = "the member does not own {} of these partitions, or has got them since: stop work on them, and sync"


class Coordinator:
    """All groups. Calls raise Refusal."""

    def __init__(self, world: World, clock: Callable[[], float]) -> None:
        self._world = world
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self._commits: dict[str, dict[Place, Commit]] = {}
        self._generation_min = 0

    # -- members ------------------------------------------------------------------------------------------

    def join(
        self, name: str, member_id: str | None, topics: Collection[str], timeout_ms: int, strategy: Strategy
    ) -> Answer:
        """Let a member in, or begin a new life of one that is there."""
        id_ = member_id or self._world.draw_id()
        with _refusing():
            after = membership.join(self._get(name), id_, topics, timeout_ms, strategy, self._world.topology)
        self._put(after, heard_of=id_)
        return answer(after, id_)

    def sync(self, name: str, member_id: str, generation: int, owned: Collection[Place]) -> Answer:
        """Hear what a member has, and tell it what it should have."""
        with _refusing():
            after = membership.sync(self._get(name), member_id, generation, owned)
        self._put(after, heard_of=member_id)
        return answer(after, member_id)

    def heartbeat(self, name: str, member_id: str, generation: int, held: int | None) -> Beaten:
        """Hear that a member lives."""
        group = self._get(name)
        with _refusing():
            member = membership.check(group, member_id, generation)
        self._kept[name].hear(member, self._clock())
        return answer_beat(group, member, generation, held)

    def leave(self, name: str, member_id: str, generation: int) -> None:
        """Let a member go."""
        with _refusing():
            self._put(membership.leave(self._get(name), member_id, generation, self._world.topology))

    def sweep(self) -> None:
        """Take out who fell silent, and fit in topics that appeared, grew or went."""
        now, topology = self._clock(), self._world.topology
        ids = {topic.id for topic in topology.values()}
        for kept in list(self._kept.values()):
            left = membership.remove(kept.group, kept.silent(now), topology)
            self._put(membership.refit(left, topology) if left.members else left)
        for commits in self._commits.values():
            for place in [place for place in commits if place.topic_id not in ids]:
                del commits[place]

    # -- commits ------------------------------------------------------------------------------------------

    def commit(self, name: str, commits: Sequence[Commit], member: tuple[str, int] | None) -> list[Place]:
        """Note how far a group has come, as a member or for a group that has none; return what it may not."""
        group = self._get(name)
        if member is None:
            self._require_empty(
                group, "conflict", "commit as one of them, with member_id and generation, or when they have left"
            )
            self._put(group)
        else:
            places = [commit.place for commit in commits]
            with _refusing():
                found = group.members.get(member[0])
                refused = membership.may_commit(found, member[1], group.generation, group.holdings, places)
            if refused:
                return refused
        self._note(name, commits)
        return []

    def reset(self, name: str, commits: Sequence[Commit], *, force: bool) -> None:
        """Have a group go on elsewhere; by force, its members are taken out."""
        group = self._get(name)
        if not force:
            self._require_empty(group, "group_not_empty", "stop them first, or use force")
        self._put(membership.remove(group, list(group.members), self._world.topology))
        self._note(name, commits)

    def delete(self, name: str, *, force: bool) -> None:
        """Remove a group and its commits."""
        group = self.require(name)
        if not force:
            self._require_empty(group, "group_not_empty", "stop them first, or use force")
        self._generation_min = max(self._generation_min, group.generation)
        del self._kept[name]
        self._commits.pop(name, None)

    def _note(self, name: str, commits: Iterable[Commit]) -> None:
        self._commits.setdefault(name, {}).update((commit.place, commit) for commit in commits)

    @staticmethod
    def _require_empty(group: Group, code: str, what_to_do: str) -> None:
        count = len(group.members)
        if count:
            text = f"group '{group.name}' has {count} member{'s' if count != 1 else ''}: {what_to_do}"
            raise Refusal(code, text, **({"members": count} if code == "group_not_empty" else {}))

    # -- what there is ------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """All groups, in the order of their names."""
        return sorted(self._kept)

    def find(self, name: str) -> Group | None:
        """Find a group."""
        kept = self._kept.get(name)
        return None if kept is None else kept.group

    def require(self, name: str) -> Group:
        """Find a group that has to be there."""
        group = self.find(name)
        if group is None:
            raise Refusal("not_found", f"there is no group '{name}'")
        return group

    def commits_of(self, name: str) -> dict[Place, Commit]:
        """Tell how far a group has come, in the order of the places."""
        return dict(sorted(self._commits.get(name, {}).items()))

    def _get(self, name: str) -> Group:
        return self.find(name) or Group(name=name, generation=self._generation_min)

    def _put(self, group: Group, heard_of: str | None = None) -> None:
        kept, now = self._kept.get(group.name), self._clock()
        if kept is None:
            kept = self._kept[group.name] = Kept(group, now)
        kept.become(group, now)
        if heard_of is not None:
            kept.hear(group.members[heard_of], now)


def not_owner(places: Sequence[Place], named: Sequence[object]) -> Refusal:
    """Refuse a commit to partitions that are not the member's."""
    return Refusal("not_owner", _NOT_OWNER.format(len(places)), partitions=list(named))


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn what groups refuse into refusals."""
    try:
        yield
    except GroupError as error:
        details = {"strategy": error.theirs} if isinstance(error, OtherStrategy) else {}
        raise Refusal(error.code, str(error), **details) from error
