"""The core of a consumer that is a member of a consumer group with assignment.

A task on the event loop sends heartbeats and all other requests of the member, also while the user's code works for
minutes. `member_state` decides what follows from the responses; this module carries it out:

- A lost partition is removed at once: no further record of it is returned.
- A revoked partition stops as well. It is released when the user requests the next record, and so has processed the
  last one: then processed offsets are committed (with automatic commits), and the next sync reports the release. So
  while no member fails, each record is processed once: the next owner starts only after the release.
- An assigned partition starts at the committed offset of the group, else at the consumer's start option.
- While the writer is unavailable, consumption continues.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from flotilla.client.config import ConsumerConfig
from flotilla.client.consumer_core import AssignmentChange, ChangeKind, ConsumerCore, id_partition_of
from flotilla.client.engine import Engine
from flotilla.client.errors import FlotillaError, MemberGone, NotAllowed, Refused, ServerUnreachable
from flotilla.client.group_client import GroupClient, to_json
from flotilla.client.member_state import Assignment, GroupRequest, MemberState
from flotilla.client.partition_fetch import BatchCursor, PartitionFetch
from flotilla.client.positions import Subscription, TopicIdPartition, TopicPartition

_RETRY_S = 0.2  # pause after a failed request
_LEAVE_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class _OpenPartition(NamedTuple):
    """A partition that is being fetched, and the claim under which the member owns it."""

    fetch: PartitionFetch
    claim: int


class GroupConsumerCore(ConsumerCore):
    """A member of a consumer group. `is_id_given`: the user chose `member_id`; otherwise it is random."""

    retries_missing_topic = True  # the group revokes partitions of deleted topics

    def __init__(
        self,
        engine: Engine,
        config: ConsumerConfig,
        subscription: Subscription,
        offsets: GroupClient,
        *,
        member_id: str,
        is_id_given: bool,
        strategy: str,
    ) -> None:
        super().__init__(engine, config, subscription)
        self._coordinator = offsets
        self._id = member_id
        self._is_id_given = is_id_given
        self._strategy = strategy
        self._member = MemberState()
        self._opened: dict[TopicIdPartition, _OpenPartition] = {}
        self._request_timeout_s = config.session_s / 3
        self._heartbeat_at = 0.0
        self._wakeup = asyncio.Event()  # there is work before the next heartbeat is due
        self._progress: object = None
        self._progress_at = 0.0
        self._has_left_idle = False  # it has left the group because the user does not poll

    # -- calls of the consumer ------------------------------------------------------------------------------

    async def subscribe(self) -> None:
        """Join the group, and open the assigned partitions. Raises Refused, ServerUnreachable."""
        self.keep_initial_partitions(await self.find_partitions())
        try:
            response = await self._send(GroupRequest.JOIN, self.engine.config.request_s)
        except ServerUnreachable:
            self._member = self._member.with_unanswered_join()
            raise
        self._apply_response(self._member.session, GroupRequest.JOIN, response)
        await self._open_assigned()
        self._progress_at = self.engine.clock()
        self.run_in_background(self._run_membership())

    def poll(self) -> BatchCursor | AssignmentChange | None:
        """Return the next batch or change, or None if there is none yet. Rejoins a group that it left idle."""
        if self._has_left_idle:
            self._has_left_idle = False
            self.call_soon(self._wakeup.set)
        while isinstance(found := super().poll(), AssignmentChange):
            if (change := found.take_current()).fetches:
                return change
        return found

    async def complete_change(self, change: AssignmentChange) -> None:
        """Release revoked partitions, now that the user has processed their records."""
        if change.kind is not ChangeKind.REVOKED:
            return
        if self.config.auto_commit_s is not None:
            await self.auto_commit([fetch for fetch in change.fetches if self._has(fetch)])
        partitions = [id_partition_of(fetch) for fetch in change.fetches if self._has(fetch)]
        claims = {tp: self._opened[tp].claim for tp in partitions}
        for tp in partitions:
            self.remove(self._opened.pop(tp).fetch)
        self._apply_state(self._member.with_released(claims))

    async def leave(self) -> None:
        """Leave the group, so that other members need not wait for the session timeout."""
        if self._member.generation:
            try:
                await self._coordinator.call("leave", self._me, min(_LEAVE_TIMEOUT_S, self.config.session_s))
            except FlotillaError as error:
                logger.info("leave request failed group=%s error=%r", self.subscription.group, str(error))

    async def send_commit(self, offsets: GroupClient, partitions: Mapping[TopicIdPartition, int]) -> None:
        """Send a commit with the member id and generation. Raises Refused, ServerUnreachable."""
        member = self._member
        if not member.generation:
            raise MemberGone("this consumer is currently not a member of its group", "unknown_member", {})
        sent = {tp: member.owned[tp] for tp in partitions if tp in member.owned}
        try:
            await offsets.commit(partitions, (self._id, member.generation), self.engine.config.request_s)
        except MemberGone as error:
            self._end_session(member.session, error)
            raise
        except Refused as error:
            if error.code == "not_owner":
                refused = {
                    TopicPartition(one["topic"], one["partition"]) for one in error.details.get("partitions", ())
                }
                lost = {tp: claim for tp, claim in sent.items() if tp.topic_partition in refused}
                self._apply_state(self._member.with_released(lost))
            raise

    # -- membership -----------------------------------------------------------------------------------------

    async def _run_membership(self) -> None:
        """Maintain the membership until cancelled. Errors are raised to the user by the next poll.

        A member that another process replaced cancels this task from within. The cancellation takes effect at the next
        await; without the check of `error`, it would first send another join, and remove its replacement.
        """
        while self.error is None:
            await self._wait_for_wakeup()
            if self._is_poll_overdue():
                await self._leave_until_polled()
            elif not self._has_left_idle:
                await self._send_next_request()
                await self._open_assigned()

    async def _wait_for_wakeup(self) -> None:
        """Wait until there is a request to send, or a heartbeat is due."""
        if self._member.next_request is GroupRequest.HEARTBEAT or self._has_left_idle:
            left_s = (
                self._request_timeout_s if self._has_left_idle else max(0.0, self._heartbeat_at - self.engine.clock())
            )
            try:
                async with asyncio.timeout(left_s):
                    await self._wakeup.wait()
            except TimeoutError:
                return
        self._wakeup.clear()

    async def _send_next_request(self) -> None:
        """Send the next request, and apply the response. Raises Refused for errors that the user must handle."""
        member = self._member
        request = member.next_request
        try:
            response = await self._send(request, self._request_timeout_s)
        except MemberGone as error:
            self._end_session(member.session, error)
        except ServerUnreachable as error:
            logger.info(
                "group request failed, retrying group=%s request=%s error=%r",
                self.subscription.group,
                request.name.lower(),
                str(error),
            )
            if request is GroupRequest.JOIN:
                self._member = self._member.with_unanswered_join()
            await asyncio.sleep(_RETRY_S)
        else:
            self._apply_response(member.session, request, response)

    def _apply_response(self, session: int, request: GroupRequest, response: Mapping[str, Any]) -> None:
        self._heartbeat_at = self.engine.clock() + response["heartbeat_ms"] / 1000
        if request is GroupRequest.JOIN:
            self._apply_state(self._member.with_joined(_parse_assignment(response)))
        elif self._member.session != session or not self._member.generation:
            return  # a commit found out meanwhile that this session has ended
        elif request is GroupRequest.SYNC:
            self._apply_state(self._member.with_assignment(_parse_assignment(response)))
        else:
            self._apply_state(self._member.with_heartbeat(should_sync=response["sync"]))

    async def _send(self, request: GroupRequest, timeout_s: float) -> Any:  # noqa: ANN401 - any JSON
        """Send a request to the group coordinator. Raises Refused, ServerUnreachable."""
        member, body = self._member, self._me
        match request:
            case GroupRequest.JOIN:
                timeout_ms = int(self.config.session_s * 1000)
                body = {"member_id": self._id, "topics": self.subscription.topics, "timeout_ms": timeout_ms}
                return await self._coordinator.call("join", {**body, "strategy": self._strategy}, timeout_s)
            case GroupRequest.SYNC:
                return await self._coordinator.call(
                    "sync", {**body, "owned": [to_json(one) for one in member.owned]}, timeout_s
                )
            case GroupRequest.HEARTBEAT:
                return await self._coordinator.call("heartbeat", {**body, "held": len(member.owned)}, timeout_s)

    @property
    def _me(self) -> dict[str, Any]:
        return {"member_id": self._id, "generation": self._member.generation}

    def _end_session(self, session: int, error: MemberGone) -> None:
        """Drop all partitions, and rejoin; stop with an error if another process joined with this member id."""
        ended = self._member.with_session_ended(session)
        if ended is self._member:
            return
        logger.warning("membership lost group=%s error=%r", self.subscription.group, str(error))
        if self._member.is_replaced(error.code, is_id_given=self._is_id_given):
            text = f"another consumer joined group '{self.subscription.group}' with member_id '{self._id}'"
            self.error = MemberGone(text, error.code, error.details)
            self.cancel_tasks()
        self._apply_state(ended)

    # -- applying state changes -----------------------------------------------------------------------------

    def _apply_state(self, member: MemberState) -> None:
        """Adopt a new state: remove lost partitions, stop revoked ones, and wake the task if a request is due."""
        self._member = member
        self._drop([tp for tp, opened in self._opened.items() if member.owned.get(tp) != opened.claim])
        revoked = [self._opened[tp].fetch for tp in member.revoked if tp in self._opened]
        new = tuple(fetch for fetch in revoked if not fetch.is_stopped)
        for fetch in new:
            self.fetcher.stop(fetch)
        self._announce(ChangeKind.REVOKED, new)
        never_opened = {tp: member.owned[tp] for tp in member.revoked if tp not in self._opened}
        self._member = member.with_released(never_opened)
        if self._member.next_request is not GroupRequest.HEARTBEAT:
            self._wakeup.set()

    def _drop(self, partitions: list[TopicIdPartition]) -> None:
        fetches = tuple(self._opened.pop(tp).fetch for tp in partitions)
        for fetch in fetches:
            fetch.is_lost = True
            self.remove(fetch)
        self._announce(ChangeKind.LOST, fetches)

    def _announce(self, kind: ChangeKind, fetches: tuple[PartitionFetch, ...]) -> None:
        if fetches:
            self.changes.append(AssignmentChange(kind, fetches))
            self.interrupt()

    def _has(self, fetch: PartitionFetch) -> bool:
        opened = self._opened.get(id_partition_of(fetch))
        return opened is not None and opened.fetch is fetch

    async def _open_assigned(self) -> None:
        """Open all owned partitions that are not open yet; retry later on errors."""
        member = self._member
        missing = [tp for tp in member.owned if tp not in self._opened and tp not in member.revoked]
        if not missing:
            return
        try:
            committed = await self._coordinator.load_offsets(self._request_timeout_s / 2)
        except NotAllowed:
            raise
        except (Refused, ServerUnreachable) as error:
            self._retry_soon(error)
            return
        for topic in dict.fromkeys(tp.topic_id for tp in missing):
            await self._open_assigned_of_topic([tp for tp in missing if tp.topic_id == topic], member, committed)

    async def _open_assigned_of_topic(
        self, partitions: list[TopicIdPartition], member: MemberState, committed: Mapping[TopicPartition, int]
    ) -> None:
        """Open partitions of one topic: a deleted topic must not delay the others."""
        try:
            fetches = await self.open_partitions(partitions, committed, self._request_timeout_s / 2)
        except NotAllowed:
            raise
        except (Refused, ServerUnreachable) as error:
            self._retry_soon(error)
            return
        for tp, fetch in zip(partitions, fetches, strict=True):
            self._opened[tp] = _OpenPartition(fetch, member.owned[tp])
        self._announce(ChangeKind.ASSIGNED, tuple(fetches))
        self._apply_state(self._member)  # partitions may have been lost or revoked meanwhile

    def _retry_soon(self, error: FlotillaError) -> None:
        logger.info("partition start failed, retrying group=%s error=%r", self.subscription.group, str(error))
        self._heartbeat_at = min(self._heartbeat_at, self.engine.clock() + _RETRY_S)

    # -- max_poll_s -----------------------------------------------------------------------------------------

    def _is_poll_overdue(self) -> bool:
        """Return whether the user has not polled for longer than `max_poll_s`."""
        progress = (self.polls, sum(opened.fetch.position for opened in self._opened.values()))
        if progress != self._progress or self.has_waiter:
            self._progress, self._progress_at = progress, self.engine.clock()
        limit_s = self.config.max_poll_s
        return limit_s is not None and not self._has_left_idle and self.engine.clock() - self._progress_at > limit_s

    async def _leave_until_polled(self) -> None:
        """Leave the group, so that other members get the partitions; the next poll rejoins."""
        logger.warning("max_poll_s exceeded, leaving the group group=%s", self.subscription.group)
        self._has_left_idle = True
        self._progress = None
        await self.leave()
        self._apply_state(self._member.with_session_ended(self._member.session))


def _parse_assignment(response: Mapping[str, Any]) -> Assignment:
    ids = response["topic_ids"]
    assigned, revoked = (
        [
            TopicIdPartition(one["topic"], ids[one["topic"]], one["partition"])
            for one in response[which]
            if one["topic"] in ids
        ]
        for which in ("assigned", "revoked")
    )
    return Assignment(generation=response["generation"], assigned=assigned, revoked=revoked)
