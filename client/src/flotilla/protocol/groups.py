"""Request bodies of the v1 API about consumer groups, with their limits.

Managers and the fake of `flotilla.testing` decode these structs.
"""

from typing import Annotated

from msgspec import Meta

from flotilla.groups.offsets import ResetKind, ResetTo
from flotilla.groups.state import Strategy
from flotilla.limits import (
    COMMIT_OFFSETS_MAX,
    GROUP_PARTITIONS_MAX,
    GROUP_TOPICS_MAX,
    INT64_MAX,
    NOTE_LENGTH_MAX,
    SESSION_MS_DEFAULT,
    SESSION_MS_MAX,
    SESSION_MS_MIN,
)
from flotilla.protocol.topics import STRICT, Body, Offset, PartitionIndex, TopicName

GroupName = TopicName
MemberId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$(?!\n)")]
Generation = Annotated[int, Meta(ge=0, le=INT64_MAX)]
OnlyTrue = Annotated[bool, Meta(extra=STRICT, extra_json_schema={"const": True})]


class PartitionBody(Body, frozen=True, kw_only=True):
    """A partition. With `topic_id`, a topic that was created again under the same name does not match."""

    topic: TopicName
    partition: PartitionIndex
    topic_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")] | None = None

    def is_of(self, topic_id: str, partitions: int) -> bool:
        """Return whether a topic with this id and number of partitions has the partition."""
        return self.topic_id in {None, topic_id} and self.partition < partitions


class JoinBody(Body, frozen=True, kw_only=True):
    """A member that joins, or joins again under its id."""

    topics: Annotated[list[TopicName], Meta(min_length=1, max_length=GROUP_TOPICS_MAX)]
    member_id: MemberId | None = None
    strategy: Strategy = Strategy.STICKY
    timeout_ms: Annotated[int, Meta(ge=SESSION_MS_MIN, le=SESSION_MS_MAX)] = SESSION_MS_DEFAULT


class MemberBody(Body, frozen=True, kw_only=True):
    """A member and its generation."""

    member_id: MemberId
    generation: Generation


class HeartbeatBody(MemberBody, frozen=True, kw_only=True):
    """A heartbeat of a member."""

    held: (
        Annotated[int, Meta(ge=0, le=GROUP_PARTITIONS_MAX, description="Number of partitions of the member, optional")]
        | None
    ) = None


class SyncBody(MemberBody, frozen=True, kw_only=True):
    """A member and all partitions that it has."""

    owned: Annotated[list[PartitionBody], Meta(max_length=GROUP_PARTITIONS_MAX)]


class OffsetBody(PartitionBody, frozen=True, kw_only=True):
    """A committed offset: the next offset to read in a partition, with an optional note."""

    offset: Offset
    note: Annotated[str, Meta(max_length=NOTE_LENGTH_MAX, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")] | None = None


class CommitBody(Body, frozen=True, kw_only=True):
    """Offsets to commit, by a member; without a member, for a group that has none."""

    offsets: Annotated[list[OffsetBody], Meta(min_length=1, max_length=COMMIT_OFFSETS_MAX)]
    member_id: MemberId | None = None
    generation: Generation | None = None

    def __post_init__(self) -> None:
        if (self.member_id is None) != (self.generation is None):
            raise ValueError("member_id and generation belong together: send both, or none for a group without members")

    @property
    def member(self) -> tuple[str, int] | None:
        """The member that commits, and its generation."""
        if self.member_id is None or self.generation is None:
            return None
        return self.member_id, self.generation


class TargetBody(Body, frozen=True, kw_only=True):
    """Where a group continues: exactly one of these."""

    earliest: OnlyTrue | None = None
    latest: OnlyTrue | None = None
    timestamp_ms: Offset | None = None
    offset: Offset | None = None
    shift: Annotated[int, Meta(ge=-INT64_MAX, le=INT64_MAX)] | None = None

    def __post_init__(self) -> None:
        given = {kind: value for kind in ResetKind if (value := getattr(self, kind)) is not None}
        if len(given) != 1 or (given.keys() & {"earliest", "latest"} and not all(given.values())):
            raise ValueError(f"exactly one of {', '.join(ResetKind)} must be given")

    @property
    def reset_to(self) -> ResetTo:
        """The target of the reset."""
        ((kind, value),) = ((kind, value) for kind in ResetKind if (value := getattr(self, kind)) is not None)
        return ResetTo(kind, int(value))


class ResetBody(Body, frozen=True, kw_only=True):
    """A reset of committed offsets. Without topics and partitions: all partitions of the group."""

    to: TargetBody
    topics: Annotated[list[TopicName], Meta(min_length=1, max_length=GROUP_TOPICS_MAX)] | None = None
    partitions: Annotated[list[PartitionBody], Meta(min_length=1, max_length=COMMIT_OFFSETS_MAX)] | None = None
    force: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.topics is not None and self.partitions is not None:
            raise ValueError("topics and partitions cannot be given both")
