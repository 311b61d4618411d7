"""Elections: a pre-vote, then a vote. The core counts the votes."""

from dataclasses import dataclass, field

from flotilla_broker.raft.guards import grants_pre_vote, is_first_vote, is_majority, yields_to
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import PreVote, PreVoteRequest, TimeoutNow, Vote, VoteRequest


@dataclass(slots=True)
class Ballot:
    """One pre-vote: finds out whether an election would succeed, without a new term."""

    number: int
    members: int
    asked_at: float
    granted: set[str] = field(default_factory=set)

    def grant(self, member: str) -> bool:
        """Record a granted pre-vote; return whether a majority granted."""
        self.granted.add(member)
        return is_majority(len(self.granted), self.members)


class Elections:
    """The elections of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._ballot: Ballot | None = None
        self._ballots = 0
        self._voters: set[str] = set()

    def start(self, now: float) -> None:
        """Start a pre-vote; it is repeated after another election timeout."""
        member, config = self._member, self._member.config
        if not member.may_vote:
            member.reset_election_timeout(now, config.election_s_min, config.election_s_max)
            return
        self._ballots += 1
        self._ballot = Ballot(self._ballots, len(member.peers) + 1, now)
        member.is_quiesced = False
        member.reset_election_timeout(now, config.election_s_min, config.election_s_max)
        log = member.log
        request = PreVoteRequest(member.core.term + 1, log.last_index, log.last_term, self._ballots)
        for peer in member.peers:
            member.send(peer, request)
        if self._ballot.grant(member.me):
            self._campaign(now)

    def on_pre_vote_request(self, now: float, peer: str, message: PreVoteRequest) -> None:
        """Reply to a pre-vote request."""
        member = self._member
        granted = grants_pre_vote(
            term=message.term,
            own_term=member.core.term,
            last=(message.last_term, message.last_index),
            own_last=(member.log.last_term, member.log.last_index),
            leader_is_alive=member.leader_is_alive(now),
        )
        granted = granted and member.may_vote
        if granted and self.is_pre_voting(now):
            granted = self._yield_to(peer, message)
        member.send(peer, PreVote(member.core.term, message.ballot, granted))

    def is_pre_voting(self, now: float) -> bool:
        """Whether a pre-vote of this member is still waiting for replies."""
        return self._ballot is not None and now - self._ballot.asked_at < self._member.config.heartbeat_s

    def _yield_to(self, rival: str, message: PreVoteRequest) -> bool:
        """Decide between this member's own pre-vote and a rival's."""
        log = self._member.log
        last, own_last = (message.last_term, message.last_index), (log.last_term, log.last_index)
        if not yields_to(rival, self._member.me, last=last, own_last=own_last):
            return False
        self._ballot = None
        return True

    def on_pre_vote(self, now: float, peer: str, message: PreVote) -> None:
        """Count a pre-vote, unless there is a leader by now."""
        self._member.adopt_term(now, peer, message.term)
        ballot = self._ballot
        if ballot is None or message.ballot != ballot.number or self._member.leader_is_alive(now):
            return
        if message.granted and ballot.grant(peer):
            self._campaign(now)

    def _campaign(self, now: float) -> None:
        self._ballot = None
        self._voters = {self._member.me}
        self._member.core.campaign(now)

    def on_vote_request(self, now: float, peer: str, message: VoteRequest) -> None:
        """Pass a vote request to the core, which grants it if Raft allows it."""
        if self._member.may_vote:
            self._member.core.request_vote(now, peer, message)
        else:
            self._member.adopt_term(now, peer, message.term)

    def on_vote(self, now: float, peer: str, message: Vote) -> None:
        """Count a vote of this term, once per member."""
        core = self._member.core
        if message.term == core.term and is_first_vote(self._voters, peer):
            self._voters.add(peer)
            core.count_vote(now, peer, message.term)

    def on_timeout_now(self, now: float, peer: str, message: TimeoutNow) -> None:
        """Start an election on a leadership transfer, without a pre-vote: the other members still follow the leader."""
        core = self._member.core
        if message.term == core.term and peer == core.leader and self._member.may_vote:
            self._campaign(now)
