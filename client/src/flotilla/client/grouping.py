"""A member of a group, as a value: what it has, what it says next, and what follows from each answer. Pure.

The protocol is told in docs/groups.md; the other side of it is `flotilla.groups.membership`. What holds,
whatever is lost, repeated or late:

- It works on a partition only while it was told that the partition is its own, and on nothing once it was told that it
  is no member.
- It lets go of a partition only by a sync that it sends after it has finished there.
- What it has let go of, or lost, and gets again, it has in another `hold`: a refusal that speaks of the old one is
  recognised.

Calls are made one after the other, and the answer to one that was given up is not read. Commits may be under way beside
them; so each is judged by the life and the holds that it was sent with. Whoever makes the calls keeps time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from flotilla.client.positions import Share


class Call(Enum):
    """What a member says next."""

    JOIN = auto()
    SYNC = auto()
    BEAT = auto()


@dataclass(frozen=True, kw_only=True)
class Told:
    """The answer to a join or a sync."""

    generation: int
    assigned: Collection[Share]
    revoked: Collection[Share]


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member, or one that is to become one (its generation is 0 then)."""

    generation: int = 0
    life: int = 0
    held: Mapping[Share, int] = field(default_factory=dict)  # the number of the hold, which is never used again
    revoked: frozenset[Share] = frozenset()  # of what is held: to be finished and let go of
    holds: int = 0  # so many have begun
    is_due: bool = False  # there is something to say, or to hear
    is_join_doubtful: bool = False  # a join was sent and not answered: it may begin another life yet

    @property
    def next_call(self) -> Call:
        """What to say next."""
        if not self.generation:
            return Call.JOIN
        return Call.SYNC if self.is_due else Call.BEAT

    def with_unanswered_join(self) -> "Member":
        """Note that nobody knows whether a join has arrived."""
        return replace(self, is_join_doubtful=True)

    def with_joined(self, told: Told) -> "Member":
        """Begin a life."""
        return replace(self, life=self.life + 1).with_told(told)

    def with_told(self, told: Told) -> "Member":
        """Work on what is assigned, finish what is revoked, stop everything else."""
        named = {*told.assigned, *told.revoked}
        held = {share: hold for share, hold in self.held.items() if share in named}
        holds = self.holds
        for share in told.assigned:
            if share not in held:
                holds += 1
                held[share] = holds
        return replace(
            self,
            generation=told.generation,
            held=held,
            holds=holds,
            revoked=frozenset(share for share in told.revoked if share in held),
            is_due=False,  # if it is not up to date yet, the next heartbeat says so
        )

    def with_beaten(self, *, should_sync: bool) -> "Member":
        """Heed the answer to a heartbeat."""
        return replace(self, is_due=self.is_due or should_sync)

    def with_let_go(self, holds: Mapping[Share, int]) -> "Member":
        """Note that it has finished with partitions, and has to say so."""
        held = {share: hold for share, hold in self.held.items() if holds.get(share) != hold}
        if len(held) == len(self.held):
            return self
        return replace(self, held=held, revoked=self.revoked & held.keys(), is_due=True)

    def with_life_ended(self, life: int) -> "Member":
        """Drop everything, unless it was about an earlier life."""
        if life != self.life or not self.generation:
            return self
        return replace(self, generation=0, held={}, revoked=frozenset(), is_due=False, is_join_doubtful=False)

    def is_replaced(self, code: str, *, is_id_given: bool) -> bool:
        """Tell whether a refusal means that another process has its id: then to join again would go on for ever.

        Not if the id was drawn, which nobody else has, and not if a join of its own may have come late.
        """
        return code == "stale_generation" and is_id_given and not self.is_join_doubtful
