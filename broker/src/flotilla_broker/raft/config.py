"""The times and sizes of a Raft group."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """What all groups of a broker share. All brokers of a cluster should agree on the times."""

    heartbeat_s: float = 0.3
    election_s_min: float = 1.5  # a follower that hears nothing for this long may ask for an election
    election_s_max: float = 3.0  # ... and does after this long; a leader without a majority gives up after it too
    append_bytes_max: int = 1 << 20  # of entries in one message, unless a single entry is larger
    window_bytes: int = 8 << 20  # sent to one follower and not answered; bounds what a slow one costs
    commit_notice_s: float = 0.02  # how soon followers learn of a commit if nothing else is sent to them
    quiet_s: float = 20.0  # how long a follower trusts its connection to a leader that has nothing to say

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < self.election_s_min / 2:
            raise ValueError(f"heartbeat_s={self.heartbeat_s} must be above 0 and below half of election_s_min")
        if not self.election_s_min < self.election_s_max:
            raise ValueError(f"election_s_max={self.election_s_max} must be above election_s_min={self.election_s_min}")
        if not 0 < self.append_bytes_max <= self.window_bytes:
            raise ValueError(f"append_bytes_max={self.append_bytes_max} must be above 0 and at most window_bytes")
