"""The state of a consumer group member, as a value: owned partitions and the next request. Pure.

docs/groups.md has the protocol; `flotilla.groups.membership` is the server side of it. Invariants, whatever requests
or responses are lost, repeated or late:

- The member works on a partition only while the last response assigned it, and on none once its session has ended.
- It releases a partition only by a sync that it sends after it has processed the partition's records.
- A partition that was released or lost, and is assigned again, has a new claim number: an error response that refers to
  the old claim is recognised.

Requests are sent one after the other, and the response to an abandoned one is not read. Commits may be in flight at the
same time; therefore each is evaluated against the session and the claims that it was sent with. The caller keeps time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from flotilla.client.positions import TopicIdPartition


class GroupRequest(Enum):
    """A request of a member to the group coordinator."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The response to a join or a sync."""

    generation: int
    assigned: Collection[TopicIdPartition]
    revoked: Collection[TopicIdPartition]


@dataclass(frozen=True, kw_only=True)
class MemberState:
    """The state of a member. Before it has joined, its generation is 0."""

    generation: int = 0
    session: int = 0  # number of joins
    owned: Mapping[TopicIdPartition, int] = field(default_factory=dict)  # claim numbers, which are never reused
    revoked: frozenset[TopicIdPartition] = frozenset()  # owned, to be released when processed
    claims: int = 0  # last claim number
    should_sync: bool = False  # a sync is due
    is_join_in_doubt: bool = False  # a join has no response: it may still start another session

    @property
    def next_request(self) -> GroupRequest:
        """The next request to send."""
        if not self.generation:
            return GroupRequest.JOIN
        return GroupRequest.SYNC if self.should_sync else GroupRequest.HEARTBEAT

    def with_unanswered_join(self) -> "MemberState":
        """Note that a join has no response, and may have been processed."""
        return replace(self, is_join_in_doubt=True)

    def with_joined(self, assignment: Assignment) -> "MemberState":
        """Start a session."""
        return replace(self, session=self.session + 1).with_assignment(assignment)

    def with_assignment(self, assignment: Assignment) -> "MemberState":
        """Adopt assigned and revoked partitions; drop all others."""
        named = {*assignment.assigned, *assignment.revoked}
        owned = {tp: claim for tp, claim in self.owned.items() if tp in named}
        claims = self.claims
        for tp in assignment.assigned:
            if tp not in owned:
                claims += 1
                owned[tp] = claims
        return replace(
            self,
            generation=assignment.generation,
            owned=owned,
            claims=claims,
            revoked=frozenset(tp for tp in assignment.revoked if tp in owned),
            should_sync=False,  # if this is outdated, the response to the next heartbeat requests a sync
        )

    def with_heartbeat(self, *, should_sync: bool) -> "MemberState":
        """Apply the response to a heartbeat."""
        return replace(self, should_sync=self.should_sync or should_sync)

    def with_released(self, claims: Mapping[TopicIdPartition, int]) -> "MemberState":
        """Release partitions under these claims; the next sync reports it."""
        owned = {tp: claim for tp, claim in self.owned.items() if claims.get(tp) != claim}
        if len(owned) == len(self.owned):
            return self
        return replace(self, owned=owned, revoked=self.revoked & owned.keys(), should_sync=True)

    def with_session_ended(self, session: int) -> "MemberState":
        """Drop all partitions, unless the ended session is an earlier one."""
        if session != self.session or not self.generation:
            return self
        return replace(self, generation=0, owned={}, revoked=frozenset(), should_sync=False, is_join_in_doubt=False)

    def is_replaced(self, code: str, *, is_id_given: bool) -> bool:
        """Return whether an error code means that another process has this member id: rejoining would never end.

        Not if the id is random and therefore unique, and not if a join of its own may have been processed late.
        """
        return code == "stale_generation" and is_id_given and not self.is_join_in_doubt
