"""What requests about consumer groups look like, with the limits that managers have."""

from typing import Annotated

import msgspec
from msgspec import Meta

from flotilla.groups.offsets import ResetKind, ResetTo
from flotilla.groups.state import Strategy
from flotilla.limits import PARTITIONS_MAX, TOPIC_NAME
from flotilla.serving.errors import Refusal
from flotilla.testing.calls import NUMBER_MAX
from flotilla.testing.world import Topic

Name = Annotated[str, Meta(pattern=TOPIC_NAME)]
MemberId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}$(?!\n)")]
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a call takes."""


class PlaceBody(_Body, kw_only=True):
    """A partition."""

    topic: Name
    partition: Annotated[int, Meta(ge=0, lt=PARTITIONS_MAX)]
    topic_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")] | None = None

    def is_of(self, topic: Topic) -> bool:
        """Tell whether it is a partition of this topic."""
        return self.topic_id in {None, topic.id} and self.partition < len(topic.partitions)


class JoinBody(_Body, kw_only=True):
    """A member that wants to take part."""

    topics: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    member_id: MemberId | None = None
    strategy: Strategy = Strategy.STICKY
    timeout_ms: Annotated[int, Meta(ge=1000, le=3_600_000)] = 10_000


class MemberBody(_Body, kw_only=True):
    """A member, and the generation that it was told last."""

    member_id: MemberId
    generation: Number


class HeartbeatBody(MemberBody, kw_only=True):
    """A member that lives."""

    held: Number | None = None


class SyncBody(MemberBody, kw_only=True):
    """A member, and everything that it has now."""

    owned: list[PlaceBody]


class OffsetBody(PlaceBody, kw_only=True):
    """How far a group has come in a partition."""

    offset: Number
    note: Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")] | None = None


class CommitBody(_Body, kw_only=True):
    """How far a member has come; without a member, how far a group has come that has none."""

    offsets: Annotated[list[OffsetBody], Meta(min_length=1, max_length=10_000)]
    member_id: MemberId | None = None
    generation: Number | None = None


class TargetBody(_Body, kw_only=True):
    """Where a group is to go on: exactly one of these."""

    earliest: bool | None = None
    latest: bool | None = None
    timestamp_ms: Number | None = None
    offset: Number | None = None
    shift: Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)] | None = None


class ResetBody(_Body, kw_only=True):
    """Which partitions of a group are to go on where."""

    to: TargetBody
    topics: Annotated[list[Name], Meta(min_length=1)] | None = None
    partitions: Annotated[list[PlaceBody], Meta(min_length=1)] | None = None
    force: bool = False
    dry_run: bool = False


def read_target(body: ResetBody) -> ResetTo:
    """Read where a group is to go on. Raises Refusal."""
    if body.topics is not None and body.partitions is not None:
        raise Refusal("bad_request", "either topics or partitions can be given, not both")
    given = {kind: value for kind in ResetKind if (value := getattr(body.to, kind)) is not None}
    if len(given) != 1 or False in [value for value in given.values() if isinstance(value, bool)]:
        raise Refusal("bad_request", f"exactly one of {', '.join(ResetKind)} has to be given")
    ((kind, value),) = given.items()
    return ResetTo(kind, int(value))
