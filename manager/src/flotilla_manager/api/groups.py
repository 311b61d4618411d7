"""Consumer groups: several programs share the partitions of topics, each partition with one of them at a time.

Who is in a group and who has what is the writer's to say: join, sync, heartbeat, leave, reset and delete go there, from
whichever manager they arrive at. Commits, and questions, are answered by any manager, with or without a writer.

Topics are turned from names into what they are, and back, in `group_topics`; who may not use a topic is stopped there.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from flotilla.groups.membership import GroupError, OtherStrategy
from flotilla.groups.offsets import Bounds, Commit, Listed, ResetKind, lag, reset_offset
from flotilla.groups.state import Group, Place
from flotilla.groups.telling import state_of
from flotilla.limits import TOPIC_NAME_RULE
from flotilla.serving.errors import Refusal
from flotilla.serving.gate import caller_of
from flotilla_manager.api.group_shapes import (
    CommitBody,
    GroupName,
    HeartbeatBody,
    JoinBody,
    MemberBody,
    ResetBody,
    SyncBody,
)
from flotilla_manager.api.group_topics import GroupTopics
from flotilla_manager.manager import Manager
from flotilla_manager.metadata.errors import GroupHasMembers, GroupMissing, NotOwner, TooManyGroups, TopicMissing

GROUPS = "/v1/groups"
_BY_WRITER = ("join", "sync", "heartbeat", "leave", "reset")
_LIMIT_MAX = 1000
After = Annotated[str, Query(max_length=200, pattern=r"^[A-Za-z0-9._-]*$")]
Limit = Annotated[int, Query(ge=1, le=_LIMIT_MAX)]
OfTopic = Annotated[str | None, Query(pattern=f"^{TOPIC_NAME_RULE}$")]


def is_for_writer(method: str, path: str) -> bool:
    """Tell whether a request below /v1/groups is answered by the writer alone."""
    return method == "DELETE" or (method == "POST" and path.rpartition("/")[2] in _BY_WRITER)


def make_groups(manager: Manager) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix=GROUPS, tags=["groups"])
    topics = GroupTopics(manager)
    _add_members(router, manager, topics)
    _add_offsets(router, manager, topics)
    _add_care(router, manager, topics)
    return router


def _add_members(router: APIRouter, manager: Manager, topics: GroupTopics) -> None:
    @router.post("/{name}/join")
    async def join(name: GroupName, body: JoinBody, request: Request) -> dict[str, Any]:
        """Take part in a group. The answer says what to work on, and how often to send a heartbeat.

        To join under an id that is there begins a new life of that member: the old one is refused from now on, and what
        it had stays with the id. Without an id, one is drawn.
        """
        await _see_members(manager, topics, request, name)
        await topics.require(request, body.topics)
        with _refusing(topics):
            answer = await manager.groups.join(name, body.member_id, body.topics, body.timeout_ms, body.strategy)
        return topics.describe(answer)

    @router.post("/{name}/sync")
    async def sync(name: GroupName, body: SyncBody, request: Request) -> dict[str, Any]:
        """Say what one has, and hear what one should have. What is not in `owned` is let go of.

        Stop work at once on whatever is not in `assigned`. What is in `revoked` is still one's own, to finish and to
        commit; then sync without it.
        """
        await _see_members(manager, topics, request, name)
        owned = topics.places(await topics.find(request, {one.topic for one in body.owned}), body.owned)
        with _refusing(topics):
            answer = await manager.groups.sync(name, body.member_id, body.generation, owned)
        return topics.describe(answer)

    @router.post("/{name}/heartbeat")
    async def heartbeat(name: GroupName, body: HeartbeatBody, request: Request) -> dict[str, Any]:
        """Show that one lives, at least every `heartbeat_ms`. If `sync` is true, sync."""
        await _see_members(manager, topics, request, name)
        with _refusing(topics):
            beaten = await manager.groups.heartbeat(name, body.member_id, body.generation, body.held)
        return {
            "generation": beaten.generation,
            "state": beaten.state,
            "heartbeat_ms": beaten.heartbeat_ms,
            "sync": beaten.should_sync,
        }

    @router.post("/{name}/leave")
    async def leave(name: GroupName, body: MemberBody, request: Request) -> dict[str, str]:
        """Give everything up, at once. Commit first."""
        await _see_members(manager, topics, request, name)
        with _refusing(topics):
            await manager.groups.leave(name, body.member_id, body.generation)
        return {"status": "ok"}


def _add_offsets(router: APIRouter, manager: Manager, topics: GroupTopics) -> None:
    store = manager.store

    @router.post("/{name}/commit")
    async def commit(name: GroupName, body: CommitBody, request: Request) -> dict[str, str]:
        """Say how far one has come: the next offset to read, of each partition. All of it is noted, or nothing.

        A member commits to what it owns. Without a member, this is for programs that share their work out by
        themselves, and for groups that have no members. Commits may go back.
        """
        with _refusing(topics):
            try:
                await _commit(manager, topics, request, name, body)
            except TopicMissing:  # it may have been made again, which is not known here yet
                await manager.view.refresh()
                await _commit(manager, topics, request, name, body)
        return {"status": "ok"}

    @router.get("/{name}/offsets")
    async def offsets(name: GroupName, request: Request, topic: OfTopic = None) -> dict[str, Any]:
        """How far a group has come, in one topic or in all."""
        wanted = None if topic is None else (await topics.require(request, [topic]))[topic].id
        commits = await manager.database.call(store.commits_of, name, wanted)
        if commits is None:
            raise Refusal("not_found", f"there is no group '{name}'")
        await topics.know(one.place.topic_id for one in commits)
        topics.see(request, (one.place.topic_id for one in commits))
        return {
            "offsets": [
                {**named, "offset": one.offset, "note": one.note, "committed_ms": one.committed_ms}
                for one in commits
                if (named := topics.named(one.place)) is not None
            ]
        }


def _add_care(router: APIRouter, manager: Manager, topics: GroupTopics) -> None:
    @router.get("")
    async def list_groups(request: Request, after: After = "", limit: Limit = 100) -> dict[str, Any]:
        """Groups in the order of their names; `next` is the `after` of the next page, if there is one.

        Only those are told all of whose topics the caller may consume.
        """
        listed, further = await _list(manager, topics, request, after, limit)
        return {
            "groups": [
                {
                    "name": one.group.name,
                    "state": state_of(one.group),
                    "strategy": one.group.strategy,
                    "generation": one.group.generation,
                    "members": len(one.group.members),
                    "topics": topics.names_of(one),
                }
                for one in listed
            ],
            "next": further,
        }

    @router.get("/{name}")
    async def describe_group(name: GroupName, request: Request) -> dict[str, Any]:
        """Everything about a group: who is in it, who has what, how far it has come, and what is left to read."""
        group, commits = await _see(manager, topics, request, name)
        committed = {one.place: one for one in commits}
        places = topics.concerned(group, committed)
        bounds = await manager.asking.some_of(topics.by_id(places), places)
        return {
            "name": name,
            "state": state_of(group),
            "strategy": group.strategy,
            "generation": group.generation,
            "members": [
                {
                    "member_id": member.id,
                    "topics": list(member.topics),
                    "timeout_ms": member.timeout_ms,
                    "generation": member.synced,
                    "assigned": topics.all_named(sorted(group.owned_by(member.id))),
                }
                for _, member in sorted(group.members.items())
            ],
            "partitions": [
                _describe(topics, group, place, committed.get(place), bounds.get(place)) for place in places
            ],
        }

    @router.post("/{name}/reset")
    async def reset(name: GroupName, body: ResetBody, request: Request) -> dict[str, Any]:
        """Have a group go on elsewhere: `earliest`, `latest`, at a time, at an offset, or so many records further.

        What lies outside of a partition is brought to its nearest end. A group with members refuses, unless `force`:
        then they are taken out, join again, and begin where they are told. `dry_run` only says what would become of it.
        """
        group, commits = await _see(manager, topics, request, name, may_miss=bool(body.topics or body.partitions))
        committed = {one.place: one for one in commits}
        places = await _places_to_reset(topics, request, body, group, committed)
        to = body.to.to
        query = f"timestamp_ms={to.value}" if to.kind is ResetKind.TIMESTAMP else "offset=latest"
        found = await manager.asking.all_of(topics.by_id(places), places, query)
        old = {place: committed[place].offset if place in committed else None for place in places}
        new = {place: reset_offset(to, old[place], found[place].bounds, found[place].offset) for place in places}
        if not body.dry_run:
            with _refusing(topics):
                changes = [Commit(place=place, offset=offset) for place, offset in new.items()]
                await manager.groups.reset(name, changes, force=body.force)
        told = [{**(topics.named(at) or {}), "old_offset": old[at], "new_offset": new[at]} for at in places]
        return {"dry_run": body.dry_run, "partitions": told}

    @router.delete("/{name}")
    async def delete_group(
        name: GroupName, request: Request, force: Annotated[bool, Query()] = False
    ) -> dict[str, str]:
        """Remove a group and its commits. One with members refuses, unless `force`."""
        await _see(manager, topics, request, name)
        with _refusing(topics):
            await manager.groups.delete(name, force=force)
        return {"status": "ok"}


async def _list(
    manager: Manager, topics: GroupTopics, request: Request, after: str, limit: int
) -> tuple[list[Listed], str | None]:
    """List groups that somebody may see, and tell where to go on. Others leave no trace, also not as `next`."""
    page = limit if topics.may_see_all(request) else _LIMIT_MAX
    seen: list[Listed] = []
    while True:
        listed = await manager.database.call(manager.store.list_groups, after, page)
        await topics.know(id_ for one in listed for id_ in one.committed)
        seen += [one for one in listed if topics.may_see(request, topics.names_of(one))]
        is_last = len(listed) < page
        if is_last or len(seen) >= limit:
            is_more = len(seen) > limit or not is_last
            return seen[:limit], seen[limit - 1].group.name if is_more else None
        after = listed[-1].group.name


async def _see_members(manager: Manager, topics: GroupTopics, request: Request, name: str) -> None:
    """Let somebody act in a group if they may consume what its members do: who acts can take over from another."""
    if not caller_of(request.scope).may_all:
        group = manager.groups.known(name) or await manager.database.call(manager.store.load_group, name)
        topics.see(request, group=group)


async def _commit(manager: Manager, topics: GroupTopics, request: Request, name: str, body: CommitBody) -> None:
    """Commit once. Raises Refusal, GroupError, MetadataError."""
    found = await topics.require_places(request, body.offsets)
    commits = [
        Commit(place=place, offset=one.offset, note=one.note) for place, one in zip(found, body.offsets, strict=True)
    ]
    try:
        await manager.database.call(manager.store.commit, name, commits, body.member)
    except GroupHasMembers as error:
        text = f"{error}: commit as one of them, with member_id and generation, or when they have left"
        raise Refusal("conflict", text) from error


async def _see(
    manager: Manager, topics: GroupTopics, request: Request, name: str, *, may_miss: bool = False
) -> tuple[Group, list[Commit]]:
    """Read a group and its commits, for somebody who may see all of its topics. Raises Refusal, MetadataError."""
    group = await manager.database.call(manager.store.load_group, name)
    commits = await manager.database.call(manager.store.commits_of, name) or []
    if group is None and not may_miss:
        raise Refusal("not_found", f"there is no group '{name}'")
    group = group or Group(name=name)
    ids = {one.place.topic_id for one in commits}
    await topics.know({*ids, *(place.topic_id for place in group.holdings)})
    topics.see(request, ids, group)
    return group, commits


async def _places_to_reset(
    topics: GroupTopics, request: Request, body: ResetBody, group: Group, committed: Iterable[Place]
) -> list[Place]:
    if body.partitions is not None:
        return sorted(set(await topics.require_places(request, body.partitions)))
    if body.topics is None:
        return topics.concerned(group, committed)
    found = await topics.require(request, body.topics)
    return sorted({Place(topic.id, at) for topic in found.values() for at in range(len(topic.partitions))})


def _describe(
    topics: GroupTopics, group: Group, place: Place, commit: Commit | None, bounds: Bounds | None
) -> dict[str, Any]:
    holding = group.holdings.get(place)
    offset = None if commit is None else commit.offset
    return {
        **(topics.named(place) or {}),
        "owner": None if holding is None else holding.owner,
        "committed": offset,
        "note": None if commit is None else commit.note,
        "first_offset": None if bounds is None else bounds.first,
        "next_offset": None if bounds is None else bounds.next,
        "lag": None if bounds is None else lag(offset, bounds),
    }


@contextmanager
def _refusing(topics: GroupTopics) -> Iterator[None]:
    """Turn what groups refuse into refusals."""
    try:
        yield
    except GroupError as error:
        details = {"strategy": error.theirs} if isinstance(error, OtherStrategy) else {}
        raise Refusal(error.code, str(error), **details) from error
    except NotOwner as error:
        raise Refusal("not_owner", str(error), partitions=topics.all_named(error.places)) from error
    except GroupHasMembers as error:
        raise Refusal("group_not_empty", f"{error}: stop them first, or use force", members=error.count) from error
    except GroupMissing as error:
        raise Refusal("not_found", str(error)) from error
    except TooManyGroups as error:
        raise Refusal("conflict", str(error)) from error
    except TopicMissing as error:
        raise Refusal("unknown_partition", "a topic was removed just now") from error
