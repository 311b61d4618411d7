"""State that the parts of a group share: log, core, port, connections, and the known leader."""

from collections.abc import Callable, Sequence

from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.core import Core, Role
from flotilla_broker.raft.grouplog import GroupLog
from flotilla_broker.raft.messages import Message
from flotilla_broker.raft.port import Port, StateMachine


class Member:
    """Shared state of one member of a group."""

    def __init__(
        self,
        log: GroupLog,
        machine: StateMachine,
        port: Port,
        *,
        me: str,
        members: Sequence[str],
        config: RaftConfig,
        random_float: Callable[[], float],
        commit_index: int,
        now: float,
    ) -> None:
        self.me = me
        self.peers = tuple(sorted(member for member in members if member != me))
        self.log = log
        self.machine = machine
        self.config = config
        self.commit_index = min(commit_index, log.last_index)  # known to be committed, and on this disk
        self.connected: set[str] = set()
        self.leader_seen_at = now - config.election_s_max  # time of the last message of a leader
        self.may_vote = True  # False: it may have lost votes or entries, and has not caught up with a leader yet
        self.is_quiesced = False  # no heartbeats expected: this follower relies on the connection
        self.port = port
        self._random_float = random_float
        self.core = Core(
            log,
            me=me,
            members=members,
            config=config,
            random_float=random_float,
            commit_index=self.commit_index,
            now=now,
            emit=self.send_after_flush,
        )

    @property
    def is_leader(self) -> bool:
        """Whether this member is the leader of its current term."""
        return self.core.role is Role.LEADER

    def send(self, peer: str, message: Message) -> None:
        """Send a message at once. It must not depend on data that is not durable."""
        self.port.send(peer, message, after_flush=False)

    def send_after_flush(self, peer: str, message: Message) -> None:
        """Send a reply, a vote or a vote request after the flush that covers everything logged so far."""
        self.port.send(peer, message, after_flush=True)

    def leader_is_alive(self, now: float) -> bool:
        """Whether there is a connected leader that was heard within the election timeout."""
        if self.is_leader:
            return True
        heard = self.is_quiesced or now - self.leader_seen_at < self.config.election_s_min
        return heard and self.core.leader in self.connected

    def adopt_term(self, now: float, peer: str, term: int) -> None:
        """Adopt a higher term. A leader with a lower term could never reach that member again."""
        if term > self.core.term:
            self.core.raise_term(now, peer, term)

    def reset_election_timeout(self, now: float, shortest_s: float, longest_s: float) -> None:
        """Set a random election timeout between the two times."""
        self.core.election_at = now + shortest_s + (longest_s - shortest_s) * self._random_float()

    def shorten_election_timeout(self, now: float, within_s: float) -> None:
        """Start an election soon, because no leader is known. A pre-vote fails if there is one after all."""
        at = self.core.election_at
        self.reset_election_timeout(now, within_s / 2, 3 * within_s / 2)
        self.core.election_at = min(at, self.core.election_at)
