"""pysyncobj behind our interface: which parts of it run, on which log, and which never do."""

import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pysyncobj.pickle
import pysyncobj.syncobj
import pytest

from flotilla_broker.engine import _Port
from flotilla_broker.partition.entries import Trim
from flotilla_broker.raft import Entry, GroupLog, RaftGroup, Role
from flotilla_broker.raft.core import Core, _Journal
from flotilla_broker.raft.messages import SnapshotBegin, Vote, VoteRequest
from flotilla_broker.raft.pysyncobj_internals import SUPPORTED_VERSION
from support.logtools import make_log
from support.raftnet import RAFT, Net
from support.simdisk import SimDisk

NAMES = ["ann", "bob", "cat"]


@dataclass
class Listener:
    """Records changes of a log."""

    heard: list[tuple[str, int]] = field(default_factory=list)

    def appended(self, entry: Entry) -> None:
        self.heard.append(("appended", entry.index))

    def truncated(self, index: int) -> None:
        self.heard.append(("truncated", index))

    def make_noop(self) -> tuple[bytes, int]:
        return b"\1", 77


def entry(index: int, term: int = 1) -> Entry:
    return Entry(index, term, index * 10, index, memoryview(b"\1"))


def log_of(count: int, *, anchor_index: int = 0, anchor_term: int = 0) -> GroupLog:
    log = make_log(SimDisk())
    number = log.create_group(b"x", anchor_index=anchor_index, anchor_term=anchor_term)
    group = GroupLog(log, number, Listener())
    for at in range(count):
        group.append(entry(anchor_index + 1 + at))
    log.flush()
    return group


def core_on(log: GroupLog, commit_index: int = 0) -> tuple[Core, list[tuple[str, VoteRequest | Vote]]]:
    sent: list[tuple[str, VoteRequest | Vote]] = []
    core = Core(
        log,
        me="bob",
        members=NAMES,
        config=RAFT,
        random_float=lambda: 0.5,
        commit_index=commit_index,
        now=100.0,
        emit=lambda peer, message: sent.append((peer, message)),
    )
    return core, sent


# -- the version of pysyncobj -----------------------------------------------------------------------------


def test_other_version_of_pysyncobj_is_rejected_at_start() -> None:
    """The guards are written for one version; they may not hold for another one."""
    code = "import pysyncobj.version as v; v.VERSION = '0.3.18'; import flotilla_broker.raft"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "UnsupportedCore: pysyncobj 0.3.18 is installed" in ended.stderr
    assert SUPPORTED_VERSION in ended.stderr


def test_nothing_is_ever_pickled_or_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock core unpickles bytes from the network. Ours elects, appends, transfers and copies without it."""

    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError("pickle was used")

    for module in (pickle, pysyncobj.pickle):
        for name in ("load", "loads", "dump", "dumps"):
            monkeypatch.setattr(module, name, never)
    for name in ("_load", "_loads", "_dump", "_dumps", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    net = Net()
    one, two, three = net.nodes
    net.elect(one)
    net.isolate(three)
    for at in range(20):
        one.append(b"value %d" % at)
        net.settle()
    one.partition.instruct(Trim(15))
    one.engine.schedule(net.key)
    one.turn()
    net.wait(1)
    one.raft.transfer_leadership(net.now, two.name)
    one.engine.schedule(net.key)
    one.turn()
    net.settle()
    assert two.raft.is_leader
    net.converge()
    assert net.count_sent(to=three, kind=SnapshotBegin) >= 1
    two.crash()
    net.converge()


def test_pysyncobj_creates_no_threads_sockets_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError("switched off")

    monkeypatch.setattr(pysyncobj.syncobj.threading.Thread, "start", never)
    monkeypatch.setattr(pysyncobj.syncobj, "TCPTransport", never)
    monkeypatch.setattr(pysyncobj.syncobj, "PipeNotifier", never)
    before = sorted(Path("/proc/self/fd").iterdir())
    cores = [core_on(log_of(3))[0] for _ in range(20)]
    for core in cores:
        core.tick(101.0)
    assert sorted(Path("/proc/self/fd").iterdir()) == before, "a broker has hundreds of groups"


# -- state at start ---------------------------------------------------------------------------------------


def test_restored_commit_index_is_at_most_the_last_index() -> None:
    """With a higher one, an isolated leader would treat its own new entries as committed."""
    log = log_of(3)
    core, _ = core_on(log, commit_index=99)
    assert core.commit_index == 3
    core.campaign(200.0)
    core.count_vote(200.0, "ann", core.term)
    assert core.role is Role.LEADER
    core.tick(200.1)
    assert log.last_index == 4
    assert core.commit_index == 3, "its no-op is on one disk"


def test_group_ignores_a_commit_index_beyond_its_log() -> None:
    """The same rule for the commit index of the group, which a leader sends to its followers."""
    net = Net()
    one = net.elect(net.nodes[0])
    group = RaftGroup(
        one.partition.log,
        one.partition,
        _Port(one.engine, net.key),
        me=one.name,
        members=net.meta.members,
        config=RAFT,
        random_float=lambda: 0.5,
        commit_index=99,
        now=net.now,
    )
    assert group.commit_index == one.partition.log.last_index == 1


def test_term_is_the_saved_one_or_that_of_the_last_entry() -> None:
    log = log_of(0)
    log.append(entry(1, term=4))
    assert core_on(log)[0].term == 4
    log.save_term(9, "")
    assert core_on(log)[0].term == 9


def test_vote_survives_a_restart() -> None:
    """Two votes in one term would make two leaders."""
    log = log_of(2)
    core, sent = core_on(log)
    core.request_vote(101.0, "ann", VoteRequest(5, 2, 1))
    assert sent == [("ann", Vote(5))]
    assert (log.term, log.vote) == (5, "ann")
    core, sent = core_on(log)
    assert core.term == 5
    core.request_vote(102.0, "cat", VoteRequest(5, 9, 4))
    assert sent == []
    core.request_vote(103.0, "cat", VoteRequest(6, 9, 4))
    assert sent == [("cat", Vote(6))]


def test_broker_that_lost_power_after_sending_its_vote_does_not_vote_again() -> None:
    net = Net()
    one, two, three = net.nodes
    net.campaign(one)
    net.take(to=three)
    net.deliver(*net.take(to=two))
    net.deliver(*net.take(to=one))
    net.take(to=three)
    (request,) = net.take(sender=one, to=two, kind=VoteRequest)
    net.deliver(request)
    assert len(net.take(sender=two, kind=Vote)) == 1
    two.crash()
    two.start()
    net.connect_all()
    net.take()
    assert two.raft.term == one.raft.term == 1
    net.inject(three, two, VoteRequest(1, 50, 1))
    assert net.take(sender=two, kind=Vote) == []


# -- elections --------------------------------------------------------------------------------------------


def test_member_grants_no_vote_to_a_log_that_lacks_entries() -> None:
    core, sent = core_on(log_of(3))
    core.request_vote(101.0, "ann", VoteRequest(5, 2, 1))
    core.request_vote(101.0, "cat", VoteRequest(6, 9, 0))
    assert sent == []
    assert core.term == 6


def test_higher_term_is_adopted_without_a_vote() -> None:
    log = log_of(0)
    core, sent = core_on(log)
    core.raise_term(101.0, "ann", 8)
    assert (core.term, log.term, log.vote, sent) == (8, 8, "", [])
    core.request_vote(102.0, "cat", VoteRequest(8, 0, 0))
    assert sent == [("cat", Vote(8))], "the vote of that term was not spent"


def test_election_timeout_alone_starts_no_election() -> None:
    """An election needs a pre-vote: only `campaign` starts one."""
    core, sent = core_on(log_of(0))
    core.election_at = 0
    core.tick(500.0)
    assert (core.role, core.term, sent) == (Role.FOLLOWER, 0, [])
    core.campaign(500.0)
    assert (core.role, core.term) == (Role.CANDIDATE, 1)
    assert sorted(peer for peer, _ in sent) == ["ann", "cat"]
    core.election_at = 0
    core.tick(900.0)
    assert core.term == 1


def test_election_timeout_is_random_between_both_limits() -> None:
    for random_float, wait_s in ((0.0, RAFT.election_s_min), (1.0, RAFT.election_s_max)):
        core = Core(
            log_of(0),
            me="bob",
            members=NAMES,
            config=RAFT,
            random_float=lambda random_float=random_float: random_float,  # type: ignore[misc]
            commit_index=0,
            now=100.0,
            emit=lambda *_: None,
        )
        core.follow(200.0, "ann", 1, 0)
        assert core.election_at == 200.0 + wait_s
        assert core.leader == "ann"


# -- the journal ------------------------------------------------------------------------------------------


def test_journal_starts_with_the_anchor() -> None:
    log = log_of(3, anchor_index=10, anchor_term=1)
    journal = _Journal(log, NAMES)
    assert len(journal) == 4
    assert [journal[at] for at in range(4)] == [(None, 10, 1), (None, 11, 1), (None, 12, 1), (None, 13, 1)]
    assert journal[-1] == (None, 13, 1)
    assert journal[-4] == (None, 10, 1)


def test_empty_journal_contains_only_its_anchor() -> None:
    journal = _Journal(log_of(0, anchor_index=7, anchor_term=3), NAMES)
    assert len(journal) == 1
    assert journal[0] == journal[-1] == (None, 7, 3)


def test_slices_of_the_journal_are_lazy_and_like_those_of_a_list() -> None:
    log = log_of(5, anchor_index=10, anchor_term=1)
    journal = _Journal(log, NAMES)
    whole = [journal[at] for at in range(6)]
    for part in (slice(2, 4), slice(3, None), slice(None, 2), slice(9, None), slice(4, 99), slice(-2, None)):
        assert list(journal[part]) == whole[part]
        assert len(journal[part]) == len(whole[part])
    assert not journal[6:]


def test_truncation_is_by_position_and_notifies_the_listener() -> None:
    log = log_of(5, anchor_index=10, anchor_term=1)
    _Journal(log, NAMES).deleteEntriesFrom(3)
    assert log.last_index == 12
    assert isinstance(log._listener, Listener)
    assert log._listener.heard[-1] == ("truncated", 13)


def test_entry_is_stored_unchanged_and_the_partition_makes_the_no_op() -> None:
    log = log_of(1)
    journal = _Journal(log, NAMES)
    journal.add(entry(2, term=3), 2, 3)
    journal.add(b"\1", 3, 4)
    stored = log.log.read(log.number, 2, bytes_max=100)
    assert [(e.index, e.term, e.next_offset, e.time_ms, bytes(e.payload)) for e in stored] == [
        (2, 3, 20, 2, b"\1"),
        (3, 4, 20, 77, b"\1"),
    ]


def test_votes_are_saved_by_member_name() -> None:
    log = log_of(0)
    journal = _Journal(log, NAMES)
    assert journal.getVotedForNodeId() is None
    journal.setCurrentTerm(3, 2)
    assert (log.term, log.vote, journal.getCurrentTerm(), journal.getVotedForNodeId()) == (3, "cat", 3, 2)
    journal.setCurrentTerm(4, None)
    assert (log.vote, journal.getVotedForNodeId()) == ("", None)
    journal.setCurrentTerm(4, 0)
    assert journal.getVotedForNodeId() == 0, "the first member is a vote too"
