"""`/v1/groups`: consumer groups.

The writer coordinates membership: it handles join, sync, heartbeat, leave, reset and delete, and other managers forward
them. Any manager handles commits and reads, also without a writer. `group_topics` maps topic names to ids and checks
access.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from flotilla.groups.membership import GroupError, InconsistentStrategy
from flotilla.groups.offsets import Commit, ListedGroup, ResetKind, reset_offset
from flotilla.groups.state import Group, PartitionId
from flotilla.limits import GROUPS_PAGE_DEFAULT, GROUPS_PAGE_MAX, TOPIC_NAME_LENGTH_MAX, TOPIC_NAME_RULE
from flotilla.protocol.errors import Refusal, not_found
from flotilla.protocol.group_responses import (
    CommittedOffset,
    CommittedOffsets,
    GroupPartitionResponse,
    GroupResponse,
    GroupsPage,
    ListedGroupResponse,
    MemberHeartbeat,
    MemberResponse,
    ResetResponse,
    not_owner,
)
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
from flotilla_server.authorization import caller_of

GROUPS = "/v1/groups"
_BY_WRITER = ("join", "sync", "heartbeat", "leave", "reset")
After = Annotated[str, Query(max_length=TOPIC_NAME_LENGTH_MAX, pattern=r"^[A-Za-z0-9._-]*$")]
Limit = Annotated[int, Query(ge=1, le=GROUPS_PAGE_MAX)]
OfTopic = Annotated[str | None, Query(pattern=f"^{TOPIC_NAME_RULE}$")]


def is_for_writer(method: str, path: str) -> bool:
    """Return whether only the writer handles a request below /v1/groups."""
    return method == "DELETE" or (method == "POST" and path.rpartition("/")[2] in _BY_WRITER)


def make_groups(manager: Manager) -> APIRouter:
    """Create the routes."""
    router = APIRouter(prefix=GROUPS, tags=["groups"])
    topics = GroupTopics(manager)
    _add_members(router, manager, topics)
    _add_offsets(router, manager, topics)
    _add_administration(router, manager, topics)
    return router


def _add_members(router: APIRouter, manager: Manager, topics: GroupTopics) -> None:
    @router.post("/{name}/join")
    async def join(name: GroupName, body: JoinBody, request: Request) -> dict[str, Any]:
        """Join a group. The response has the assigned partitions and the heartbeat interval.

        Joining with the id of a current member replaces that member: its requests are rejected from now on, and its
        partitions stay with the id. Without `member_id`, the server generates one.
        """
        await _require_access_to_members(manager, topics, request, name)
        await topics.require(request, body.topics)
        with _refusing(topics):
            answer = await manager.writer.groups.join(name, body.member_id, body.topics, body.timeout_ms, body.strategy)
        return topics.describe(answer).to_dict()

    @router.post("/{name}/sync")
    async def sync(name: GroupName, body: SyncBody, request: Request) -> dict[str, Any]:
        """Report owned partitions and get the assignment. Partitions that are not in `owned` are released.

        Stop work at once on partitions that are in neither `assigned` nor `revoked`. The member still owns partitions
        in `revoked`: finish the work on them, commit, and sync without them.
        """
        await _require_access_to_members(manager, topics, request, name)
        owned = topics.to_ids(await topics.find(request, {one.topic for one in body.owned}), body.owned)
        with _refusing(topics):
            answer = await manager.writer.groups.sync(name, body.member_id, body.generation, owned)
        return topics.describe(answer).to_dict()

    @router.post("/{name}/heartbeat")
    async def heartbeat(name: GroupName, body: HeartbeatBody, request: Request) -> dict[str, Any]:
        """Send a heartbeat. Repeat it at least every `heartbeat_ms`, and sync if `sync` is true in the response."""
        await _require_access_to_members(manager, topics, request, name)
        with _refusing(topics):
            beaten = await manager.writer.groups.heartbeat(name, body.member_id, body.generation, body.held)
        return MemberHeartbeat.of(beaten).to_dict()

    @router.post("/{name}/leave")
    async def leave(name: GroupName, body: MemberBody, request: Request) -> dict[str, str]:
        """Leave a group and release all partitions. Commit first."""
        await _require_access_to_members(manager, topics, request, name)
        with _refusing(topics):
            await manager.writer.groups.leave(name, body.member_id, body.generation)
        return {"status": "ok"}


def _add_offsets(router: APIRouter, manager: Manager, topics: GroupTopics) -> None:
    store = manager.store

    @router.post("/{name}/commit")
    async def commit(name: GroupName, body: CommitBody, request: Request) -> dict[str, str]:
        """Commit the next offset to read of each partition, atomically.

        With `member_id` and `generation`, the member must own the partitions. Without them, the group must have no
        members. An offset may be lower than the committed one.
        """
        with _refusing(topics):
            try:
                await _commit(manager, topics, request, name, body)
            except TopicMissing:  # it may have been deleted and created again
                await manager.metadata.refresh()
                await _commit(manager, topics, request, name, body)
        return {"status": "ok"}

    @router.get("/{name}/offsets")
    async def offsets(name: GroupName, request: Request, topic: OfTopic = None) -> dict[str, Any]:
        """List committed offsets of a group, in one topic or in all."""
        wanted = None if topic is None else (await topics.require(request, [topic]))[topic].id
        commits = await manager.database.call(store.committed_offsets, name, wanted)
        if commits is None:
            raise not_found("group", f"group '{name}' does not exist")
        await topics.ensure_cached(one.tp.topic_id for one in commits)
        topics.require_access(request, (one.tp.topic_id for one in commits))
        named = topics.named(one.tp for one in commits)
        found = [CommittedOffset.of(named[one.tp], one) for one in commits if one.tp in named]
        return CommittedOffsets(offsets=found).to_dict()


def _add_administration(router: APIRouter, manager: Manager, topics: GroupTopics) -> None:
    @router.get("")
    async def list_groups(request: Request, after: After = "", limit: Limit = GROUPS_PAGE_DEFAULT) -> dict[str, Any]:
        """List groups by name. Pass `next` of the response as `after` to get the next page.

        Groups with a topic that the caller may not consume are left out.
        """
        listed, further = await _list(manager, topics, request, after, limit)
        groups = [ListedGroupResponse.of(one.group, topics.names_of(one)) for one in listed]
        return GroupsPage(groups=groups, next=further).to_dict()

    @router.get("/{name}")
    async def describe_group(name: GroupName, request: Request) -> dict[str, Any]:
        """Describe a group: members, assignment, committed offsets and lag."""
        group, commits = await _load(manager, topics, request, name)
        committed = {one.tp: one for one in commits}
        partitions = topics.partitions_of(group, committed)
        named = topics.named(partitions)
        bounds = await manager.partition_offsets.fetch_available(topics.by_id(partitions), partitions)
        return GroupResponse.of(
            group,
            (
                MemberResponse.of(member, topics.list_named(sorted(group.owned_by(member.id))))
                for member in group.members.values()
            ),
            (
                GroupPartitionResponse.of(one, group.owner_of(tp), committed.get(tp), bounds.get(tp))
                for tp, one in named.items()
            ),
        ).to_dict()

    @router.post("/{name}/reset")
    async def reset(name: GroupName, body: ResetBody, request: Request) -> dict[str, Any]:
        """Reset committed offsets of a group.

        Targets are `earliest`, `latest`, a timestamp, an offset, or a shift of the committed offsets. An offset out of
        range is set to the first or the next offset. A group with members is rejected, unless `force` removes them:
        they join again and start at the new offsets. `dry_run` returns the result without changing it.
        """
        group, commits = await _load(manager, topics, request, name, may_miss=bool(body.topics or body.partitions))
        committed = {one.tp: one for one in commits}
        partitions = await _partitions_to_reset(topics, request, body, group, committed)
        named = topics.named(partitions)
        to = body.to.reset_to
        query = f"timestamp_ms={to.value}" if to.kind is ResetKind.TIMESTAMP else "offset=latest"
        found = await manager.partition_offsets.fetch_all(topics.by_id(partitions), partitions, query)
        old = {tp: committed[tp].offset if tp in committed else None for tp in partitions}
        new = {tp: reset_offset(to, old[tp], found[tp].bounds, found[tp].offset) for tp in partitions}
        if not body.dry_run:
            with _refusing(topics):
                changes = [Commit(tp=tp, offset=offset) for tp, offset in new.items()]
                await manager.writer.groups.reset(name, changes, force=body.force)
        return ResetResponse.of(named, old, new, dry_run=body.dry_run).to_dict()

    @router.delete("/{name}")
    async def delete_group(
        name: GroupName, request: Request, force: Annotated[bool, Query()] = False
    ) -> dict[str, str]:
        """Delete a group and its committed offsets. A group with members is rejected, unless `force` removes them."""
        await _load(manager, topics, request, name)
        with _refusing(topics):
            await manager.writer.groups.delete(name, force=force)
        return {"status": "ok"}


async def _list(
    manager: Manager, topics: GroupTopics, request: Request, after: str, limit: int
) -> tuple[list[ListedGroup], str | None]:
    """List the groups that the caller may see, and the `after` of the next page. Other groups do not show in it."""
    page = limit if topics.can_access_all(request) else GROUPS_PAGE_MAX
    seen: list[ListedGroup] = []
    while True:
        listed = await manager.database.call(manager.store.list_groups, after, page)
        await topics.ensure_cached(id_ for one in listed for id_ in one.committed)
        seen += [one for one in listed if topics.can_access(request, topics.names_of(one))]
        is_last = len(listed) < page
        if is_last or len(seen) >= limit:
            is_more = len(seen) > limit or not is_last
            return seen[:limit], seen[limit - 1].group.name if is_more else None
        after = listed[-1].group.name


async def _require_access_to_members(manager: Manager, topics: GroupTopics, request: Request, name: str) -> None:
    """Require access to the topics of all members: a caller can replace any member."""
    if not caller_of(request.scope).is_unrestricted:
        group = manager.writer.groups.known(name) or await manager.database.call(manager.store.load_group, name)
        topics.require_access(request, group=group)


async def _commit(manager: Manager, topics: GroupTopics, request: Request, name: str, body: CommitBody) -> None:
    """Commit once. Raises Refusal, GroupError, MetadataError."""
    found = await topics.require_partitions(request, body.offsets)
    commits = [Commit(tp=tp, offset=one.offset, note=one.note) for tp, one in zip(found, body.offsets, strict=True)]
    try:
        await manager.database.call(manager.store.commit_offsets, name, commits, body.member)
    except GroupHasMembers as error:
        text = f"{error}: commit with member_id and generation of a member, or after all members left"
        raise Refusal("conflict", text) from error


async def _load(
    manager: Manager, topics: GroupTopics, request: Request, name: str, *, may_miss: bool = False
) -> tuple[Group, list[Commit]]:
    """Load a group and its commits for a caller with access to all its topics. Raises Refusal, MetadataError."""
    group = await manager.database.call(manager.store.load_group, name)
    commits = await manager.database.call(manager.store.committed_offsets, name) or []
    if group is None and not may_miss:
        raise not_found("group", f"group '{name}' does not exist")
    group = group or Group(name=name)
    ids = {one.tp.topic_id for one in commits}
    await topics.ensure_cached({*ids, *(tp.topic_id for tp in group.holdings)})
    topics.require_access(request, ids, group)
    return group, commits


async def _partitions_to_reset(
    topics: GroupTopics, request: Request, body: ResetBody, group: Group, committed: Iterable[PartitionId]
) -> list[PartitionId]:
    if body.partitions is not None:
        return sorted(set(await topics.require_partitions(request, body.partitions)))
    if body.topics is None:
        return topics.partitions_of(group, committed)
    found = await topics.require(request, body.topics)
    return sorted({PartitionId(topic.id, at) for topic in found.values() for at in range(len(topic.partitions))})


@contextmanager
def _refusing(topics: GroupTopics) -> Iterator[None]:
    """Translate errors of groups into error responses."""
    try:
        yield
    except GroupError as error:
        details = {"strategy": error.current} if isinstance(error, InconsistentStrategy) else {}
        raise Refusal(error.code, str(error), **details) from error
    except NotOwner as error:
        raise not_owner(error.member_id, error.generation, topics.list_named(error.partitions)) from error
    except GroupHasMembers as error:
        raise Refusal(
            "group_not_empty", f"{error}: stop them, or use force to remove them", members=error.count
        ) from error
    except GroupMissing as error:
        raise not_found("group", str(error)) from error
    except TooManyGroups as error:
        raise Refusal("conflict", str(error)) from error
    except TopicMissing as error:
        raise Refusal("unknown_partition", "a topic was deleted during the request") from error
