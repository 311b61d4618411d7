"""The core of a consumer that shares partitions with the other members of its group.

Heartbeats, and whatever else a member has to say, go out from a task on the loop, also while the user's code works for
minutes. What follows from the answers is decided in `grouping`; here it is carried out:

- A partition that is lost is dropped at once: no further record of it is handed out.
- One that is revoked stops, too. It is let go of when the user asks for the next record, and so has finished the last:
  then what is finished is committed (if that happens by itself) and the group is told. So while nobody dies, each
  record is processed once, and whoever gets the partition waits until it is free.
- One that is assigned begins where the group is, else where the user wants.
- While the writer is away, everything goes on.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from flotilla.client.config import ConsumerConfig
from flotilla.client.consuming import Change, Consuming, Kind, share_of
from flotilla.client.engine import Engine
from flotilla.client.errors import FlotillaError, MemberGone, NotAllowed, Refused, ServerUnreachable
from flotilla.client.grouping import Call, Member, Told
from flotilla.client.lanes import Chunk, Lane
from flotilla.client.offsets import Offsets, name
from flotilla.client.positions import Place, Share, Wanted

_PAUSE_S = 0.2  # after something failed
_LEAVE_S = 5.0

log = logging.getLogger("flotilla.client")


class _Had(NamedTuple):
    """A partition that is worked on, and the hold in which it is."""

    lane: Lane
    hold: int


class GroupConsuming(Consuming):
    """A consumer that is a member of a group. `member_id` is its own, or drawn; `is_id_given` says which."""

    is_patient = True  # the group knows what is gone, and soon tells

    def __init__(
        self,
        engine: Engine,
        config: ConsumerConfig,
        wanted: Wanted,
        offsets: Offsets,
        *,
        member_id: str,
        is_id_given: bool,
        strategy: str,
    ) -> None:
        super().__init__(engine, config, wanted)
        self._calls = offsets
        self._id = member_id
        self._is_id_given = is_id_given
        self._strategy = strategy
        self._member = Member()
        self._had: dict[Share, _Had] = {}
        self._call_s = config.session_s / 3
        self._beat_at = 0.0
        self._turn = asyncio.Event()  # there is something to do before the next heartbeat
        self._progress: object = None
        self._progress_at = 0.0
        self._is_aside = False  # it has left, because nobody asks for records

    # -- what faces call ------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Join. Raises Refused, ServerUnreachable."""
        await self.find_shares()
        try:
            answer = await self._say(Call.JOIN, self.engine.config.request_s)
        except ServerUnreachable:
            self._member = self._member.with_unanswered_join()
            raise
        self._heed(self._member.life, Call.JOIN, answer)
        await self._supply()
        self._progress_at = self.engine.clock()
        self.run(self._belong())

    def ask(self) -> Chunk | Change | None:
        """Return what comes next, or None if there is nothing yet."""
        if self._is_aside:
            self._is_aside = False
            self.call_soon(self._turn.set)
        while isinstance(found := super().ask(), Change):
            if (change := found.still_true()).lanes:
                return change
        return found

    async def settle(self, change: Change) -> None:
        """Let go of what is revoked, now that the user has finished there."""
        if change.kind is not Kind.REVOKED:
            return
        if self.config.auto_commit_s is not None:
            await self.commit_quietly([lane for lane in change.lanes if self._has(lane)])
        shares = [share_of(lane) for lane in change.lanes if self._has(lane)]
        holds = {share: self._had[share].hold for share in shares}
        for share in shares:
            self.forget(self._had.pop(share).lane)
        self._become(self._member.with_let_go(holds))

    async def leave(self) -> None:
        """Leave the group, so that others need not wait for the timeout."""
        if self._member.generation:
            try:
                await self._calls.call("leave", self._me, min(_LEAVE_S, self.config.session_s))
            except FlotillaError as error:
                log.info("group '%s': could not say goodbye: %s", self.wanted.group, error)

    async def send_commit(self, offsets: Offsets, shares: Mapping[Share, int]) -> None:
        """Commit as a member. Raises Refused, ServerUnreachable."""
        member = self._member
        if not member.generation:
            raise MemberGone("this consumer is not a member of its group at the moment", "unknown_member", {})
        sent = {share: member.held[share] for share in shares if share in member.held}
        try:
            await offsets.commit(shares, (self._id, member.generation), self.engine.config.request_s)
        except MemberGone as error:
            self._end_life(member.life, error)
            raise
        except Refused as error:
            if error.code == "not_owner":
                refused = {Place(one["topic"], one["partition"]) for one in error.details.get("partitions", ())}
                lost = {share: hold for share, hold in sent.items() if share.place in refused}
                self._become(self._member.with_let_go(lost))
            raise

    # -- the member -----------------------------------------------------------------------------------------

    async def _belong(self) -> None:
        """Be a member, until this is cancelled. What is raised here is for the user.

        One that is replaced cancels this from within, which takes effect when it waits next: by then it would have
        sent another join, and thrown out the one that replaced it.
        """
        while self.error is None:
            await self._wait_for_turn()
            if self._is_neglected():
                await self._step_aside()
            elif not self._is_aside:
                await self._talk()
                await self._supply()

    async def _wait_for_turn(self) -> None:
        """Wait until there is something to say, or it is time for a heartbeat."""
        if self._member.next_call is Call.BEAT or self._is_aside:
            left_s = self._call_s if self._is_aside else max(0.0, self._beat_at - self.engine.clock())
            try:
                async with asyncio.timeout(left_s):
                    await self._turn.wait()
            except TimeoutError:
                return
        self._turn.clear()

    async def _talk(self) -> None:
        """Say what is to be said, and do what follows. Raises Refused if the user has to know."""
        member = self._member
        call = member.next_call
        try:
            answer = await self._say(call, self._call_s)
        except MemberGone as error:
            self._end_life(member.life, error)
        except ServerUnreachable as error:
            log.info("group '%s': no answer to a %s: %s", self.wanted.group, call.name.lower(), error)
            if call is Call.JOIN:
                self._member = self._member.with_unanswered_join()
            await asyncio.sleep(_PAUSE_S)
        else:
            self._heed(member.life, call, answer)

    def _heed(self, life: int, call: Call, answer: Mapping[str, Any]) -> None:
        self._beat_at = self.engine.clock() + answer["heartbeat_ms"] / 1000
        if call is Call.JOIN:
            self._become(self._member.with_joined(_told(answer)))
        elif self._member.life != life or not self._member.generation:
            return  # a commit was told meanwhile that this life is over
        elif call is Call.SYNC:
            self._become(self._member.with_told(_told(answer)))
        else:
            self._become(self._member.with_beaten(should_sync=answer["sync"]))

    async def _say(self, call: Call, seconds: float) -> Any:  # noqa: ANN401 - any JSON
        """Make a call. Raises Refused, ServerUnreachable."""
        member, body = self._member, self._me
        match call:
            case Call.JOIN:
                timeout_ms = int(self.config.session_s * 1000)
                body = {"member_id": self._id, "topics": self.wanted.topics, "timeout_ms": timeout_ms}
                return await self._calls.call("join", {**body, "strategy": self._strategy}, seconds)
            case Call.SYNC:
                return await self._calls.call("sync", {**body, "owned": [name(one) for one in member.held]}, seconds)
            case Call.BEAT:
                return await self._calls.call("heartbeat", {**body, "held": len(member.held)}, seconds)

    @property
    def _me(self) -> dict[str, Any]:
        return {"member_id": self._id, "generation": self._member.generation}

    def _end_life(self, life: int, error: MemberGone) -> None:
        """Drop everything, to join again; or never again, if another process has this id."""
        ended = self._member.with_life_ended(life)
        if ended is self._member:
            return
        log.warning("group '%s': this member is out: %s", self.wanted.group, error)
        if self._member.is_replaced(error.code, is_id_given=self._is_id_given):
            text = f"another consumer has joined group '{self.wanted.group}' as '{self._id}'"
            self.error = MemberGone(text, error.code, error.details)
            self.end_tasks()
        self._become(ended)

    # -- carrying out ---------------------------------------------------------------------------------------

    def _become(self, member: Member) -> None:
        """Take on a new state: drop what is lost, stop what is revoked, and go on if there is something to say."""
        self._member = member
        self._drop([share for share, had in self._had.items() if member.held.get(share) != had.hold])
        revoked = [self._had[share].lane for share in member.revoked if share in self._had]
        new = tuple(lane for lane in revoked if not lane.is_stopped)
        for lane in new:
            self.fetcher.stop(lane)
        self._tell(Kind.REVOKED, new)
        never_begun = {share: member.held[share] for share in member.revoked if share not in self._had}
        self._member = member.with_let_go(never_begun)
        if self._member.next_call is not Call.BEAT:
            self._turn.set()

    def _drop(self, shares: list[Share]) -> None:
        lanes = tuple(self._had.pop(share).lane for share in shares)
        for lane in lanes:
            lane.is_lost = True
            self.forget(lane)
        self._tell(Kind.LOST, lanes)

    def _tell(self, kind: Kind, lanes: tuple[Lane, ...]) -> None:
        if lanes:
            self.changes.append(Change(kind, lanes))
            self.interrupt()

    def _has(self, lane: Lane) -> bool:
        had = self._had.get(share_of(lane))
        return had is not None and had.lane is lane

    async def _supply(self) -> None:
        """Begin with whatever is held and not worked on yet; what does not succeed is tried again."""
        member = self._member
        missing = [share for share in member.held if share not in self._had and share not in member.revoked]
        if not missing:
            return
        try:
            committed = await self._calls.load(self._call_s / 2)
        except NotAllowed:
            raise
        except (Refused, ServerUnreachable) as error:
            self._try_later(error)
            return
        for topic in dict.fromkeys(share.topic_id for share in missing):
            await self._supply_of([share for share in missing if share.topic_id == topic], member, committed)

    async def _supply_of(self, shares: list[Share], member: Member, committed: Mapping[Place, int]) -> None:
        """Begin with partitions of one topic: one that is gone must not hold up the others."""
        try:
            lanes = await self.open(shares, committed, self._call_s / 2)
        except NotAllowed:
            raise
        except (Refused, ServerUnreachable) as error:
            self._try_later(error)
            return
        for share, lane in zip(shares, lanes, strict=True):
            self._had[share] = _Had(lane, member.held[share])
        self._tell(Kind.ASSIGNED, tuple(lanes))
        self._become(self._member)  # something may be lost or revoked since

    def _try_later(self, error: FlotillaError) -> None:
        log.info("group '%s': cannot begin with a partition yet: %s", self.wanted.group, error)
        self._beat_at = min(self._beat_at, self.engine.clock() + _PAUSE_S)

    # -- a user who does not ask for records ----------------------------------------------------------------

    def _is_neglected(self) -> bool:
        """Tell whether nobody has asked for a record for too long."""
        progress = (self.asks, sum(had.lane.position for had in self._had.values()))
        if progress != self._progress or self.is_waited_for:
            self._progress, self._progress_at = progress, self.engine.clock()
        limit_s = self.config.max_poll_s
        return limit_s is not None and not self._is_aside and self.engine.clock() - self._progress_at > limit_s

    async def _step_aside(self) -> None:
        """Leave, so that others can have the partitions; join again when somebody asks."""
        log.warning("group '%s': nobody asked for a record for max_poll_s: leaving", self.wanted.group)
        self._is_aside = True
        self._progress = None
        await self.leave()
        self._become(self._member.with_life_ended(self._member.life))


def _told(answer: Mapping[str, Any]) -> Told:
    ids = answer["topic_ids"]
    assigned, revoked = (
        [Share(one["topic"], ids[one["topic"]], one["partition"]) for one in answer[which] if one["topic"] in ids]
        for which in ("assigned", "revoked")
    )
    return Told(generation=answer["generation"], assigned=assigned, revoked=revoked)
