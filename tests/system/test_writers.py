"""The writer: unavailable, duplicated, with an old database; interrupted topic changes; brokers that return."""

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.cluster import wait_until
from support.fleet import Fleet, ManagerProcess, refused, succeeded

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
BEHIND = 5


SCHEMA_TOO_NEW = 6
ENDS_S_MAX = 12.0  # requests have 5 s to end, and so has a statement


def rebuild_command(fleet: Fleet) -> list[str]:
    command = [sys.executable, "-m", "flotilla.command", "admin", "rebuild-metadata", "--database", fleet.database]
    for broker in fleet.brokers:
        command += ["--broker", broker.url]
    return command


def epoch_of(fleet: Fleet) -> int:
    return int(httpx.get(f"{fleet.url}/v1/control/state", timeout=30).json()["writer_epoch"])


def test_produce_and_consume_continue_without_the_writer(tmp_path: Path) -> None:
    """Guarantee 6: produce and consume do not need the writer; topology changes wait for it."""
    with Fleet(tmp_path) as fleet:
        fleet.create("t")
        producer, consumer = fleet.producer("t"), fleet.consumer("t")
        fleet.writer.kill()
        for at in range(10):
            fleet.post("/producer/produce", topic="t", producer_id=producer, message=str(at), partition_index=0)
        found = [fleet.get("/consumer/consume", topic="t", consumer_id=consumer)["message"] for _ in range(10)]
        assert found == [str(at) for at in range(10)]
        assert fleet.get("/size", topic="t", consumer_id=consumer)["size"] == 0
        assert fleet.get("/topics")["topics"] == ["t"]
        response = fleet.client.post("/topics", json={"name": "later"})
        refused(response, "The writer is unavailable; try again.", 503)
        assert response.headers["retry-after"]
        fleet.writer.start()
        fleet.create("later")


def test_request_for_the_writer_waits_while_it_restarts(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.writer.kill()
        fleet.writer.start()
        fleet.create("t")
        assert fleet.get("/topics")["topics"] == ["t"]


def test_second_writer_stands_by_and_takes_over(tmp_path: Path) -> None:
    """Guarantee 6: topology has one writer, fenced by an epoch."""
    with Fleet(tmp_path) as fleet:
        first = epoch_of(fleet)
        other = fleet.add("other", "writer")
        wait_until("the other to stand by", lambda: "standing by" in other.log())
        fleet.create("before")
        assert epoch_of(fleet) == first
        fleet.writer.kill()
        wait_until("the other to take over", lambda: "became writer" in other.log())
        wait_until("its epoch to be known", lambda: wait_epoch(fleet) == first + 1)
        fleet.create("after")
        assert fleet.get("/topics")["topics"] == ["before", "after"]


def wait_epoch(fleet: Fleet) -> int:
    with contextlib.suppress(httpx.HTTPError, KeyError):
        return epoch_of(fleet)
    return 0


def pause_without_lock(writer: ManagerProcess, database: Path) -> None:
    """Stop the writer while it holds no lock of SQLite: with a lock, no other manager could write."""
    for _ in range(100):
        writer.signal(signal.SIGSTOP)
        with contextlib.closing(sqlite3.connect(database, timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                writer.signal(signal.SIGCONT)
            else:
                return
    pytest.fail("the writer held the lock at each of 100 tries")


def test_paused_writer_is_fenced_and_changes_nothing(tmp_path: Path) -> None:
    """A writer that was stopped, replaced and continued steps back permanently."""
    with Fleet(tmp_path) as fleet:
        other = fleet.add("other", "writer")
        wait_until("the other to stand by", lambda: "standing by" in other.log())
        pause_without_lock(fleet.writer, tmp_path / "metadata.db")
        wait_until("the other to take over", lambda: "became writer" in other.log())
        fleet.writer.signal(signal.SIGCONT)
        response = httpx.post(f"{fleet.writer.url}/topics", json={"name": "by-the-old-one"}, timeout=30)
        assert response.status_code in {200, 503}, response.text  # passed on, or refused; never done by the old one
        wait_until("the old one to give way", lambda: "lost writer role" in fleet.writer.log())
        fleet.create("by-the-new-one")
        before = epoch_of(fleet)
        for _ in range(20):
            fleet.get("/topics")
        assert epoch_of(fleet) == before
        assert "by-the-new-one" in fleet.get("/topics")["topics"]


def test_unavailable_broker_gets_no_replicas_until_it_returns(tmp_path: Path) -> None:
    """Inactive after three missed heartbeats, active again by itself; a topic that cannot be placed is not created."""
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        fleet.brokers[0].kill()
        gone = fleet.brokers[0].id

        def status() -> str:
            found = {one["broker_id"]: one["status"] for one in fleet.get("/brokers")["brokers"]}
            return str(found[gone])

        wait_until("it to be inactive", lambda: status() == "inactive")
        response = fleet.client.post("/topics", json={"name": "t"})
        assert response.status_code == 503
        assert "3 replicas need 3 active brokers; 2 of 3 are active" in response.json()["message"]
        assert fleet.get("/topics")["topics"] == []
        fleet.post("/topics", name="small", replication=2)
        assert all(gone not in one["replicas"] for one in fleet.get("/topics/small/partitions")["partitions"])
        fleet.brokers[0].start()
        wait_until("it to be active", lambda: status() == "active")
        fleet.create("t")


def test_returning_broker_removes_replicas_of_deleted_topics(tmp_path: Path) -> None:
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        fleet.create("t")
        away = fleet.brokers[0]
        away.kill()
        succeeded(fleet.client.delete("/topics/t"))
        away.start()
        away.wait_alive()
        wait_until("its replicas to be removed", lambda: away.get("/v1/replicas")["replicas"] == [])
        fleet.create("t")
        assert len(away.get("/v1/replicas")["replicas"]) == 2


def test_brokers_are_deactivated_removed_and_added(tmp_path: Path) -> None:
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        fleet.create("t", partitions=3)
        one = fleet.brokers[0]
        host = f"127.0.0.1:{one.port}"
        fleet.post("/admin/broker/deactivate", broker_host=host)

        def leaders() -> set[str]:
            return {found["leader"] for found in fleet.get("/topics/t/partitions")["partitions"]}

        wait_until("leaders to move away", lambda: one.id not in leaders() and None not in leaders())
        response = fleet.client.post("/topics", json={"name": "wide"})
        assert "cordoned" in response.json()["message"]
        response = fleet.client.post("/admin/broker/remove", json={"broker_host": host})
        assert response.status_code == 400
        assert "holds 3 replicas" in response.json()["message"]
        fleet.post("/admin/broker/activate", broker_host=host)
        wait_until("leaders to come back", lambda: one.id in leaders())
        succeeded(fleet.client.delete("/topics/t"))
        remove = {"broker_host": host}
        wait_until("it to hold none", lambda: fleet.client.post("/admin/broker/remove", json=remove).status_code == 200)
        assert len(fleet.get("/brokers")["brokers"]) == 2
        fleet.create("t")
        assert all(one.id not in found["replicas"] for found in fleet.get("/topics/t/partitions")["partitions"])
        fleet.post("/admin/broker/add", broker_host=host)
        assert len(fleet.get("/brokers")["brokers"]) == 3
        for call in ("remove", "activate", "deactivate"):
            response = fleet.client.post(f"/admin/broker/{call}", json={"broker_host": "127.0.0.1:1"})
            refused(
                response,
                "No broker has the name, address or id '127.0.0.1:1'; `flotilla brokers list` shows all.",
            )
        assert fleet.client.post("/admin/broker/add", json={"broker_host": "127.0.0.1:1"}).status_code == 400


def test_old_database_stops_the_writer_without_deletions_and_can_be_rebuilt(tmp_path: Path) -> None:
    """If the database is behind the brokers, the writer stops with a clear error; it can be rebuilt from brokers."""
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        fleet.create("old")
        for manager in fleet.managers:
            assert manager.terminate() == 0
        shutil.copytree(tmp_path, tmp_path / "backup", ignore=shutil.ignore_patterns("broker-*", "backup"))
        fleet.start()
        fleet.wait_ready()
        fleet.create("new")
        producer = fleet.producer("new")
        fleet.post("/producer/produce", topic="new", producer_id=producer, message="precious", partition_index=0)
        for manager in fleet.managers:
            manager.terminate()
        for name in tmp_path.glob("metadata.db*"):
            name.unlink()
        for name in (tmp_path / "backup").glob("metadata.db*"):
            shutil.copy(name, tmp_path)

        fleet.writer.start()
        assert fleet.writer.wait() == BEHIND
        assert "the database is behind the brokers" in fleet.writer.log()
        assert "flotilla admin rebuild-metadata" in fleet.writer.log()
        for broker in fleet.brokers:
            assert {one["topic"] for one in broker.get("/v1/replicas")["replicas"]} == {"old", "new"}

        command = rebuild_command(fleet)
        refusal = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refusal.returncode == 1
        assert "--force" in refusal.stderr
        done = subprocess.run([*command, "--force"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

        fleet.start()
        fleet.wait_ready()
        assert sorted(fleet.get("/topics")["topics"]) == ["new", "old"]
        consumer = fleet.consumer("new")
        assert fleet.get("/consumer/consume", topic="new", consumer_id=consumer)["message"] == "precious"
        fleet.create("newest")


@pytest.mark.parametrize("moment", ["creating", "deleting"])
def test_interrupted_topic_changes_are_completed_or_undone(tmp_path: Path, moment: str) -> None:
    """After a crash, an interrupted creation and an interrupted deletion are completed."""
    with Fleet(tmp_path, brokers=3, broker_flags=QUICK) as fleet:
        sleeper = fleet.brokers[2]
        if moment == "deleting":
            fleet.create("t")
        sleeper.signal(signal.SIGSTOP)  # a command to it takes as long as the writer's timeout
        with contextlib.suppress(httpx.HTTPError):
            if moment == "creating":
                httpx.post(f"{fleet.writer.url}/topics", json={"name": "t"}, timeout=1.0)
            else:
                httpx.delete(f"{fleet.writer.url}/topics/t", timeout=1.0)
        fleet.writer.kill()
        sleeper.signal(signal.SIGCONT)
        fleet.writer.start()
        fleet.wait_ready()

        def settled() -> bool:
            state = httpx.get(f"{fleet.url}/v1/control/state", timeout=30).json()
            states = [one["state"] for one in state["topics"]]
            held = [len(broker.get("/v1/replicas")["replicas"]) for broker in fleet.brokers]
            return (states, held) == ((["ready"], [2, 2, 2]) if moment == "creating" else ([], [0, 0, 0]))

        wait_until("everything to be settled", settled)
        if moment == "deleting":
            fleet.create("t")
        producer = fleet.producer("t")
        fleet.post("/producer/produce", topic="t", producer_id=producer, message="m")


def test_lost_database_is_detected_and_can_be_rebuilt(tmp_path: Path) -> None:
    """An empty database belongs to another cluster: brokers keep everything, and the log says what to do."""
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        fleet.create("t")
        producer = fleet.producer("t")
        fleet.post("/producer/produce", topic="t", producer_id=producer, message="precious", partition_index=0)
        for manager in fleet.managers:
            manager.terminate()
        for name in tmp_path.glob("metadata.db*"):
            name.unlink()
        fleet.writer.start()
        wait_until("the writer to say it", lambda: "flotilla admin rebuild-metadata" in fleet.writer.log())
        ready = httpx.get(f"{fleet.writer.url}/readyz", timeout=30)
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["0 of 3 brokers registered"])
        command = rebuild_command(fleet)
        running = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (running.returncode, "is running; stop it first" in running.stderr) == (1, True)
        assert fleet.writer.terminate() == 0
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        fleet.start()
        fleet.wait_ready()
        consumer = fleet.consumer("t")
        assert fleet.get("/consumer/consume", topic="t", consumer_id=consumer)["message"] == "precious"
        fleet.create("newest")


def test_manager_stops_within_seconds_while_the_database_hangs(tmp_path: Path) -> None:
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        with contextlib.closing(sqlite3.connect(tmp_path / "metadata.db")) as holder:
            holder.execute("BEGIN IMMEDIATE")
            for manager in fleet.managers:
                manager.signal(signal.SIGTERM)
            for manager in fleet.managers:
                assert manager.wait(ENDS_S_MAX) == 0
        fleet.start()
        fleet.wait_ready()


def test_writer_stops_within_seconds_while_a_request_waits_for_a_broker(tmp_path: Path) -> None:
    """The next writer completes or undoes what it was doing."""
    with Fleet(tmp_path, broker_flags=QUICK) as fleet:
        fleet.brokers[2].signal(signal.SIGSTOP)
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(f"{fleet.writer.url}/topics", json={"name": "t"}, timeout=0.5)
        fleet.writer.signal(signal.SIGTERM)
        assert fleet.writer.wait(ENDS_S_MAX) == 0
        fleet.brokers[2].signal(signal.SIGCONT)
        fleet.writer.start()
        fleet.wait_ready()

        def is_done() -> bool:
            states = {one["state"] for one in httpx.get(f"{fleet.url}/v1/control/state", timeout=30).json()["topics"]}
            return states <= {"ready"}

        wait_until("the topic to be made or gone", is_done)
        fleet.create("other")


def test_database_of_a_newer_version_is_reported_and_not_changed(tmp_path: Path) -> None:
    with Fleet(tmp_path, brokers=1) as fleet:
        for manager in fleet.managers:
            assert manager.terminate() == 0
        with contextlib.closing(sqlite3.connect(tmp_path / "metadata.db")) as database, database:
            database.execute("UPDATE alembic_version SET version_num = 'from-the-future'")
        fleet.writer.start()
        assert fleet.writer.wait() == SCHEMA_TOO_NEW
        assert "newer version" in fleet.writer.log()


def test_broker_is_ready_when_a_manager_has_accepted_its_heartbeat(tmp_path: Path) -> None:
    """It sends its identity, addresses and replicas to managers, and continues when they stop."""
    fleet = Fleet(tmp_path, brokers=1, readers=1, broker_flags=[*QUICK, "--rack", "r1"])
    (broker,) = fleet.brokers
    try:
        broker.start()
        broker.wait_alive()
        answer = broker.request("GET", "/readyz")
        assert (answer.status_code, "no manager" in answer.json()["reasons"][0]) == (503, True)
        fleet.start()
        fleet.wait_ready()
        wait_until("readiness", lambda: broker.request("GET", "/readyz").status_code == 200)
        fleet.create("t", 1)

        def answered() -> dict[str, Any] | None:
            state: dict[str, Any] = httpx.get(f"{fleet.url}/v1/control/state", timeout=30).json()
            replicas = state["reports"][broker.id]["replicas"]
            return state if replicas and replicas[0]["settled"] else None

        state = wait_until("a leader in a heartbeat", answered)
        assert state is not None
        (known,) = state["brokers"]
        assert (known["id"], known["rack"], known["active"]) == (broker.id, "r1", True)
        assert (known["host"], known["port"], known["peer_port"]) == ("127.0.0.1", broker.port, broker.peer_port)
        report = state["reports"][broker.id]
        disk = report["disk"]
        assert 0 < disk["live_bytes"] < disk["used_bytes"] < disk["capacity_bytes"]
        assert 0 < disk["free_bytes"] < disk["capacity_bytes"]
        assert report["disk"]["segments_left"] > 0
        assert report["broken"] == []
        (replica,) = report["replicas"]
        (described,) = broker.get("/v1/replicas")["replicas"]
        assert {name: described[name] for name in replica} == {**replica, "members": list(replica["members"])}
        for manager in fleet.managers:
            manager.kill()
        assert broker.request("GET", "/readyz").status_code == 200, "the notice is logged once"
        assert broker.terminate() == 0
    finally:
        fleet.close()
