"""Members of a consumer group: one that a test controls step by step, and one that runs in a thread."""

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.grouphistory import Accepted, Tenure
from support.history import Name

Partition = tuple[str, int]
_QUICK_S = 1.0  # for calls to the writer, so that work continues while it is unavailable
_LOST = {"unknown_member", "stale_generation"}


class Refused(Exception):
    """An error response."""

    def __init__(self, response: httpx.Response) -> None:
        self.body: dict[str, Any] = response.json()
        self.status = response.status_code
        self.code = str(self.body.get("code"))
        super().__init__(f"{self.status} {self.body}")


def body_of(response: httpx.Response) -> dict[str, Any]:
    """Return the body of a response. Raises Refused."""
    if response.status_code != 200:
        raise Refused(response)
    found: dict[str, Any] = response.json()
    return found


class Member:
    """One member, controlled step by step."""

    def __init__(
        self, client: httpx.Client, group: str, id_: str, topics: Iterable[str], timeout_ms: int = 10_000
    ) -> None:
        self._client = client
        self.group = group
        self.id = id_
        self._topics = list(topics)
        self._timeout_ms = timeout_ms
        self.generation = 0
        self.assigned: set[Partition] = set()
        self.revoked: set[Partition] = set()
        self.state = ""

    def call(self, what: str, body: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        """Send a request about the group. Raises Refused, httpx.HTTPError."""
        options: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
        return body_of(self._client.post(f"/v1/groups/{self.group}/{what}", json=body, **options))

    @property
    def _me(self) -> dict[str, Any]:
        return {"member_id": self.id, "generation": self.generation}

    def join(self, timeout_s: float | None = None, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        body = {"topics": self._topics, "member_id": self.id, "timeout_ms": self._timeout_ms, **options}
        return self._take(self.call("join", body, timeout_s))

    def sync(self, timeout_s: float | None = None, owned: Iterable[Partition] | None = None) -> dict[str, Any]:
        """Report the owned partitions, without the revoked ones."""
        has = self.assigned if owned is None else owned
        body = {**self._me, "owned": [{"topic": topic, "partition": at} for topic, at in sorted(has)]}
        return self._take(self.call("sync", body, timeout_s))

    def heartbeat(self, timeout_s: float | None = None) -> dict[str, Any]:
        held = len(self.assigned | self.revoked)
        return self.call("heartbeat", {**self._me, "held": held}, timeout_s)

    def leave(self) -> None:
        self.call("leave", self._me)
        self.assigned, self.revoked = set(), set()

    def commit(self, offsets: dict[Partition, int], **options: Any) -> None:  # noqa: ANN401 - any JSON
        rows = [{"topic": topic, "partition": at, "offset": offset} for (topic, at), offset in offsets.items()]
        self.call("commit", {**self._me, "offsets": rows, **options})

    def _take(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.generation, self.state = answer["generation"], answer["state"]
        self.assigned = {(one["topic"], one["partition"]) for one in answer["assigned"]}
        self.revoked = {(one["topic"], one["partition"]) for one in answer["revoked"]}
        return answer


def settle(*members: Member) -> None:
    """Let members sync until the group is stable."""
    for _ in range(50):
        wanted = [member for member in members if member.heartbeat()["sync"]]
        for member in wanted:
            member.sync()
        if not wanted and all(member.heartbeat()["state"] == "stable" for member in members):
            return
    raise AssertionError(f"not stable: {[(one.id, one.assigned, one.state) for one in members]}")


@dataclass
class Worker:
    """A member that runs by itself: fetches, processes, commits, and records what it did."""

    url: str
    group: str
    topic: str
    name: str
    timeout_ms: int = 3000
    processed: list[Name] = field(default_factory=list)
    commits: list[Accepted] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop, self._heartbeats_paused = threading.Event(), threading.Event()
        self._tenures: dict[int, Tenure] = {}
        self._count = 0
        self._positions: dict[int, int] = {}
        self._heartbeat_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def pause_heartbeats(self) -> None:
        """Stop heartbeats, but continue to work."""
        self._heartbeats_paused.set()

    def resume_heartbeats(self) -> None:
        self._heartbeats_paused.clear()

    @property
    def partitions(self) -> set[int]:
        """Partitions that it works on."""
        return set(self._positions)

    def describe(self) -> str:
        """Describe its state, for a failure of a test."""
        member = getattr(self, "_member", None)
        return (
            f"{self.name}: partitions {self._positions}, generation {member and member.generation}, "
            f"{len(self.commits)} commits, last refusals {self.refusals[-5:]}"
        )

    def check(self) -> None:
        """Raise the error of the thread, if it has ended with one."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Leave the group, and stop. Raises the error of the thread."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        self.check()

    def _run(self) -> None:
        try:
            with httpx.Client(base_url=self.url, timeout=20) as client:
                self._member = Member(client, self.group, self.name, [self.topic], self.timeout_ms)
                self._client = client
                while not self._stop.is_set():
                    self._step()
                with contextlib.suppress(Refused, httpx.HTTPError):
                    self._member.leave()
        except BaseException as error:  # noqa: BLE001 - raised again by `end`
            self._error = error

    def _step(self) -> None:
        try:
            if not self._heartbeats_paused.is_set():
                self._poll_group()
            if not self._positions:
                time.sleep(0.02)
            for partition in sorted(self._positions):
                self._work(partition)
        except httpx.HTTPError:
            time.sleep(0.02)  # no response: retry
        except Refused as refused:
            self._on_refused(refused)

    def _poll_group(self) -> None:
        """Join or send a heartbeat, and apply the assignment."""
        if not self._member.generation:
            self._member.join(_QUICK_S)
            self._begin()
        elif time.monotonic() >= self._heartbeat_at:
            self._heartbeat_at = time.monotonic() + self.timeout_ms / 3000  # also if there is no response
            heartbeat = self._member.heartbeat(_QUICK_S)
            self._heartbeat_at = time.monotonic() + heartbeat["heartbeat_ms"] / 1000
            if heartbeat["sync"]:
                self._member.sync(_QUICK_S)
                self._begin()

    def _begin(self) -> None:
        """Drop partitions that it does not own, and start new ones at the committed offset."""
        mine = {partition for _, partition in self._member.assigned}
        for partition in set(self._positions) - mine:
            del self._positions[partition]
        new = mine - set(self._positions)
        if new:
            found = body_of(self._client.get(f"/v1/groups/{self.group}/offsets", params={"topic": self.topic}))
            offsets = {one["partition"]: one["offset"] for one in found["offsets"]}
            for partition in new:
                self._count += 1
                self._tenures[partition] = Tenure(self.name, self._count)
                self._positions[partition] = offsets.get(partition, 0)

    def _work(self, partition: int) -> None:
        params: dict[str, Any] = {
            "topic": self.topic,
            "partition": partition,
            "offset": self._positions[partition],
            "wait_ms": 20,
        }
        found = body_of(self._client.get("/v1/fetch", params=params, headers={"accept": "application/json"}))
        for record in found["records"]:
            producer, number, _ = record["value"].split(" ", 2)
            self.processed.append(Name(producer, int(number)))
        if found["records"]:
            offset = found["next_offset"]
            sent = time.monotonic()
            self._member.commit({(self.topic, partition): offset})
            accepted = Accepted(partition, offset, self._tenures[partition], sent, time.monotonic())
            self.commits.append(accepted)
            self._positions[partition] = offset

    def _on_refused(self, refused: Refused) -> None:
        self.refusals.append(refused.code)
        if refused.code in _LOST:
            self._member.generation = 0
            self._positions.clear()
        elif refused.code == "not_owner":
            for one in refused.body["details"]["partitions"]:
                self._positions.pop(one["partition"], None)
                self._member.assigned.discard((one["topic"], one["partition"]))
            self._heartbeat_at = 0.0
        elif not refused.body.get("retryable"):
            raise refused
        else:
            time.sleep(0.02)
