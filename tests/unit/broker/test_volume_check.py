"""Restored volumes and clones: guarantee 1 for a broker whose data folder is an older copy."""

import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from flotilla_broker.identity import Identity, open_data_folder
from flotilla_broker.log import GroupQuarantined, Log, LogConfig
from flotilla_broker.raft.guards import is_majority
from flotilla_broker.volume_check import DuplicateBroker, OlderCopy, VolumeCheck, confirmations_needed
from flotilla_server.broker_starts import Start

CONFIG = LogConfig(segment_bytes=1 << 16, entry_bytes_max=4000)
PEERS = tuple(f"{number:032x}" for number in range(1, 5))


class Node:
    """A data folder, and the broker that runs on it."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.folder = folder
        self._number = number
        self._draws = 0
        self.log: Log
        self.identity: Identity
        self.check: VolumeCheck
        self.start()

    def _random_bytes(self, size: int) -> bytes:
        self._draws += 1
        return (self._number << 32 | self._draws).to_bytes(size, "big")

    def start(self) -> None:
        self.log, self.identity = open_data_folder(self.folder, CONFIG, self._random_bytes)
        self.check = VolumeCheck(self.identity, has_managers=True)
        self.flush()

    def flush(self) -> None:
        flush = self.log.begin_flush()
        if flush is not None:
            flush.run()
            self.log.end_flush(flush)

    def restart(self) -> None:
        self.log.close()
        self.start()

    def write(self, count: int = 1) -> None:
        """Write frames of replicas."""
        for _ in range(count):
            self.log.create_group(b"a replica")
        self.flush()

    def copy(self, to: Path) -> Path:
        """Copy the folder while the broker runs."""
        shutil.copytree(self.folder, to)
        return to

    def become(self, folder: Path) -> None:
        """Restore a copy, and start on it."""
        self.log.close()
        self.folder = folder
        self.start()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node", 1)
    yield node
    node.log.close()


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Node]:
    peer = Node(tmp_path / "peer", 2)
    yield peer
    peer.log.close()


def greet(node: Node, peer: Node) -> bool:
    """Let two brokers connect; return whether the first may take part."""
    mine, theirs = node.check.greeting(peer.identity.id), peer.check.greeting(node.identity.id)
    accepted = peer.check.on_greeting(node.identity.id, mine)
    return node.check.on_greeting(peer.identity.id, theirs) and accepted


def send_frame(node: Node, peer: Node) -> None:
    """Send a frame: the receiver learns the LSN."""
    peer.identity.record_lsn(node.identity.id, node.identity.reported_lsn)


@pytest.mark.parametrize("members", range(1, 8))
def test_fewest_confirmations_include_a_member_of_each_majority(members: int) -> None:
    others = range(1, members)
    needed = confirmations_needed(members)
    majorities = [
        set(chosen)
        for size in range(members)
        for chosen in combinations(others, size)
        if is_majority(size + 1, members)
    ]
    for confirmed in combinations(others, needed):
        assert all(majority & set(confirmed) for majority in majorities)
    if members > 1:
        fewer = [set(chosen) for chosen in combinations(others, needed - 1)]
        assert any(not majority & confirmed for majority in majorities for confirmed in fewer)
    else:
        assert needed > len(others), "only a manager can confirm a group of one"


def test_new_broker_takes_part_at_once(node: Node) -> None:
    assert node.check.admit([node.identity.id, *PEERS[:2]])


def test_restarted_replica_waits_for_enough_members_or_a_manager(node: Node) -> None:
    node.restart()
    members = [node.identity.id, *PEERS[:2]]
    assert not node.check.admit(members)
    for number, peer in enumerate((PEERS[0], PEERS[3], PEERS[1])):
        greeting = VolumeCheck(node.identity, has_managers=True).greeting(peer)
        assert node.check.on_greeting(peer, greeting)
        assert node.check.admit(members) is (number == 2), "a broker that is no member does not count"
    node.restart()
    node.check.on_confirmed()
    assert node.check.admit([node.identity.id])


def test_manager_alone_does_not_confirm_a_copy_of_the_files(node: Node, tmp_path: Path) -> None:
    """The copy may be younger than the manager's memory. That holds until its replicas have caught up."""
    members = [node.identity.id, *PEERS[:2]]
    node.become(node.copy(tmp_path / "image"))
    for _ in range(2):
        node.check.on_confirmed()
        assert not node.check.admit(members)
        node.restart()
    node.check.on_confirmed()
    assert node.check.admit([node.identity.id]), "a group of one has no other member to ask"
    assert not node.check.admit(members), "one confirmed group says nothing about others"
    node.restart()
    node.check.on_confirmed()
    assert not node.check.admit(members), "the replicas had not caught up"
    node.identity.record_caught_up()
    node.restart()
    node.check.on_confirmed()
    assert node.check.admit(members)
    assert node.check.may_vote(members)


def test_copy_of_a_stopped_broker_is_trusted_like_the_original(node: Node, tmp_path: Path) -> None:
    """For example a folder that was moved to another disk."""
    members = [node.identity.id, *PEERS[:2]]
    node.identity.record_close()
    node.log.close()
    node.folder = node.copy(tmp_path / "copy")
    node.start()
    node.check.on_confirmed()
    assert node.check.admit(members)
    assert node.check.may_vote(members)
    node.flush()
    image = node.copy(tmp_path / "image")
    node.become(image)
    node.check.on_confirmed()
    assert not node.check.admit(members), "this copy is of the running broker"


@pytest.mark.parametrize(
    ("members", "copies", "may_vote"),
    [
        (1, 0, True),
        (2, 0, True),  # the other one must vote for it, too
        (3, 0, False),  # the other two can elect a leader
        (3, 1, True),  # they cannot
        (3, 2, True),  # the whole cluster was restored
        (5, 1, False),
        (5, 2, True),
    ],
)
def test_replica_on_a_copy_votes_only_if_the_others_cannot_elect_a_leader(
    members: int, copies: int, node: Node, tmp_path: Path, *, may_vote: bool
) -> None:
    group = [node.identity.id, *PEERS[: members - 1]]
    node.restart()
    assert node.check.may_vote(group), "it runs on its own folder"
    node.become(node.copy(tmp_path / "image"))
    for number, peer in enumerate(group[1:]):
        assert not node.check.may_vote(group), "a member with more entries may be away"
        greeting = node.check.greeting(peer)
        node.check.on_greeting(peer, msgspec.structs.replace(greeting, is_copy=number < copies))
    assert node.check.may_vote(group) is may_vote


def test_moved_folder_is_no_copy(node: Node, tmp_path: Path) -> None:
    node.log.close()
    node.folder = node.folder.rename(tmp_path / "elsewhere")
    node.start()
    node.check.on_confirmed()
    assert node.check.admit([node.identity.id, *PEERS[:2]])


def test_group_of_one_does_not_wait_for_managers_for_ever(node: Node) -> None:
    """No other broker could confirm its start."""
    node.restart()
    assert not node.check.admit([node.identity.id])
    node.check.on_no_manager()
    assert node.check.admit([node.identity.id])
    assert not node.check.is_vouched
    assert not node.check.admit([node.identity.id, *PEERS[:2]])


def test_copy_needs_managers_and_peers(node: Node, tmp_path: Path) -> None:
    """Peers that restarted may not have heard of a broker that still runs; managers wait until it is silent."""
    members = [node.identity.id, PEERS[0]]
    node.become(node.copy(tmp_path / "image"))
    node.check.on_greeting(PEERS[0], node.check.greeting(PEERS[0]))
    assert not node.check.admit(members)
    node.check.on_confirmed()
    assert node.check.admit(members)


def test_copied_folder_needs_peers_even_without_managers(node: Node, tmp_path: Path) -> None:
    node.become(node.copy(tmp_path / "image"))
    check = VolumeCheck(node.identity, has_managers=False)
    assert not check.admit([node.identity.id, *PEERS[:2]])
    for peer in PEERS[:2]:
        check.on_greeting(peer, check.greeting(peer))
    assert check.admit([node.identity.id, *PEERS[:2]])


def test_without_managers_replicas_take_part_at_once(node: Node) -> None:
    """Otherwise a cluster without managers could not start with a member away."""
    node.restart()
    assert VolumeCheck(node.identity, has_managers=False).admit([node.identity.id, *PEERS[:2]])


def test_restored_volume_is_detected_in_the_same_start(node: Node, peer: Node, tmp_path: Path) -> None:
    """The broker did not restart between the snapshot and the crash, so the number of starts is the same."""
    assert greet(node, peer)
    node.write()
    send_frame(node, peer)
    image = node.copy(tmp_path / "image")
    node.write()
    send_frame(node, peer)
    peer.identity.store_lsns()
    peer.flush()
    peer.restart()
    node.become(image)
    with pytest.raises(OlderCopy, match=r"log is an older copy: broker .* has seen start 1 of this broker"):
        greet(node, peer)
    assert not node.check.admit([node.identity.id, peer.identity.id])


def test_restored_volume_is_detected_after_several_unconfirmed_starts(node: Node, peer: Node, tmp_path: Path) -> None:
    """Frames of such starts do not count: they would soon be as many as those that were lost."""
    greet(node, peer)
    node.write()
    image = node.copy(tmp_path / "image")
    node.write(3)
    send_frame(node, peer)
    node.become(image)
    for _ in range(8):
        node.restart()
    with pytest.raises(OlderCopy):
        greet(node, peer)


def test_peer_ignores_an_older_copy_and_keeps_what_it_knows(node: Node, peer: Node, tmp_path: Path) -> None:
    greet(node, peer)
    image = node.copy(tmp_path / "image")
    node.write()
    send_frame(node, peer)
    known = peer.identity.start_of(node.identity.id)
    node.become(image)
    assert not peer.check.on_greeting(node.identity.id, node.check.greeting(peer.identity.id))
    assert peer.identity.start_of(node.identity.id) == known


def test_clone_never_makes_the_genuine_broker_give_up(node: Node, peer: Node, tmp_path: Path) -> None:
    """Not even if the peer could not reach the genuine broker when the clone connected."""
    greet(node, peer)
    clone = Node(node.copy(tmp_path / "clone"), 3)
    assert clone.identity.id == node.identity.id
    assert greet(clone, peer), "no other broker knows more than the clone"
    clone.check.on_confirmed()
    clone.check.admit([node.identity.id])
    clone.write(5)
    send_frame(clone, peer)
    assert peer.identity.start_of(node.identity.id).lsn > node.identity.reported_lsn
    assert peer.check.on_greeting(node.identity.id, node.check.greeting(peer.identity.id)), "it was there before"
    node.write(9)
    send_frame(node, peer)
    with pytest.raises(DuplicateBroker):
        greet(clone, peer)
    clone.log.close()


def test_broker_whose_start_was_confirmed_never_gives_up_its_identity(node: Node, peer: Node, tmp_path: Path) -> None:
    """A later LSN can only be that of another process with its id."""
    node.restart()
    node.check.on_confirmed()
    assert node.check.admit([node.identity.id])
    clone = Node(node.copy(tmp_path / "clone"), 3)
    clone.check.on_confirmed()
    clone.check.admit([node.identity.id])
    clone.write(5)
    greet(clone, peer)
    with pytest.raises(DuplicateBroker):
        node.check.on_greeting(peer.identity.id, peer.check.greeting(node.identity.id))
    clone.log.close()


def test_reported_lsn_never_exceeds_what_the_next_start_recovers(node: Node) -> None:
    """Otherwise a broker would take its own log for an older copy."""
    for kind in range(6):
        node.log.create_group(b"not durable yet")
        assert node.identity.reported_lsn <= node.log.durable_lsn
        node.flush()
        if kind % 2:
            node.identity.confirm_start()
            assert node.identity.reported_lsn <= node.log.durable_lsn
            if kind == 5:
                node.flush()
        reported = node.identity.reported_lsn
        node.restart()
        assert reported <= node.identity.recovered_lsn


def test_unconfirmed_start_reports_what_it_recovered(node: Node) -> None:
    node.write()
    node.restart()
    recovered = node.identity.recovered_lsn
    node.write(2)
    assert node.identity.reported_lsn == recovered
    node.identity.confirm_start()
    assert node.identity.reported_lsn == recovered, "the confirmation is not durable yet"
    node.flush()
    assert node.identity.reported_lsn > recovered
    node.restart()
    assert node.identity.recovered_lsn > recovered + 2


def test_remembering_peers_does_not_change_the_reported_lsn(node: Node, peer: Node) -> None:
    """Otherwise idle brokers would write for ever, each because the other did."""
    greet(node, peer)
    node.write()
    send_frame(node, peer)
    before = peer.identity.reported_lsn
    assert peer.identity.store_lsns()
    peer.flush()
    assert peer.identity.reported_lsn == before
    assert not peer.identity.store_lsns(), "nothing new"
    peer.log.mark()
    peer.flush()
    assert peer.identity.reported_lsn == before, "the log marks itself when it is idle"
    node.write()
    send_frame(node, peer)
    assert peer.identity.store_lsns()
    peer.flush()
    assert peer.identity.reported_lsn == before
    peer.write()
    assert peer.identity.reported_lsn > before


def test_lsn_of_a_start_is_never_taken_for_that_of_an_earlier_one(node: Node, peer: Node) -> None:
    """Otherwise the broker would seem to have lost what it wrote after its restart, and would give up its identity."""
    greet(node, peer)
    send_frame(node, peer)
    node.restart()
    node.check.on_confirmed()
    node.check.admit([node.identity.id])
    node.write(3)
    node.flush()
    peer.identity.retire("it cannot store anything any more")
    with pytest.raises(GroupQuarantined):
        greet(node, peer)
    assert node.check.on_greeting(peer.identity.id, peer.check.greeting(node.identity.id))


def test_lsns_of_peers_survive_a_restart_once_they_are_stored(node: Node, peer: Node) -> None:
    greet(node, peer)
    node.write(3)
    send_frame(node, peer)
    lsn = node.identity.reported_lsn
    assert peer.identity.start_of(node.identity.id).lsn == lsn
    peer.identity.store_lsns()
    peer.flush()
    peer.restart()
    assert peer.identity.start_of(node.identity.id) == Start(1, node.identity.start.token, lsn)
