"""A pre-vote: a member asks whether it would be elected, before it disturbs anybody with a new term."""

from dataclasses import dataclass, field

from flotilla_broker.raft.guards import is_majority


@dataclass(slots=True)
class Ballot:
    """One round of asking."""

    number: int
    members: int
    granted: set[str] = field(default_factory=set)

    def grant(self, member: str) -> bool:
        """Take note of one answer; return whether a majority would vote for this member."""
        self.granted.add(member)
        return is_majority(len(self.granted), self.members)
