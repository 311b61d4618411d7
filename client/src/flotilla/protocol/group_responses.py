"""Consumer groups in responses: their fields, in the order in which they are sent.

Managers and the fake of `flotilla.testing` share them, so that both respond alike. Groups hold topic ids, responses
have names: a caller passes partitions as `NamedPartition`.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from flotilla.groups.offsets import Commit, OffsetBounds, lag
from flotilla.groups.responses import AssignmentResponse, HeartbeatResponse, not_owner_message, state_of
from flotilla.groups.state import Group, Member, PartitionId
from flotilla.protocol.errors import Refusal
from flotilla.protocol.responses import Response


class NamedPartition(Response, kw_only=True):
    """A partition, by the name of its topic."""

    topic: str
    partition: int


class MemberAssignment(Response, kw_only=True):
    """Response to a join or a sync."""

    member_id: str
    generation: int
    timeout_ms: int
    heartbeat_ms: int
    assigned: list[NamedPartition]
    revoked: list[NamedPartition]
    pending: int
    state: str
    topic_ids: dict[str, str]  # by name

    @classmethod
    def of(
        cls,
        response: AssignmentResponse,
        assigned: list[NamedPartition],
        revoked: list[NamedPartition],
        topic_ids: dict[str, str],
    ) -> Self:
        """Describe an assignment."""
        return cls(
            member_id=response.member.id,
            generation=response.assignment.generation,
            timeout_ms=response.member.timeout_ms,
            heartbeat_ms=response.heartbeat_ms,
            assigned=assigned,
            revoked=revoked,
            pending=response.assignment.pending,
            state=response.state,
            topic_ids=topic_ids,
        )


class MemberHeartbeat(Response, kw_only=True):
    """Response to a heartbeat."""

    generation: int
    state: str
    heartbeat_ms: int
    sync: bool

    @classmethod
    def of(cls, response: HeartbeatResponse) -> Self:
        """Describe the response of the coordinator."""
        return cls(
            generation=response.generation,
            state=response.state,
            heartbeat_ms=response.heartbeat_ms,
            sync=response.should_sync,
        )


class CommittedOffset(NamedPartition, kw_only=True):
    """A committed offset."""

    offset: int
    note: str | None
    committed_ms: int

    @classmethod
    def of(cls, named: NamedPartition, commit: Commit) -> Self:
        """Describe a commit."""
        return cls(
            topic=named.topic,
            partition=named.partition,
            offset=commit.offset,
            note=commit.note,
            committed_ms=commit.committed_ms,
        )


class CommittedOffsets(Response, kw_only=True):
    """Committed offsets of a group."""

    offsets: list[CommittedOffset]


class ResetPartition(NamedPartition, kw_only=True):
    """The committed offset of a partition before and after a reset."""

    old_offset: int | None
    new_offset: int


class ResetResponse(Response, kw_only=True):
    """Result of an offset reset."""

    dry_run: bool
    partitions: list[ResetPartition]

    @classmethod
    def of(
        cls,
        named: Mapping[PartitionId, NamedPartition],
        old: Mapping[PartitionId, int | None],
        new: Mapping[PartitionId, int],
        *,
        dry_run: bool,
    ) -> Self:
        """Describe a reset of partitions, in the order of their names."""
        return cls(
            dry_run=dry_run,
            partitions=[
                ResetPartition(topic=one.topic, partition=one.partition, old_offset=old[tp], new_offset=new[tp])
                for tp, one in named.items()
            ],
        )


class ListedGroupResponse(Response, kw_only=True):
    """A group in a list."""

    name: str
    state: str
    strategy: str | None
    generation: int
    members: int
    topics: list[str]

    @classmethod
    def of(cls, group: Group, topics: list[str]) -> Self:
        """Describe a group. `topics` are those of its members and of its commits."""
        return cls(
            name=group.name,
            state=state_of(group),
            strategy=group.strategy,
            generation=group.generation,
            members=len(group.members),
            topics=topics,
        )


class GroupsPage(Response, kw_only=True):
    """A page of groups, and the `after` of the next page."""

    groups: list[ListedGroupResponse]
    next: str | None


class MemberResponse(Response, kw_only=True):
    """A member of a group."""

    member_id: str
    topics: list[str]
    timeout_ms: int
    generation: int
    assigned: list[NamedPartition]

    @classmethod
    def of(cls, member: Member, assigned: list[NamedPartition]) -> Self:
        """Describe a member."""
        return cls(
            member_id=member.id,
            topics=list(member.topics),
            timeout_ms=member.timeout_ms,
            generation=member.synced,
            assigned=assigned,
        )


class GroupPartitionResponse(NamedPartition, kw_only=True):
    """A partition of a group. Offsets and lag are None while the leader is unavailable."""

    owner: str | None
    committed: int | None
    note: str | None
    first_offset: int | None
    next_offset: int | None
    lag: int | None

    @classmethod
    def of(cls, named: NamedPartition, owner: str | None, commit: Commit | None, bounds: OffsetBounds | None) -> Self:
        """Describe a partition."""
        committed = None if commit is None else commit.offset
        return cls(
            topic=named.topic,
            partition=named.partition,
            owner=owner,
            committed=committed,
            note=None if commit is None else commit.note,
            first_offset=None if bounds is None else bounds.first,
            next_offset=None if bounds is None else bounds.next,
            lag=None if bounds is None else lag(committed, bounds),
        )


class GroupResponse(Response, kw_only=True):
    """A group with its members and partitions."""

    name: str
    state: str
    strategy: str | None
    generation: int
    members: list[MemberResponse]
    partitions: list[GroupPartitionResponse]

    @classmethod
    def of(cls, group: Group, members: Iterable[MemberResponse], partitions: Iterable[GroupPartitionResponse]) -> Self:
        """Describe a group."""
        return cls(
            name=group.name,
            state=state_of(group),
            strategy=group.strategy,
            generation=group.generation,
            members=sorted(members, key=lambda member: member.member_id),
            partitions=list(partitions),
        )


def not_owner(member_id: str, generation: int, partitions: list[NamedPartition]) -> Refusal:
    """Return the refusal of a commit for partitions that the member does not own."""
    text = not_owner_message(member_id, generation, [(one.topic, one.partition) for one in partitions])
    return Refusal("not_owner", text, partitions=[one.to_dict() for one in partitions])
