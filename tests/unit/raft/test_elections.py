"""Elections: pre-votes, votes, and leaders that step down."""

import pytest

from flotilla_broker.partition.appends import Appended
from flotilla_broker.raft import Entry, Role
from flotilla_broker.raft.messages import (
    Append,
    Heartbeat,
    PreVote,
    PreVoteRequest,
    Reply,
    TimeoutNow,
    Vote,
    VoteRequest,
)
from support.raftnet import RAFT, Net, Node


def led(members: int = 3) -> tuple[Net, list[Node]]:
    """Return brokers of which the first leads, and whose followers know it."""
    net = Net(members)
    net.elect(net.nodes[0])
    net.wait(1)
    return net, net.nodes


# -- pre-votes --------------------------------------------------------------------------------------------


def test_candidate_raises_its_term_only_after_a_majority_of_pre_votes() -> None:
    net = Net()
    one, two, _ = net.nodes
    net.campaign(one)
    assert {type(message_on_wire.message) for message_on_wire in net.wire} == {PreVoteRequest}
    assert one.raft.term == 0
    net.deliver(*net.take(to=two))
    assert (one.raft.role, two.raft.term) == (Role.FOLLOWER, 0)
    net.deliver(*net.take(sender=two, to=one, kind=PreVote))
    assert (one.raft.role, one.raft.term) == (Role.CANDIDATE, 1)
    net.settle()
    assert one.raft.has_committed_in_term


def test_partitioned_follower_returns_without_a_higher_term() -> None:
    """Its pre-votes failed, so it never started an election: it does not disrupt the leader when it is back."""
    net, (one, _, three) = led()
    net.isolate(three)
    net.wait(60)
    assert three.raft.term == 1
    net.connect_all()
    net.wait(10)
    assert one.raft.is_leader
    assert [node.raft.term for node in net.nodes] == [1, 1, 1]


def test_stopped_follower_does_not_depose_the_leader() -> None:
    """SIGSTOP for longer than any election timeout, while its connections stay open; pre-vote protects the leader."""
    net, (one, two, three) = led()
    one.append(b"x")
    net.settle()
    net.wait(10, without=(three,))
    stale = net.take(to=three)
    three.turn()
    assert net.count_sent(three, kind=PreVoteRequest) >= 1
    net.settle()
    assert net.count_sent(three, kind=VoteRequest) == 0
    net.deliver(*stale)
    net.wait(10)
    assert one.raft.is_leader
    assert two.raft.term == 1


def test_pre_vote_counts_once_per_member() -> None:
    """A majority of five is three; one reply that arrives three times counts once."""
    net = Net(5)
    one, two, three = net.nodes[:3]
    net.campaign(one)
    net.deliver(*net.take(to=two))
    net.take(to=three)
    (granted,) = net.take(sender=two, kind=PreVote)
    net.deliver(granted, granted, granted)
    assert one.raft.role is Role.FOLLOWER


def test_reply_to_an_earlier_pre_vote_does_not_count() -> None:
    net = Net()
    one, two, _ = net.nodes
    net.campaign(one)
    net.deliver(*net.take(to=two))
    (old,) = net.take(sender=two, kind=PreVote)
    net.take()
    net.campaign(one)
    net.deliver(old)
    assert one.raft.role is Role.FOLLOWER


def test_pre_vote_reply_after_a_message_of_a_leader_does_not_count() -> None:
    net, (one, two, three) = led()
    net.now += 2
    net.campaign(three)
    two.raft._core.election_at = net.now + 5
    net.deliver(*net.take(sender=three, to=two))
    granted = net.take(sender=two, kind=PreVote)
    net.take()
    one.turn()
    net.deliver(*net.take(sender=one, to=three))
    net.deliver(*granted)
    assert three.raft.role is Role.FOLLOWER
    assert three.raft.term == 1


def test_candidate_without_all_entries_gets_no_pre_votes() -> None:
    net, (one, two, three) = led()
    net.isolate(three)
    one.append(b"x")
    net.settle()
    one.crash()
    net.connect_all()
    net.now += 5
    net.campaign(three)
    two.raft._core.election_at = net.now + 1
    net.deliver(*net.take(sender=three, to=two))
    (answer,) = net.take(sender=two, to=three, kind=PreVote)
    assert isinstance(answer.message, PreVote)
    assert not answer.message.granted
    net.wait(10)
    assert two.raft.is_leader


def test_candidate_gets_no_pre_votes_while_the_leader_is_alive() -> None:
    net, (one, two, three) = led()
    net.campaign(three)
    net.deliver(*net.take(sender=three))
    answers = [message_on_wire.message for message_on_wire in net.take(to=three, kind=PreVote)]
    assert [isinstance(answer, PreVote) and answer.granted for answer in answers] == [False, False]
    net.disconnect(one, two)
    net.campaign(three)
    net.deliver(*net.take(sender=three, to=two))
    (answer,) = [message_on_wire.message for message_on_wire in net.take(two, three, PreVote)]
    assert isinstance(answer, PreVote)
    assert answer.granted, "a member that lost the connection to the leader does not wait for its timeout"


def test_leader_is_considered_dead_after_the_shortest_election_timeout() -> None:
    net, (one, two, three) = led()
    net.inject(one, two, Heartbeat(1))
    for silence_s, granted in ((RAFT.election_s_min - 0.4, False), (RAFT.election_s_min + 0.4, True)):
        heard = net.now
        net.now += silence_s
        two.raft._core.election_at = three.raft._core.election_at = net.now + 5
        net.inject(three, two, PreVoteRequest(9, 9, 9, 1))
        (answer,) = [message_on_wire.message for message_on_wire in net.take(two, three, PreVote)]
        assert isinstance(answer, PreVote)
        assert answer.granted is granted
        net.now = heard


def test_higher_term_in_a_reply_is_adopted() -> None:
    """Otherwise a member with a lower term would never be elected."""
    net = Net()
    one, two, _ = net.nodes
    net.campaign(one)
    net.inject(two, one, PreVote(7, 1, granted=False))
    assert one.raft.term == 7


# -- votes ------------------------------------------------------------------------------------------------


def requested(members: int = 3) -> tuple[Net, list[Node]]:
    """Return brokers of which the first has requested votes; the requests are in flight."""
    net = Net(members)
    one = net.nodes[0]
    net.campaign(one)
    net.deliver(*net.take(kind=PreVoteRequest))
    net.deliver(*net.take(kind=PreVote))
    assert one.raft.role is Role.CANDIDATE
    return net, net.nodes


def test_vote_is_sent_after_its_flush() -> None:
    """A vote that is lost in a crash could be granted twice in one term."""
    net, (_, two, three) = requested()
    two.slow = True
    net.deliver(*net.take(to=two))
    assert net.take(two, kind=Vote) == []
    assert two.unflushed == [Vote(1)]
    flush = two.begin_flush()
    assert flush is not None
    net.take(to=three)
    assert net.take(two, kind=Vote) == []
    two.end_flush(flush)
    assert len(net.take(two, kind=Vote)) == 1


def test_vote_that_was_lost_in_a_crash_was_never_sent() -> None:
    net, (one, two, three) = requested()
    two.slow = True
    net.deliver(*net.take(to=two))
    net.take()
    two.crash()
    assert net.count_sent(two, kind=Vote) == 0
    two.start()
    net.connect_all()
    net.inject(three, two, VoteRequest(1, 0, 0))
    two.flush_all()
    assert net.count_sent(two, three, Vote) == 1
    assert net.count_sent(two, one, Vote) == 0


def test_candidate_requests_votes_only_when_its_own_vote_is_durable() -> None:
    """It votes for itself, and must not vote for another member in that term after a crash."""
    net = Net()
    one = net.nodes[0]
    one.slow = True
    net.campaign(one)
    net.deliver(*net.take(kind=PreVoteRequest))
    net.deliver(*net.take(kind=PreVote))
    assert one.raft.role is Role.CANDIDATE
    assert net.count_sent(one, kind=VoteRequest) == 0
    one.flush_all()
    assert net.count_sent(one, kind=VoteRequest) == 2


def test_vote_counts_once_per_member() -> None:
    """In pysyncobj duplicates count: in a group of five, two voters made a leader."""
    net, nodes = requested(5)
    one, two, three = nodes[:3]
    net.deliver(*net.take(to=two))
    (vote,) = net.take(sender=two, kind=Vote)
    net.deliver(vote, vote, vote)
    assert one.raft.role is Role.CANDIDATE
    net.deliver(*net.take(to=three))
    net.deliver(*net.take(sender=three, kind=Vote))
    assert one.raft.is_leader


def test_vote_of_an_earlier_term_does_not_count() -> None:
    net, (one, two, three) = requested()
    net.deliver(*net.take(to=two))
    (old,) = net.take(sender=two, kind=Vote)
    net.take()
    net.now += 5
    net.campaign(one)
    two.raft._core.election_at = three.raft._core.election_at = net.now + 5
    net.deliver(*net.take(kind=PreVoteRequest))
    net.deliver(*net.take(kind=PreVote))
    assert one.raft.term == 2
    net.deliver(old)
    assert one.raft.role is Role.CANDIDATE
    net.take(to=three)
    net.deliver(*net.take(one, two, VoteRequest))
    net.deliver(*net.take(two, one, Vote))
    assert one.raft.is_leader, "the other candidate yields"


def test_message_of_a_non_member_is_ignored() -> None:
    net, (one, two, _) = requested()
    one.engine.receive(net.now, "f" * 32, net.key, Vote(1))
    one.engine.receive(net.now, one.name, net.key, Vote(1))
    two.engine.receive(net.now, "f" * 32, net.key, VoteRequest(99, 99, 99))
    one.engine.receive(net.now, two.name, b"another group", Vote(1))
    assert one.raft.role is Role.CANDIDATE
    assert two.raft.term == 0


# -- leaders without followers ----------------------------------------------------------------------------


def test_isolated_leader_steps_down_and_acknowledges_nothing() -> None:
    net, (one, two, three) = led()
    net.isolate(one)
    sent = [one.append(b"x"), one.append(b"y")]
    net.wait(RAFT.election_s_max + RAFT.heartbeat_s)
    assert not one.raft.is_leader
    assert [each.outcome for each in sent] == [None, None]
    net.wait(10)
    leader = two if two.raft.is_leader else three
    assert leader.raft.has_committed_in_term
    fresh = leader.append(b"z")
    net.settle()
    assert fresh.offset == 0
    net.converge()
    assert all(node.values == [b"z"] for node in net.nodes)


def test_leader_stays_leader_while_a_majority_replies() -> None:
    net, (one, _, three) = led()
    net.isolate(three)
    net.wait(60)
    assert one.raft.is_leader
    assert one.raft.term == 1


def test_paused_leader_acknowledges_nothing_when_it_resumes() -> None:
    net, (one, two, three) = led()
    one.append(b"before")
    net.settle()
    net.wait(1, without=(one,))
    net.take(to=one)
    sent = one.submit(b"x")
    net.wait(20, without=(one,))
    assert two.raft.is_leader or three.raft.is_leader
    one.turn()
    assert sent.outcome is None or not isinstance(sent.outcome, Appended)
    net.converge()
    kept = [b"before", b"x"] if isinstance(sent.outcome, Appended) else [b"before"]
    assert one.values == two.values == three.values == kept


def test_leader_steps_down_on_a_higher_term_in_a_reply_and_the_group_converges() -> None:
    """A member with a higher term rejects all messages of the leader, and would never follow it again."""
    net, (one, two, three) = led()
    three.raft._core.raise_term(net.now, two.name, 9)
    one.append(b"x")
    net.deliver(*net.take(one, three, Append))
    (reply,) = net.take(three, one, Reply)
    net.deliver(reply)
    assert (one.raft.role, one.raft.term) == (Role.FOLLOWER, 9)
    net.converge()
    assert {node.raft.term for node in net.nodes} != {1}
    assert all(node.values == [b"x"] for node in net.nodes)


def test_followers_elect_early_when_the_connection_to_the_leader_breaks() -> None:
    net, (one, two, three) = led()
    net.isolate(one)
    net.wait(RAFT.election_s_min * 0.25)
    assert two.raft.is_leader or three.raft.is_leader


def test_new_leader_has_committed_in_its_term_only_with_its_own_entry() -> None:
    """Before that it does not know the commit index: offsets that it reported could go back."""
    net, (one, two, three) = led()
    sent = one.append(b"x")
    net.settle()
    assert isinstance(sent.outcome, Appended)
    net.isolate(one)
    net.now += 5
    two.raft._core.election_at = three.raft._core.election_at = net.now + 3
    net.campaign(two)
    net.deliver(*net.take(two, three))
    net.deliver(*net.take(three, two))
    net.deliver(*net.take(two, three, VoteRequest))
    net.deliver(*net.take(three, two, Vote))
    assert two.raft.is_leader
    assert not two.raft.has_committed_in_term
    assert two.partition.applied_index < two.raft._core.noop_index
    net.settle()
    assert two.raft.has_committed_in_term


@pytest.mark.parametrize(("members", "down"), [(3, 1), (5, 1), (5, 2)])
def test_majority_elects_a_leader(members: int, down: int) -> None:
    net, nodes = led(members)
    for node in nodes[:down]:
        node.crash()
    net.wait(20)
    assert sum(node.raft.has_committed_in_term for node in nodes[down:]) == 1


@pytest.mark.parametrize(("members", "down"), [(3, 2), (5, 3)])
def test_minority_elects_no_leader_and_keeps_its_term(members: int, down: int) -> None:
    net, nodes = led(members)
    for node in nodes[:down]:
        node.crash()
    net.wait(60)
    assert not any(node.raft.is_leader for node in nodes[down:])
    assert {node.raft.term for node in nodes[down:]} == {1}


def test_group_of_one_elects_itself() -> None:
    net = Net(1)
    net.wait(5)
    assert net.nodes[0].raft.has_committed_in_term
    assert net.sent == []


def test_simultaneous_elections_give_one_leader() -> None:
    """Votes are split until random election timeouts differ."""
    net = Net(5)
    net.now += 10
    for node in net.nodes:
        node.turn()
    net.converge()


def test_terms_do_not_go_back_in_a_crash() -> None:
    net, (one, two, three) = led()
    for node in (one, two, three):
        node.crash()
    for node in (one, two, three):
        node.start()
    assert [node.raft.term for node in net.nodes] == [1, 1, 1]
    net.converge()
    assert {node.raft.term for node in net.nodes} != {1}


def test_simultaneous_pre_votes_do_not_split_the_vote() -> None:
    """One member yields, so there is a leader in the first term although the third member is down."""
    net = Net()
    one, two, three = net.nodes
    three.crash()
    net.take()
    net.campaign(one)
    net.campaign(two)
    net.settle()
    assert (one.raft.term, two.raft.term) == (1, 1)
    assert [one.raft.is_leader, two.raft.is_leader] == [False, True]


def test_member_with_an_old_pre_vote_grants_others() -> None:
    """Its own pre-vote is over, with or without replies."""
    net = Net()
    one, two, three = net.nodes
    three.crash()
    net.take()
    net.campaign(two)
    net.take()
    net.now += 1
    net.campaign(one)
    net.settle()
    assert one.raft.is_leader


def test_member_that_may_not_vote_neither_votes_nor_campaigns_until_it_has_caught_up() -> None:
    """Guarantee 1 for a broker on a copy of its folder: it may lack committed entries, and votes that it gave."""
    net, (one, two, three) = led()
    one.append(b"x")
    net.wait(1)
    two.crash()
    one.crash()
    two.may_vote = False
    two.start()
    net.connect_all()
    kinds = (PreVoteRequest, VoteRequest, Vote)
    before = net.count_sent(two, kind=kinds)
    net.wait(30)
    two.engine.campaign(net.now, net.key)
    net.inject(three, two, VoteRequest(99, 99, 99))
    assert net.count_sent(two, kind=kinds) == before
    assert net.count_sent(three, two, kind=PreVoteRequest) > 0
    assert not three.raft.is_leader, "two of three members are up, but one of them does not vote"
    one.start()
    net.connect_all()
    net.wait(10)
    assert two.raft.may_vote
    assert two.values == [b"x"]
    leader = next(node for node in net.nodes if node.raft.is_leader)
    leader.crash()
    net.wait(30)
    assert sum(node.up and node.raft.has_committed_in_term for node in net.nodes) == 1


def test_member_that_may_not_vote_ignores_a_leadership_transfer() -> None:
    net, (one, two, _) = led()
    two.raft.may_vote = False
    net.inject(one, two, TimeoutNow(one.raft.term))
    assert net.count_sent(two, kind=VoteRequest) == 0


def test_commit_index_of_an_earlier_term_does_not_prove_that_a_member_has_caught_up() -> None:
    """A new leader may not know yet that entries of earlier terms were committed, which the member lacks."""
    net, (one, two, _) = led()
    one.append(b"x")
    net.wait(1)
    two.raft.may_vote = False
    log, term = two.partition.log, one.raft.term + 1
    last, last_term = log.last_index, log.last_term
    noop = Entry(last + 1, term, one.partition.log.next_offset, 0, one.entries[0].payload)
    net.inject(one, two, Append(term, last, last_term, last, []))
    assert not two.raft.may_vote
    net.inject(one, two, Append(term, last, last_term, last, [noop]))
    assert not two.raft.may_vote, "the entry of the leader's own term is not committed yet"
    net.inject(one, two, Append(term, last + 1, term, last + 1, []))
    assert two.raft.may_vote
