"""How a member becomes leader: it asks whether it would be elected, then for votes. The core counts them."""

from dataclasses import dataclass, field

from flotilla_broker.raft.guards import grants_pre_vote, is_first_vote, is_majority, yields_to
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import PreVote, PreVoteRequest, TimeoutNow, Vote


@dataclass(slots=True)
class Ballot:
    """One round of asking whether a candidacy would succeed, before it disturbs anybody with a new term."""

    number: int
    members: int
    asked_at: float
    granted: set[str] = field(default_factory=set)

    def grant(self, member: str) -> bool:
        """Take note of one answer; return whether a majority would vote for this member."""
        self.granted.add(member)
        return is_majority(len(self.granted), self.members)


class Elections:
    """A member's candidacies."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._ballot: Ballot | None = None
        self._ballots = 0
        self._voters: set[str] = set()

    def start(self, now: float) -> None:
        """Ask whether a candidacy would have a majority; ask again later if there is no answer."""
        member, config = self._member, self._member.config
        self._ballots += 1
        self._ballot = Ballot(self._ballots, len(member.peers) + 1, now)
        member.is_quiet = False
        member.wait_for_leader(now, config.election_s_min, config.election_s_max)
        log = member.log
        request = PreVoteRequest(member.core.term + 1, log.last_index, log.last_term, self._ballots)
        for peer in member.peers:
            member.say(peer, request)
        if self._ballot.grant(member.me):
            self._campaign(now)

    def on_pre_vote_request(self, now: float, peer: str, message: PreVoteRequest) -> None:
        """Answer a member that would like to become leader."""
        member = self._member
        granted = grants_pre_vote(
            term=message.term,
            own_term=member.core.term,
            last=(message.last_term, message.last_index),
            own_last=(member.log.last_term, member.log.last_index),
            leader_lives=member.leader_lives(now),
        )
        if granted and self.is_asking(now):
            granted = self._give_way(peer, message)
        member.say(peer, PreVote(member.core.term, message.ballot, granted))

    def is_asking(self, now: float) -> bool:
        """Tell whether answers to a ballot of one's own are still to be expected."""
        return self._ballot is not None and now - self._ballot.asked_at < self._member.config.heartbeat_s

    def _give_way(self, rival: str, message: PreVoteRequest) -> bool:
        """Support a rival instead of oneself, or not."""
        log = self._member.log
        last, own_last = (message.last_term, message.last_index), (log.last_term, log.last_index)
        if not yields_to(rival, self._member.me, last=last, own_last=own_last):
            return False
        self._ballot = None
        return True

    def on_pre_vote(self, now: float, peer: str, message: PreVote) -> None:
        """Count an answer, unless a leader was heard of meanwhile."""
        self._member.heed_term(now, peer, message.term)
        ballot = self._ballot
        if ballot is None or message.ballot != ballot.number or self._member.leader_lives(now):
            return
        if message.granted and ballot.grant(peer):
            self._campaign(now)

    def _campaign(self, now: float) -> None:
        self._ballot = None
        self._voters = {self._member.me}
        self._member.core.campaign(now)

    def on_vote(self, now: float, peer: str, message: Vote) -> None:
        """Count a vote of this term, each member's once."""
        core = self._member.core
        if message.term == core.term and is_first_vote(self._voters, peer):
            self._voters.add(peer)
            core.count_vote(now, peer, message.term)

    def on_timeout_now(self, now: float, peer: str, message: TimeoutNow) -> None:
        """Take over from the leader that hands over: without asking first, as everybody still hears that leader."""
        core = self._member.core
        if message.term == core.term and peer == core.leader:
            self._campaign(now)
