"""What managers tell about topics, brokers, groups and tokens: frozen values, in the shapes of their JSON.

What a manager tells besides is left out, so that newer servers do not disturb older clients.
"""

import msgspec


class PartitionDescription(msgspec.Struct, frozen=True):
    """A partition and what is in it. What only its leader knows is None while that one cannot be asked."""

    index: int = msgspec.field(name="partition_index")
    leader: str | None
    replicas: tuple[str, ...]
    records: int | None = msgspec.field(name="size")  # as many offsets as there are from the first to the next
    size_bytes: int | None
    first_offset: int | None
    next_offset: int | None


class PartitionOffsets(msgspec.Struct, frozen=True):
    """Where a partition begins and ends; and, if it was asked for a time, where records of that time or later begin."""

    index: int
    first_offset: int
    next_offset: int
    offset: int | None = None


class BrokerPartition(msgspec.Struct, frozen=True):
    """A replica that a broker holds."""

    topic: str
    partition: int
    is_leader: bool


class BrokerDescription(msgspec.Struct, frozen=True):
    """A broker, and those of its replicas whose topics one may see. Who leads is a hint."""

    id: str
    url: str
    rack: str | None
    active: bool
    cordoned: bool  # it takes no new replicas, and does not lead
    partitions: tuple[BrokerPartition, ...]

    @property
    def leads(self) -> int:
        """How many partitions it probably leads."""
        return sum(one.is_leader for one in self.partitions)


class GroupListing(msgspec.Struct, frozen=True):
    """A consumer group in a list."""

    name: str
    state: str
    strategy: str | None
    generation: int
    members: int
    topics: tuple[str, ...]


class GroupPlace(msgspec.Struct, frozen=True):
    """A partition that a member works on."""

    topic: str
    partition: int


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group, and what it works on."""

    id: str = msgspec.field(name="member_id")
    topics: tuple[str, ...]
    timeout_ms: int
    generation: int
    assigned: tuple[GroupPlace, ...]


class GroupPartition(msgspec.Struct, frozen=True):
    """How far a group has come in a partition. What only its leader knows is None while that one cannot be asked."""

    topic: str
    partition: int
    owner: str | None
    committed: int | None
    note: str | None
    first_offset: int | None
    next_offset: int | None
    lag: int | None


class GroupDescription(msgspec.Struct, frozen=True):
    """Everything about a consumer group."""

    name: str
    state: str
    strategy: str | None
    generation: int
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def lag(self) -> int | None:
        """What is left to read in all partitions; None if that of one is not known."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if len(known) == len(self.partitions) else None


class GroupOffset(msgspec.Struct, frozen=True):
    """What a group has committed: the next offset to read."""

    topic: str
    partition: int
    offset: int
    note: str | None
    committed_ms: int


class GroupReset(msgspec.Struct, frozen=True):
    """Where a group was in a partition, and where it goes on."""

    topic: str
    partition: int
    old_offset: int | None
    new_offset: int


class TokenInfo(msgspec.Struct, frozen=True):
    """A token, without its text."""

    id: str
    name: str
    grants: tuple[str, ...]
    bytes_per_s: int | None
    requests_per_s: int | None
    in_flight_bytes: int | None
    created_ms: int
    expires_ms: int | None


class NewToken(TokenInfo, frozen=True):
    """A token that was made just now. Nobody can look `token` up later."""

    token: str

    def __repr__(self) -> str:
        """Leave the text out: what is printed ends up in logs."""
        return f"NewToken(id={self.id!r}, name={self.name!r}, grants={self.grants!r})"
