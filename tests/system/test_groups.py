"""Consumer groups on real processes: members join, leave and expire; the writer is killed; no record is lost."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flotilla.limits import SESSION_MS_MIN
from flotilla.records import encode
from support.cluster import wait_until
from support.fleet import Fleet
from support.grouphistory import violations
from support.groupmember import Member, Refused, Worker, body_of, settle
from support.history import Outcome
from support.load import Load
from support.postgres import running_postgres

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
PARTITIONS = 4
AWAY = 503


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(Path(tmp_path_factory.mktemp("fleet")), brokers=1) as fleet:
        yield fleet


def a_topic(fleet: Fleet, name: str, partitions: int = PARTITIONS, records: int = 0) -> None:
    """Create a topic with a number of records in each partition."""
    body_of(fleet.client.post("/v1/topics", json={"name": name, "partitions": partitions, "replication": 1}))
    for partition in range(partitions if records else 0):
        append(fleet, name, partition, records)


def append(fleet: Fleet, topic: str, partition: int, records: int) -> int:
    batch = bytes(encode([str(at).encode() for at in range(records)]))
    params: dict[str, Any] = {"topic": topic, "partition": partition}
    return int(body_of(fleet.client.post("/v1/append", params=params, content=batch))["append_time_ms"])


def member(fleet: Fleet, topic: str, id_: str = "a", group: str | None = None, timeout_ms: int = 10_000) -> Member:
    return Member(fleet.client, group or f"{topic}-readers", id_, [topic], timeout_ms)


def describe(fleet: Fleet, group: str) -> dict[str, Any]:
    return body_of(fleet.client.get(f"/v1/groups/{group}"))


def offsets(fleet: Fleet, group: str) -> dict[tuple[str, int], int]:
    found = body_of(fleet.client.get(f"/v1/groups/{group}/offsets"))["offsets"]
    return {(one["topic"], one["partition"]): one["offset"] for one in found}


def refused(code: str, status: int = 409) -> Any:  # noqa: ANN401 - pytest's own
    """Expect an error response."""
    return pytest.raises(Refused, match=f"^{status} .*'{code}'")


def test_members_share_partitions_as_they_join_and_leave(fleet: Fleet) -> None:
    """Each partition has one owner at a time: it moves only after its owner has released it."""
    a_topic(fleet, "shared")
    one, two = member(fleet, "shared", "one"), member(fleet, "shared", "two")
    assert one.join()["state"] == "stable"
    assert len(one.assigned) == PARTITIONS
    answer = two.join()
    assert (answer["assigned"], answer["pending"], answer["state"]) == ([], 2, "rebalancing")
    assert one.heartbeat()["sync"]
    one.sync(owned=one.assigned)
    assert (len(one.assigned), len(one.revoked)) == (2, 2)
    two.sync()
    assert two.assigned == set(), "the owner has not released it yet"
    for place in one.revoked:  # a member owns revoked partitions until it releases them
        one.commit({place: 1})
    settle(one, two)
    assert one.assigned.isdisjoint(two.assigned)
    assert len(one.assigned | two.assigned) == PARTITIONS
    two.leave()
    settle(one)
    assert len(one.assigned) == PARTITIONS
    with refused("unknown_member"):
        two.heartbeat()


def test_group_description_is_complete(fleet: Fleet) -> None:
    a_topic(fleet, "told", 2, records=10)
    one = member(fleet, "told")
    one.join()
    one.commit({("told", 0): 4})
    found = describe(fleet, "told-readers")
    assert (found["state"], found["strategy"], found["generation"]) == ("stable", "sticky", one.generation)
    assert found["members"] == [
        {
            "member_id": "a",
            "topics": ["told"],
            "timeout_ms": 10_000,
            "generation": one.generation,
            "assigned": [{"topic": "told", "partition": 0}, {"topic": "told", "partition": 1}],
        }
    ]
    row = {"topic": "told", "owner": "a", "note": None, "first_offset": 0, "next_offset": 10}
    assert found["partitions"] == [
        {**row, "partition": 0, "committed": 4, "lag": 6},
        {**row, "partition": 1, "committed": None, "lag": 10},
    ]
    listed = body_of(fleet.client.get("/v1/groups", params={"after": "told-reader", "limit": 1}))
    assert listed["groups"] == [
        {
            "name": "told-readers",
            "state": "stable",
            "strategy": "sticky",
            "generation": one.generation,
            "members": 1,
            "topics": ["told"],
        }
    ]
    assert listed["next"] == "told-readers"
    one.leave()
    left = describe(fleet, "told-readers")
    assert (left["state"], left["members"]) == ("empty", [])
    assert [(row["partition"], row["committed"], row["owner"]) for row in left["partitions"]] == [(0, 4, None)]
    with refused("not_found", 404):
        describe(fleet, "nobody")


def test_expired_member_loses_its_partitions_and_its_late_commit_is_rejected(fleet: Fleet) -> None:
    """A paused member cannot undo the progress of its successor."""
    a_topic(fleet, "silent")
    quiet = member(fleet, "silent", "quiet", timeout_ms=1000)
    other = member(fleet, "silent", "other")
    quiet.join()
    quiet.commit({("silent", 0): 5})
    other.join()

    def all_is_the_others() -> bool:
        if other.heartbeat()["sync"]:
            other.sync()
        return len(other.assigned) == PARTITIONS

    wait_until("the other to have everything", all_is_the_others)
    other.commit({("silent", 0): 8})
    with refused("unknown_member"):
        quiet.commit({("silent", 0): 6})
    assert offsets(fleet, other.group)["silent", 0] == 8
    other.leave()


def test_commits_are_fenced_by_partition(fleet: Fleet) -> None:
    a_topic(fleet, "fenced")
    one = member(fleet, "fenced", "one")
    one.join()
    old = one.generation
    one.join()
    again = member(fleet, "fenced", "one")
    again.generation = old
    with refused("stale_generation"):
        again.commit({("fenced", 0): 1})
    two = member(fleet, "fenced", "two")
    two.join()
    with refused("not_owner") as caught:
        two.commit({("fenced", 0): 1})
    assert caught.value.body["details"]["partitions"] == [{"topic": "fenced", "partition": 0}]
    with refused("conflict"):
        one.call("commit", {"offsets": [{"topic": "fenced", "partition": 0, "offset": 1}]})
    for topic, partition in (("fenced", PARTITIONS), ("nowhere", 0)):
        with refused("unknown_partition", 404):
            one.commit({(topic, partition): 1})
    assert offsets(fleet, one.group) == {}
    with refused("conflict") as caught:
        member(fleet, "fenced", "three").join(strategy="range")
    assert "sticky" in str(caught.value)
    with refused("not_found", 404):
        member(fleet, "nowhere").join()
    with refused("bad_request", 400):
        one.call("commit", {"member_id": "one", "offsets": [{"topic": "fenced", "partition": 0, "offset": 1}]})


def test_group_without_members_accepts_commits_of_any_client(fleet: Fleet) -> None:
    a_topic(fleet, "free")
    rows = [{"topic": "free", "partition": 1, "offset": 7, "note": "half-way"}]
    assert body_of(fleet.client.post("/v1/groups/loners/commit", json={"offsets": rows})) == {"status": "ok"}
    (found,) = body_of(fleet.client.get("/v1/groups/loners/offsets", params={"topic": "free"}))["offsets"]
    assert {key: found[key] for key in rows[0]} == rows[0]
    assert abs(found["committed_ms"] - time.time() * 1000) < 60_000
    assert describe(fleet, "loners")["state"] == "empty"


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ({"earliest": True}, 0),
        ({"latest": True}, 20),
        ({"offset": 7}, 7),
        ({"offset": 1000}, 20),
        ({"shift": -3}, 2),
        ({"shift": -30}, 0),
        ({"timestamp_ms": None}, 10),
    ],
)
def test_group_is_reset_in_all_ways(fleet: Fleet, to: dict[str, Any], expected: int) -> None:
    name = f"reset-{'-'.join(f'{key}{value}' for key, value in to.items())}".replace("True", "")
    a_topic(fleet, name, 2)
    append(fleet, name, 0, 10)
    time.sleep(0.01)  # so that the next append has a later time
    later = append(fleet, name, 0, 10)
    if "timestamp_ms" in to:
        to = {"timestamp_ms": later}
    one = member(fleet, name)
    one.join()
    one.commit({(name, 0): 5})
    one.leave()
    dry = one.call("reset", {"to": to, "dry_run": True})
    row = {"topic": name, "partition": 0, "old_offset": 5, "new_offset": expected}
    assert dry == {"dry_run": True, "partitions": [row]}
    assert offsets(fleet, one.group) == {(name, 0): 5}
    assert one.call("reset", {"to": to, "topics": [name]})["partitions"] == [
        row,
        {"topic": name, "partition": 1, "old_offset": None, "new_offset": 0},
    ]
    assert offsets(fleet, one.group) == {(name, 0): expected, (name, 1): 0}


def test_reset_and_deletion_need_force_while_there_are_members(fleet: Fleet) -> None:
    """With force, members are removed in the same transaction, since their next commit would undo it."""
    a_topic(fleet, "forced", 2, records=10)
    one = member(fleet, "forced")
    one.join()
    one.commit({("forced", 0): 9})
    with refused("group_not_empty"):
        one.call("reset", {"to": {"earliest": True}})
    answer = one.call(
        "reset", {"to": {"earliest": True}, "force": True, "partitions": [{"topic": "forced", "partition": 0}]}
    )
    assert [(row["old_offset"], row["new_offset"]) for row in answer["partitions"]] == [(9, 0)]
    with refused("unknown_member"):
        one.commit({("forced", 0): 10})
    assert offsets(fleet, one.group) == {("forced", 0): 0}
    one.join()
    path = f"/v1/groups/{one.group}"
    with refused("group_not_empty"):
        body_of(fleet.client.delete(path))
    assert body_of(fleet.client.delete(path, params={"force": True})) == {"status": "ok"}
    with refused("not_found", 404):
        body_of(fleet.client.delete(path))
    with refused("unknown_member"):
        one.heartbeat()
    for wrong in ({}, {"earliest": True, "offset": 1}, {"earliest": False}):
        with refused("bad_request", 400):
            one.call("reset", {"to": wrong})


def test_new_and_deleted_topics_change_the_assignment(fleet: Fleet) -> None:
    a_topic(fleet, "living", 1)
    one = member(fleet, "living")
    one.join()
    body_of(fleet.client.patch("/v1/topics/living", json={"partitions": 3}))

    def has(count: int) -> bool:
        if one.heartbeat()["sync"]:
            one.sync()
        return len(one.assigned) == count

    wait_until("it to have the new partitions", lambda: has(3))
    one.commit({("living", 2): 0})
    body_of(fleet.client.delete("/v1/topics/living"))
    wait_until("the topic to be gone from it", lambda: has(0))
    assert offsets(fleet, one.group) == {}
    a_topic(fleet, "living", 2)
    wait_until("it to have the new topic", lambda: has(2))
    assert offsets(fleet, one.group) == {}
    one.leave()


# -- during failures --------------------------------------------------------------------------------


def test_recreated_topic_is_not_mistaken_for_the_old_one(fleet: Fleet) -> None:
    """Its records have the same offsets but differ: a commit with the topic id skips none."""
    a_topic(fleet, "again", 1, records=10)
    one = member(fleet, "again")
    old = one.join()["topic_ids"]["again"]
    place: dict[str, Any] = {"topic": "again", "partition": 0, "topic_id": old}
    body_of(fleet.client.delete("/v1/topics/again"))
    a_topic(fleet, "again", 1, records=10)
    answer: dict[str, Any] = {}

    def is_dealt_out() -> bool:
        answer.update(one.call("sync", {"member_id": "a", "generation": one.generation, "owned": [place]}))
        one.generation = answer["generation"]
        return bool(answer["assigned"])

    wait_until("the new topic to be dealt out", is_dealt_out, 10)
    assert answer["assigned"] == [{"topic": "again", "partition": 0}]
    assert answer["topic_ids"]["again"] != old
    commit = {"member_id": "a", "generation": answer["generation"], "offsets": [{**place, "offset": 9}]}
    with refused("unknown_partition", 404):
        one.call("commit", commit)
    assert offsets(fleet, "again-readers") == {}
    place["topic_id"] = answer["topic_ids"]["again"]
    one.call("commit", {**commit, "offsets": [{**place, "offset": 3}]})
    assert offsets(fleet, "again-readers") == {("again", 0): 3}


def test_members_keep_their_partitions_while_the_writer_is_unavailable(tmp_path: Path) -> None:
    """Commits continue through readers; after a restart of the writer, members have a full timeout."""
    timeout_s = 5.0
    with Fleet(tmp_path, brokers=1) as fleet:
        a_topic(fleet, "t")
        members = [member(fleet, "t", id_, timeout_ms=int(timeout_s * 1000)) for id_ in ("one", "two")]
        for one in members:
            one.join()
        settle(*members)
        fleet.writer.kill()
        began = time.monotonic()
        offset = 0
        while time.monotonic() - began < 1.5 * timeout_s:  # longer than the session timeout
            offset += 1
            for one in members:
                one.commit(dict.fromkeys(one.assigned, offset))
        assert set(offsets(fleet, "t-readers").values()) == {offset}
        with pytest.raises(Refused, match="503"):
            members[0].heartbeat()
        fleet.writer.start()
        wait_until("the writer to be back", lambda: "became writer" in fleet.writer.log()[-4000:])
        before = [(one.generation, set(one.assigned)) for one in members]
        wait_until("the writer to answer", lambda: answers(members[0]))
        time.sleep(timeout_s / 2)  # no other member sends anything, and none is expired
        for one in members:
            assert one.heartbeat()["sync"] is False
            one.sync()
            one.commit(dict.fromkeys(one.assigned, offset + 1))
        assert [(one.generation, one.assigned) for one in members] == before
        assert len(describe(fleet, "t-readers")["members"]) == 2


def answers(one: Member) -> bool:
    """Return whether the writer accepts a member; it may be unavailable, but must not have forgotten it."""
    try:
        return bool(one.heartbeat()["generation"])
    except Refused as refusal:
        if refusal.status != AWAY:
            raise
        return False


def test_commits_and_members_survive_a_kill_of_everything(tmp_path: Path) -> None:
    """An acknowledged commit is on disk."""
    with Fleet(tmp_path, brokers=1) as fleet:
        a_topic(fleet, "t", records=100)
        one = member(fleet, "t", timeout_ms=30_000)
        one.join()
        for offset in range(1, 30):
            one.commit(dict.fromkeys(one.assigned, offset))
        fleet.kill_all()
        fleet.start()
        fleet.wait_ready()
        wait_until("the writer to answer", lambda: answers(one))
        assert set(offsets(fleet, "t-readers").values()) == {29}
        one.commit(dict.fromkeys(one.assigned, 30))
        found = describe(fleet, "t-readers")
        assert (found["state"], found["generation"]) == ("stable", one.generation)
        assert sum(row["lag"] for row in found["partitions"]) == PARTITIONS * 70


def test_paused_writer_expires_no_member(tmp_path: Path) -> None:
    with Fleet(tmp_path, brokers=1) as fleet:
        a_topic(fleet, "t")
        one = member(fleet, "t", timeout_ms=6000)
        silent = member(fleet, "t", group="witness", timeout_ms=SESSION_MS_MIN)
        one.join()
        silent.join()
        fleet.writer.signal(signal.SIGSTOP)
        time.sleep(8)  # for longer than both sessions
        fleet.writer.signal(signal.SIGCONT)
        wait_until("the writer to expire another member", lambda: describe(fleet, "witness")["members"] == [])
        assert one.heartbeat()["sync"] is False


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_group_processes_every_record_with_one_owner_per_partition_under_faults(tmp_path: Path, kind: str) -> None:
    """At least once, while the writer, a broker or a member is killed; commits of two owners never interleave."""
    if kind == "sqlite":
        run_under_faults(Fleet(tmp_path, broker_flags=QUICK))
        return
    with running_postgres() as server:
        run_under_faults(Fleet(tmp_path, broker_flags=QUICK, database=server.new_database()))


def run_under_faults(fleet: Fleet) -> None:
    with fleet:
        body_of(fleet.client.post("/v1/topics", json={"name": "t", "partitions": PARTITIONS}))
        workers = [Worker(fleet.url, "g", "t", f"w{at}") for at in range(3)]
        load = Load(
            "t", PARTITIONS, fleet.brokers, random.Random(7), producers_each=1, pause_s=0.02, gateways=[fleet.url]
        )
        load.consumers.clear()

        def committed() -> int:
            for worker in workers:
                worker.check()
            return sum(len(worker.commits) for worker in workers)

        def progress(count: int = 10) -> None:
            before = committed()
            try:
                wait_until("more commits", lambda: committed() >= before + count, 60)
            except TimeoutError as error:
                raise AssertionError("\n".join(worker.describe() for worker in workers)) from error

        def disturb() -> None:
            for worker in workers:
                worker.start()
                progress()
            wait_until("everybody to have something", lambda: all(worker.partitions for worker in workers))
            fleet.writer.kill()
            progress()
            workers[0].pause_heartbeats()  # noticed only when the writer is back
            fleet.writer.start()
            progress()
            fleet.brokers[0].kill()
            wait_until("the silent one to be fenced", lambda: "unknown_member" in workers[0].refusals, 60)
            workers[0].resume_heartbeats()
            late = Worker(fleet.url, "g", "t", "late")
            late.start()
            workers.append(late)
            progress()
            fleet.brokers[0].start()
            fleet.writer.kill()
            fleet.writer.start()
            wait_until("the late one to have something", lambda: late.partitions, 60)
            workers[1].end()
            progress()

        load.run_while(disturb)
        wait_until("everything to be processed", lambda: not left(fleet), 60)
        for worker in workers:
            worker.end()
        assert load.violations() == []
        sends = [send for producer in load.producers for send in producer.sends if send.outcome == Outcome.OK]
        assert len(sends) > 100
        done = [name for worker in workers for name in worker.processed]
        assert (
            violations([send.name for send in sends], done, [one for worker in workers for one in worker.commits]) == []
        )
        assert len({one.tenure.member for worker in workers for one in worker.commits}) == len(workers)


def left(fleet: Fleet) -> bool:
    """Return whether records are unread, or not known to be read."""
    try:
        found = describe(fleet, "g")["partitions"]
    except (Refused, httpx.HTTPError):
        return True
    return len(found) < PARTITIONS or any(row["lag"] != 0 for row in found)
