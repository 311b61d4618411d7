"""Three real brokers under load: killed, stopped, with lost or damaged data.

`KILL_SECONDS=600` keeps killing for as long.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cluster import BrokerProcess, Cluster, wait_until
from support.load import Load

PARTITIONS = 3
KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "8"))
QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
ELECTION_S_MAX = 1.0


@pytest.mark.parametrize("victims", ["leader", "any", "all"])
def test_killed_brokers_lose_no_acknowledged_record(tmp_path: Path, victims: str) -> None:
    """Guarantees 1 to 5: kill -9 of the leader, of any broker, of all three, repeatedly."""
    rng = random.Random(victims)
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t", PARTITIONS)
        load = Load("t", PARTITIONS, cluster.brokers, rng)
        kills = 0

        def kill() -> None:
            nonlocal kills
            until = time.monotonic() + KILL_SECONDS
            while time.monotonic() < until:
                leader = cluster.leader(rng.randrange(PARTITIONS))
                load.wait_progress(20)
                chosen = {"leader": [leader], "any": [rng.choice(cluster.brokers)], "all": cluster.brokers}[victims]
                time.sleep(rng.random() * 0.3)  # a kill comes at any moment
                for broker in chosen:
                    broker.kill()
                    kills += 1
                for broker in chosen:
                    broker.start()
                for broker in chosen:
                    broker.wait_alive()

        load.run_while(kill)
        cluster.wait_agreed(PARTITIONS)
        assert load.violations() == []
        assert load.acknowledged > 100
        assert kills >= 2
        print(f"{kills} kills, {load.acknowledged} records acknowledged")  # noqa: T201 - for long runs


def test_stopped_follower_causes_no_election(tmp_path: Path) -> None:
    """A follower that is stopped for five seconds rejoins without an election."""
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t")
        leader = cluster.leader()
        term = cluster.describe(leader)["term"]
        follower = next(broker for broker in cluster.brokers if broker is not leader)
        load = Load("t", 1, cluster.brokers, random.Random(1))

        def stop() -> None:
            follower.signal(signal.SIGSTOP)
            time.sleep(5)
            follower.signal(signal.SIGCONT)

        load.run_while(stop)
        cluster.wait_agreed()
        assert cluster.leader() is leader
        assert cluster.describe(leader)["term"] == term
        assert load.violations() == []


def test_stopped_leader_is_replaced_and_acknowledges_nothing_afterwards(tmp_path: Path) -> None:
    """A new leader is elected in time; the old one never acknowledges its uncommitted entries."""
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t")
        old = cluster.leader()
        load = Load("t", 1, cluster.brokers, random.Random(2))

        def stop() -> None:
            old.signal(signal.SIGSTOP)
            others = [broker for broker in cluster.brokers if broker is not old]
            began = time.monotonic()
            wait_until("a new leader", lambda: any(cluster.describe(b).get("settled") for b in others))
            assert time.monotonic() - began < 10 * ELECTION_S_MAX  # a generous bound; virtual time proves the rest
            load.wait_progress(50)
            old.signal(signal.SIGCONT)
            wait_until("the old leader to follow", lambda: cluster.describe(old).get("role") == "follower")

        load.run_while(stop)
        cluster.wait_agreed()
        assert load.violations() == []


def test_broker_that_lost_its_data_returns_with_a_new_id(tmp_path: Path) -> None:
    """With the old id it could vote twice in a term. The others continue without it."""
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t")
        load = Load("t", 1, cluster.brokers, random.Random(3))
        lost = cluster.leader()
        before = lost.id

        def rob() -> None:
            lost.kill()
            shutil.rmtree(lost.data)
            lost.start()
            lost.wait_alive()
            cluster.introduce()
            load.wait_progress(50)

        load.run_while(rob)
        assert lost.id != before
        assert lost.get("/v1/replicas") == {"replicas": [], "broken": []}
        load.brokers = [broker for broker in cluster.brokers if broker is not lost]
        wait_until(
            "the others to agree",
            lambda: len({cluster.describe(b)["committed_index"] for b in load.brokers}) == 1,
        )
        assert load.violations() == []


def fill(cluster: Cluster, rng: random.Random) -> tuple[Load, BrokerProcess]:
    """Write records; return the load, and a follower that was killed afterwards."""
    cluster.create("t")
    load = Load("t", 1, cluster.brokers, rng)
    load.run_while(lambda: wait_until("some records", lambda: load.acknowledged > 500))
    cluster.wait_agreed()
    victim = next(broker for broker in cluster.brokers if broker is not cluster.leader())
    victim.kill()
    load.brokers = [broker for broker in cluster.brokers if broker is not victim]
    return load, victim


def spoil(broker: BrokerProcess, find: Callable[[bytes], int], size: int) -> None:
    """Overwrite some bytes of the largest segment, from the position that `find` returns."""
    segment = max((broker.data / "log").glob("*.log"), key=lambda path: len(path.read_bytes().rstrip(b"\0")))
    data = bytearray(segment.read_bytes())
    start = find(bytes(data))
    data[start : start + size] = bytes(byte ^ 0x5A for byte in data[start : start + size])
    segment.write_bytes(data)


def test_replica_with_a_damaged_entry_is_quarantined(tmp_path: Path) -> None:
    """Damaged synced data is never taken for a torn write: the replica does not vote, and reports the reason."""
    with Cluster(tmp_path, flags=QUICK) as cluster:
        load, victim = fill(cluster, random.Random(4))
        spoil(victim, lambda data: data.index(b"p0.0 100 "), 1)
        victim.start()
        victim.wait_alive()
        (broken,) = victim.get("/v1/replicas")["broken"]
        assert broken["topic"] == "t"
        assert "read another replica" in broken["reason"]
        answer = victim.request("GET", "/v1/fetch?topic=t&partition=0&offset=0&replica=any")
        assert (answer.status_code, answer.json()["code"]) == (503, "broken")
        order = {"writer_epoch": 1, "topic": "t", "members": [broker.id for broker in cluster.brokers]}
        path = f"/v1/replicas/{'1' * 32}/0/1"
        for code in ("broken", "conflict"):  # an empty replica would vote in terms in which this broker has voted
            assert victim.request("PUT", path, json=order).json()["code"] == code
            victim.request("DELETE", f"{path}?writer_epoch=1")
        assert load.violations() == []


def test_broker_with_unknown_damage_starts_with_an_empty_store(tmp_path: Path) -> None:
    """A vote may be lost, so the store is not trusted; it is kept for inspection."""
    with Cluster(tmp_path, flags=QUICK) as cluster:
        load, victim = fill(cluster, random.Random(5))
        before = victim.id
        spoil(victim, lambda data: len(data.rstrip(b"\0")) // 2, 1000)
        victim.start()
        victim.wait_alive()
        assert victim.id != before
        assert (victim.data / "log.damaged-1").is_dir()
        assert "log is unusable" in victim.log()
        assert load.violations() == []


def test_brokers_start_their_replicas_without_managers(tmp_path: Path) -> None:
    """A broker has everything it needs on its disk: members, addresses, votes, records."""
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t", 2)
        load = Load("t", 2, cluster.brokers, random.Random(5))
        load.run_while(lambda: wait_until("some records", lambda: load.acknowledged > 100))
        for broker in cluster.brokers:
            assert broker.terminate() == 0
        ids = [broker.id for broker in cluster.brokers]
        for broker in cluster.brokers:
            broker.start()
        for broker in cluster.brokers:
            broker.wait_alive()
        cluster.wait_agreed(2)
        assert [broker.id for broker in cluster.brokers] == ids
        assert load.violations() == []


def test_stopping_broker_transfers_leadership_first(tmp_path: Path) -> None:
    """No election timeout is needed."""
    flags = ("--election-s-min", "6", "--election-s-max", "8")
    with Cluster(tmp_path, flags=flags) as cluster:
        cluster.create("t")
        leader = cluster.leader()
        term = cluster.describe(leader)["term"]
        assert leader.terminate() == 0
        successor = cluster.leader(timeout_s=4)
        assert cluster.describe(successor)["term"] == term + 1


def test_new_partition_has_a_leader_as_soon_as_a_member_is_asked_to_campaign(tmp_path: Path) -> None:
    """Although the election timeout is a minute."""
    patient = ("--heartbeat-s", "0.3", "--election-s-min", "60", "--election-s-max", "90")
    with Cluster(tmp_path, flags=patient) as cluster:
        wait_until("connections", lambda: all(len(b.get("/v1/broker")["connected"]) == 2 for b in cluster.brokers))
        cluster.create("t")
        chosen = cluster.brokers[1]
        path = f"/v1/replicas/{'1' * 32}/0/1"
        assert chosen.post(f"{path}/campaign", {"writer_epoch": 1})["topic"] == "t"
        assert cluster.leader(timeout_s=20) is chosen, "long before any election timeout"
        term = chosen.get(path)["term"]
        other = cluster.brokers[0]
        wait_until("the leader to be known", lambda: other.get(path)["leader"] == chosen.id)
        other.post(f"{path}/stand", {"writer_epoch": 1})
        assert (chosen.get(path)["settled"], chosen.get(path)["term"]) == (True, term), "the existing leader stays"


def test_commands_for_a_leader_name_the_current_one(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create("t")
        leader = cluster.leader()
        other = next(broker for broker in cluster.brokers if broker is not leader)
        path = f"/v1/replicas/{'1' * 32}/0/1"
        wait_until("the leader to be known", lambda: other.get(path)["leader"] == leader.id)
        for order in ("transfer-leadership", "hand-over"):
            answer = other.request("POST", f"{path}/{order}", json={"writer_epoch": 1})
            assert (answer.status_code, answer.json()["code"]) == (421, "not_leader")
            assert answer.json()["details"]["leader"] == {"id": leader.id, "url": leader.url}
