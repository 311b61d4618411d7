"""A follower that is given a copy of the log: it writes the copy aside, and lets it take its log's place at the end."""

import logging
from collections.abc import Sequence

from flotilla_broker.log import DiskFull
from flotilla_broker.raft.copying import CopyIn
from flotilla_broker.raft.errors import EntryRefused
from flotilla_broker.raft.following import Following
from flotilla_broker.raft.guards import may_install
from flotilla_broker.raft.member import Member
from flotilla_broker.raft.messages import CopyBegin, CopyEntries, CopyReply, Entry

logger = logging.getLogger(__name__)


class Copied:
    """A member's part in being copied to."""

    def __init__(self, member: Member, following: Following) -> None:
        self._member = member
        self._following = following
        self.copy: CopyIn | None = None

    def on_begin(self, now: float, leader: str, message: CopyBegin) -> None:
        """Begin a copy, unless everything in it is here."""
        if self._following.is_deposed(leader, message.term):
            return
        member = self._member
        self._following.follow(now, leader, message.term)
        self.drop()
        if not may_install(member.log, member.commit_index, message.last_index, message.last_term):
            self._answer(leader, message.copy, message.last_index)
            return
        try:
            self.copy = CopyIn(member.log.log, member.machine, leader, message)
        except (DiskFull, EntryRefused) as error:
            self._give_up(leader, message.copy, error)
            return
        self._advance(leader, message.copy, ())

    def on_entries(self, now: float, leader: str, message: CopyEntries) -> None:
        """Take the next entries of a copy."""
        if not self._following.is_deposed(leader, message.term):
            self._following.follow(now, leader, message.term)
            self._advance(leader, message.copy, message.entries)

    def _advance(self, leader: str, number: int, entries: Sequence[Entry]) -> None:
        copy, term = self.copy, self._member.core.term
        if copy is None or (copy.leader, copy.begin.copy, copy.begin.term) != (leader, number, term):
            self._answer(leader, number, 0, given_up=True)
            return
        try:
            copy.add(entries)
        except (DiskFull, EntryRefused) as error:
            self._give_up(leader, number, error)
            return
        index = copy.last_index
        if copy.is_whole:
            self._install(copy)
        self._answer(leader, number, index)

    def _install(self, copy: CopyIn) -> None:
        """Let the copy take this log's place, unless everything in it arrived in another way meanwhile."""
        self.copy = None
        member, begin = self._member, copy.begin
        if not may_install(member.log, member.commit_index, begin.last_index, begin.last_term):
            copy.drop()
            return
        copy.install(member.log.number, member.log.term, member.log.group.vote)
        member.log.switch(copy.number)
        member.commit_index = begin.last_index
        member.core.reload(begin.last_index)
        member.machine.installed(begin.last_index, begin.state)

    def _give_up(self, leader: str, number: int, error: Exception) -> None:
        logger.warning("group %d gives up a copy from %s: %s", self._member.log.number, leader, error)
        self.drop()
        self._answer(leader, number, 0, given_up=True)

    def _answer(self, leader: str, copy: int, index: int, *, given_up: bool = False) -> None:
        self._member.promise(leader, CopyReply(self._member.core.term, copy, index, given_up))

    def drop(self) -> None:
        """Forget a copy that is under way."""
        if self.copy is not None:
            self.copy.drop()
            self.copy = None

    def drop_unless(self, term: int) -> None:
        """Forget a copy of another term."""
        if self.copy is not None and self.copy.begin.term != term:
            self.drop()

    def drop_from(self, leader: str) -> None:
        """Forget a copy that a leader was sending."""
        if self.copy is not None and self.copy.leader == leader:
            self.drop()
