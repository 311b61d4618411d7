"""Settings of Raft groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Settings of all groups of a broker. The times must be the same on all brokers of a cluster."""

    heartbeat_s: float = 0.3
    election_s_min: float = 1.5  # election timeout: a random time between min and max
    election_s_max: float = 3.0  # also: a leader without responses of a majority steps down after it
    append_bytes_max: int = 1 << 20  # of entries in one message, unless a single entry is larger
    window_bytes: int = 8 << 20  # in flight to one follower
    commit_notice_s: float = 0.02  # delay of a commit index that no other message carries
    quiesce_timeout_s: float = 20.0  # a follower of a quiesced group starts an election after it, at the latest

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < self.election_s_min / 2:
            raise ValueError(
                f"heartbeat_s={self.heartbeat_s} must be above 0 and below half of election_s_min={self.election_s_min}"
            )
        if not self.election_s_min < self.election_s_max:
            raise ValueError(f"election_s_max={self.election_s_max} must be above election_s_min={self.election_s_min}")
        if not 0 < self.append_bytes_max <= self.window_bytes:
            raise ValueError(
                f"append_bytes_max={self.append_bytes_max} must be above 0 and at most window_bytes={self.window_bytes}"
            )
