"""What requests about consumer groups look like: every field with its limits, so that nothing else gets any further."""

from typing import Annotated, Literal, Self

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from flotilla.groups.offsets import ResetKind, ResetTo
from flotilla.groups.state import Strategy
from flotilla.limits import PARTITIONS_MAX, TOPIC_NAME_RULE
from flotilla_manager.metadata.tables import NOTE_LENGTH
from flotilla_manager.model import Topic

_NUMBER_MAX = (1 << 63) - 1
_TOPICS_MAX = 100
_OFFSETS_MAX = 10_000
_PLACES_MAX = 20_000
_TEXT = r"^[^\x00-\x1f\x7f]*$"  # no database has to store what cannot be seen
_PLACE: JsonDict = {"topic": "orders", "partition": 0}
_MEMBER: JsonDict = {"member_id": "worker-1", "generation": 3}

GroupName = Annotated[str, Path(pattern=f"^{TOPIC_NAME_RULE}$")]
TopicName = Annotated[str, Field(pattern=f"^{TOPIC_NAME_RULE}$")]
MemberId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Generation = Annotated[int, Field(ge=0, le=_NUMBER_MAX)]
Offset = Annotated[int, Field(ge=0, le=_NUMBER_MAX)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PlaceBody(_Body):
    """A partition. With the topic's id, one that was made again under its name is not mistaken for it."""

    topic: TopicName
    partition: Annotated[int, Field(ge=0, lt=PARTITIONS_MAX)]
    topic_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None

    def is_of(self, topic: Topic) -> bool:
        """Tell whether it is a partition of this topic."""
        return self.topic_id in {None, topic.id} and self.partition < len(topic.partitions)


class JoinBody(_Body):
    """A member that wants to take part, or begins a new life under its old id."""

    model_config = ConfigDict(json_schema_extra={"example": {"topics": ["orders"], "member_id": "worker-1"}})

    topics: Annotated[list[TopicName], Field(min_length=1, max_length=_TOPICS_MAX)]
    member_id: MemberId | None = None
    strategy: Strategy = Strategy.STICKY
    timeout_ms: Annotated[int, Field(ge=1000, le=3_600_000)] = 10_000


class MemberBody(_Body):
    """A member, and the generation that it was told last."""

    model_config = ConfigDict(json_schema_extra={"example": _MEMBER})

    member_id: MemberId
    generation: Generation


class HeartbeatBody(MemberBody):
    """A member that lives."""

    held: (
        Annotated[int, Field(ge=0, le=_PLACES_MAX, description="How many partitions it has, if it says so")] | None
    ) = None


class SyncBody(MemberBody):
    """A member, and everything that it has now."""

    model_config = ConfigDict(json_schema_extra={"example": {**_MEMBER, "owned": [_PLACE]}})

    owned: Annotated[list[PlaceBody], Field(max_length=_PLACES_MAX)]


class OffsetBody(PlaceBody):
    """How far a group has come in a partition: the next offset to read, and a note of one's own."""

    offset: Offset
    note: Annotated[str, Field(max_length=NOTE_LENGTH, pattern=_TEXT)] | None = None


class CommitBody(_Body):
    """How far a member has come; without a member, how far a group has come that has none."""

    model_config = ConfigDict(json_schema_extra={"example": {**_MEMBER, "offsets": [{**_PLACE, "offset": 42}]}})

    offsets: Annotated[list[OffsetBody], Field(min_length=1, max_length=_OFFSETS_MAX)]
    member_id: MemberId | None = None
    generation: Generation | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.member_id is None) != (self.generation is None):
            raise ValueError("member_id and generation belong together: send both, or none for a group without members")
        return self

    @property
    def member(self) -> tuple[str, int] | None:
        """Who commits, and what it knows."""
        if self.member_id is None or self.generation is None:
            return None
        return self.member_id, self.generation


class TargetBody(_Body):
    """Where a group is to go on: exactly one of these."""

    earliest: Literal[True] | None = None
    latest: Literal[True] | None = None
    timestamp_ms: Offset | None = None
    offset: Offset | None = None
    shift: Annotated[int, Field(ge=-_NUMBER_MAX, le=_NUMBER_MAX)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError(f"exactly one of {', '.join(ResetKind)} has to be given")
        return self

    def _given(self) -> list[ResetTo]:
        values = self.model_dump(exclude_none=True)
        return [ResetTo(kind, int(values[kind])) for kind in ResetKind if kind in values]

    @property
    def to(self) -> ResetTo:
        """What is meant."""
        return self._given()[0]


class ResetBody(_Body):
    """Which partitions of a group are to go on where. Without topics and partitions: all that it has to do with."""

    model_config = ConfigDict(json_schema_extra={"example": {"topics": ["orders"], "to": {"earliest": True}}})

    to: TargetBody
    topics: Annotated[list[TopicName], Field(min_length=1, max_length=_TOPICS_MAX)] | None = None
    partitions: Annotated[list[PlaceBody], Field(min_length=1, max_length=_OFFSETS_MAX)] | None = None
    force: bool = False
    dry_run: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.topics is not None and self.partitions is not None:
            raise ValueError("either topics or partitions can be given, not both")
        return self
