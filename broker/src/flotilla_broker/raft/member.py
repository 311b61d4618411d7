"""What the parts of a group share: its log, its core, its way out, and what is known of the leader."""

from collections.abc import Callable, Sequence

from flotilla_broker.raft.config import RaftConfig
from flotilla_broker.raft.core import Core, Role
from flotilla_broker.raft.grouplog import GroupLog
from flotilla_broker.raft.messages import Message
from flotilla_broker.raft.port import Machine, Port


class Member:
    """One member of a group."""

    def __init__(
        self,
        log: GroupLog,
        machine: Machine,
        port: Port,
        *,
        me: str,
        members: Sequence[str],
        config: RaftConfig,
        chance: Callable[[], float],
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
        self.heard_at = now - config.election_s_max  # from a leader
        self.is_quiet = False  # this follower does not expect heartbeats: it trusts in the connection
        self.port = port
        self._chance = chance
        self.core = Core(
            log,
            me=me,
            members=members,
            config=config,
            chance=chance,
            commit_index=self.commit_index,
            now=now,
            emit=self.promise,
        )

    @property
    def is_leader(self) -> bool:
        """Tell whether this member leads, as far as it knows."""
        return self.core.role is Role.LEADER

    def say(self, peer: str, message: Message) -> None:
        """Send a message that promises nothing."""
        self.port.send(peer, message, held=False)

    def promise(self, peer: str, message: Message) -> None:
        """Send a message that leaves only when everything logged so far is durable (guard D)."""
        self.port.send(peer, message, held=True)

    def leader_lives(self, now: float) -> bool:
        """Tell whether there is a leader that there is no reason to replace."""
        if self.is_leader:
            return True
        heard = self.is_quiet or now - self.heard_at < self.config.election_s_min
        return heard and self.core.leader in self.connected

    def heed_term(self, now: float, peer: str, term: int) -> None:
        """Adopt a higher term. Nobody tells a leader of one otherwise, and it would never reach that member again."""
        if term > self.core.term:
            self.core.raise_term(now, peer, term)

    def wait_for_leader(self, now: float, shortest_s: float, longest_s: float) -> None:
        """Ask for an election if nothing is heard from a leader until some time between the two."""
        self.core.election_at = now + shortest_s + (longest_s - shortest_s) * self._chance()

    def hurry(self, now: float, within_s: float) -> None:
        """Ask for an election soon: there is no leader to wait for. If there is one after all, pre-votes tell."""
        at = self.core.election_at
        self.wait_for_leader(now, within_s / 2, 3 * within_s / 2)
        self.core.election_at = min(at, self.core.election_at)
