"""Results of the administration methods: frozen values, decoded from the managers' JSON.

Unknown fields are ignored, so that older clients work with newer servers.
"""

import msgspec


class PartitionDescription(msgspec.Struct, frozen=True):
    """A partition with its replicas, offsets and size. Values from the leader are None while it is unavailable."""

    index: int = msgspec.field(name="partition_index")
    leader: str | None
    replicas: tuple[str, ...]
    records: int | None = msgspec.field(name="size")  # next_offset - first_offset
    size_bytes: int | None
    first_offset: int | None
    next_offset: int | None


class PartitionOffsets(msgspec.Struct, frozen=True):
    """First and next offset of a partition; `offset` is that of the first record from a requested time."""

    index: int
    first_offset: int
    next_offset: int
    offset: int | None = None


class BrokerPartition(msgspec.Struct, frozen=True):
    """A replica of a broker."""

    topic: str
    partition: int
    is_leader: bool


class BrokerDescription(msgspec.Struct, frozen=True):
    """A broker, and its replicas of topics that the caller may see. Leaders are hints."""

    id: str
    url: str
    rack: str | None
    active: bool
    cordoned: bool  # it gets no new replicas, and leads nothing
    partitions: tuple[BrokerPartition, ...]
    name: str | None = None  # as the broker announces it, e.g. broker-1, or the name of its pod

    @property
    def leads(self) -> int:
        """Number of partitions that it probably leads."""
        return sum(one.is_leader for one in self.partitions)


class GroupListing(msgspec.Struct, frozen=True):
    """A consumer group in a list."""

    name: str
    state: str
    strategy: str | None
    generation: int
    members: int
    topics: tuple[str, ...]


class AssignedPartition(msgspec.Struct, frozen=True):
    """A partition that is assigned to a member."""

    topic: str
    partition: int


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a consumer group, and its assigned partitions."""

    id: str = msgspec.field(name="member_id")
    topics: tuple[str, ...]
    timeout_ms: int
    generation: int
    assigned: tuple[AssignedPartition, ...]


class GroupPartition(msgspec.Struct, frozen=True):
    """Owner, committed offset and lag of a partition. Values from the leader are None while it is unavailable."""

    topic: str
    partition: int
    owner: str | None
    committed: int | None
    note: str | None
    first_offset: int | None
    next_offset: int | None
    lag: int | None


class GroupDescription(msgspec.Struct, frozen=True):
    """State, members and partitions of a consumer group."""

    name: str
    state: str
    strategy: str | None
    generation: int
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def lag(self) -> int | None:
        """Lag of all partitions; None if that of one is unknown."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if len(known) == len(self.partitions) else None


class GroupOffset(msgspec.Struct, frozen=True):
    """A committed offset of a group: the next offset to read in a partition."""

    topic: str
    partition: int
    offset: int
    note: str | None
    committed_ms: int


class GroupReset(msgspec.Struct, frozen=True):
    """The committed offset of a partition before and after a reset."""

    topic: str
    partition: int
    old_offset: int | None
    new_offset: int


class TokenInfo(msgspec.Struct, frozen=True):
    """A token, without its secret text."""

    id: str
    name: str
    grants: tuple[str, ...]
    bytes_per_s: int | None
    requests_per_s: int | None
    in_flight_bytes: int | None
    created_ms: int
    expires_ms: int | None


class NewToken(TokenInfo, frozen=True):
    """A new token. Its secret text, `token`, cannot be read again later."""

    token: str

    def __repr__(self) -> str:
        """Leave out the secret, which must not reach a log."""
        return f"NewToken(id={self.id!r}, name={self.name!r}, grants={self.grants!r})"
