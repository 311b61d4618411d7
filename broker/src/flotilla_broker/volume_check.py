"""Checks that the data folder is the latest state of this broker before its replicas take part in their groups.

A folder that was restored from a snapshot has lost votes and acknowledged entries, and so has a copy of it. If the
broker voted or replied again, acknowledged records could be lost. Others remember the LSN up to which its log was
durable:

- Other brokers receive it with every frame, store it once per second, and return it in the greeting of a connection.
- Managers receive it with every heartbeat, store it once per second, and return a verdict.

One that remembers more than this start has recovered proves that the folder is an older copy: `OlderCopy`. A replica
neither votes nor replies before enough others have confirmed that they do not. Enough is a manager, or a number of
other members of the group such that each majority with this replica included one of them. A new broker needs no
confirmation.

Memories lag behind: those of managers by the heartbeat interval and a second, those of peers by a second. A copy of the
files of a running broker needs no memory: a file of it has another identity. Replicas on such a copy need a manager and
other members, unless the group has none. And they do not vote before they have caught up with a leader that the others
have elected, and that has all committed entries. A copy of a stopped broker has everything. A restored block device has
the same files, so it can only be recognized by memories.

Pure: the shell passes greetings and verdicts.
"""

from collections.abc import Collection

from flotilla_broker.identity import Identity
from flotilla_broker.peer_batches import Greeting
from flotilla_broker.raft.guards import is_majority
from flotilla_server.broker_starts import Start


class OlderCopy(Exception):
    """The data folder is an older copy of the one that this broker had before."""


class DuplicateBroker(Exception):
    """Another process with the id of this broker is running: one of the two runs on a copy of the other's folder."""


class VolumeCheck:
    """The confirmations of one start."""

    def __init__(self, identity: Identity, *, has_managers: bool) -> None:
        """Without managers, only peers could confirm: then replicas take part at once, unless files were copied."""
        self._identity = identity
        self._has_managers = has_managers
        self._is_confirmed = False  # by a manager
        self._is_alone = False  # no manager has answered
        self._peers: set[str] = set()  # brokers that remember nothing later
        self._copies: set[str] = set()  # those that run on a copy themselves
        self.is_vouched = False  # replicas take part, because others have confirmed this start

    @property
    def is_copy(self) -> bool:
        """Whether the data folder is a copy of that of a running broker."""
        return self._identity.is_copy

    def greeting(self, peer: str) -> Greeting:
        """Return the greeting for another broker."""
        identity = self._identity
        return Greeting(identity.start, identity.start_of(peer), identity.recovered_lsn, identity.is_copy)

    def on_greeting(self, peer: str, greeting: Greeting) -> bool:
        """Record another broker's greeting; return whether that broker may take part.

        Raises OlderCopy, or DuplicateBroker if this start was confirmed before.
        """
        self._check(greeting.yours, f"broker {peer}")
        if self._identity.record_start(peer, greeting.mine, greeting.recovered_lsn):
            return False
        self._peers.add(peer)
        (self._copies.add if greeting.is_copy else self._copies.discard)(peer)
        return True

    def _check(self, known: Start, who: str) -> None:
        own = self._identity.start
        if not own.is_older_copy(self._identity.recovered_lsn, known):
            return
        if self.is_vouched:
            raise DuplicateBroker
        raise OlderCopy(
            f"log is an older copy: {who} has seen start {known.number} of this broker, with LSN {known.lsn}; "
            f"this is start {own.number}, which recovered LSN {self._identity.recovered_lsn}"
        )

    def on_confirmed(self) -> None:
        """Record that a manager confirmed the start."""
        self._is_confirmed = True

    def on_no_manager(self) -> None:
        """Record that no manager has answered for a while. Groups without other members do not wait any longer."""
        self._is_alone = not self._is_confirmed

    def admit(self, members: Collection[str]) -> bool:
        """Return whether a replica of a group may take part. The first admission is stored."""
        identity = self._identity
        by_manager = self._is_confirmed or not self._has_managers
        by_peers = len(self._peers.intersection(members)) >= confirmations_needed(len(members))
        needs_both = identity.is_copy and len(members) > 1
        by_manager = by_manager or (self._is_alone and len(members) == 1)
        if not (identity.is_new or (by_manager and by_peers) or ((by_manager or by_peers) and not needs_both)):
            return False
        self.is_vouched = self.is_vouched or by_peers or self._is_confirmed
        identity.confirm_start()
        return True

    def may_vote(self, members: Collection[str]) -> bool:
        """Return whether an admitted replica may vote before it has followed a leader.

        On a copy it may not, unless the others cannot elect a leader. If most members run on copies, all of them must
        be connected, because any of them may have the most entries.
        """
        if not self._identity.is_copy or len(members) == 1:
            return True
        others = {member for member in members if member != self._identity.id}
        return others <= self._peers and not is_majority(len(others - self._copies), len(members))


def confirmations_needed(members: int) -> int:
    """Return how many other members of a group must confirm a start.

    A majority that included this member had at least `members // 2` other members. Of the `members - 1` others, any
    `members - members // 2` include one of those. A group of one needs one, so only a manager can confirm it.
    """
    return members - members // 2
