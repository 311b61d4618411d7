"""Brokers on older copies of their data folder, as after the restore of a volume snapshot, and on clones of one.

Guarantees 1, 2 and 4: the copy has lost votes and acknowledged records, so it must not help to elect a leader.
"""

import contextlib
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from flotilla import Client
from support.cluster import BrokerProcess, Cluster, wait_until
from support.fleet import Fleet
from support.load import Load

QUICK = ("--heartbeat-s", "0.1", "--election-s-min", "0.5", "--election-s-max", "1.0")
ELECTIONS_S = 4.0  # a majority elects a leader within a second
EXIT_LOG = 3
TOPIC = "t"


def replica(broker: BrokerProcess) -> dict[str, Any]:
    """Describe the only replica of a broker; empty if it does not respond."""
    with contextlib.suppress(httpx.HTTPError):
        found: list[dict[str, Any]] = broker.get("/v1/replicas")["replicas"]
        return found[0] if found else {}
    return {}


def roles(brokers: Sequence[BrokerProcess]) -> tuple[BrokerProcess, BrokerProcess, BrokerProcess]:
    """Wait for a leader; return leader, follower, and the third broker."""
    leader = wait_until("a leader", lambda: next((one for one in brokers if replica(one).get("settled")), None))
    assert leader is not None
    follower, third = (broker for broker in brokers if broker is not leader)
    return leader, follower, third


def produce(url: str, first: int, count: int) -> None:
    """Store numbered records; each is acknowledged on return."""
    with Client(url) as client, client.producer() as producer:
        for number in range(first, first + count):
            producer.send(TOPIC, b"%d" % number, partition=0)


def consume(url: str) -> list[int]:
    with Client(url) as client:
        return [int(record.value) for record in client.consumer(TOPIC, partitions=[0]).records(until="end")]


def restore(broker: BrokerProcess, image: Path) -> None:
    """Put a copy of the data folder in its place, as the restore of a snapshot does."""
    shutil.rmtree(broker.data)
    shutil.copytree(image, broker.data)


def overwrite(broker: BrokerProcess, image: Path) -> None:
    """Put back the content of all files, as the restore of a block device does: the files are the same."""
    for path in (broker.data / "log").iterdir():
        if path.name != "lock":
            path.unlink()
    for path in (image / "log").iterdir():
        if path.name != "lock":
            shutil.copy2(path, broker.data / "log")


def is_waiting(broker: BrokerProcess) -> bool:
    """Return whether the broker waits for a confirmation of its start."""
    with contextlib.suppress(httpx.HTTPError):
        response = broker.request("GET", "/readyz")
        return response.status_code == 503 and "not an older copy" in response.text
    return False


def is_resolved(broker: BrokerProcess, records: int) -> bool:
    """Return whether a broker on a copy has given up its id, or has caught up with the leader."""
    if not broker.is_running:
        assert broker.exit_code == EXIT_LOG
        assert "log is an older copy" in broker.log()
        return True
    return bool(replica(broker).get("next_offset", 0) >= records)


def assert_no_leader(url: str) -> None:
    """Check that no broker accepts a record, for longer than a majority needs to elect a leader."""
    with Client(url) as client:
        producer = client.producer(delivery_s=ELECTIONS_S)
        assert producer.send(TOPIC, b"-1", partition=0).exception(3 * ELECTIONS_S) is not None


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, brokers=3, readers=1, broker_flags=QUICK) as fleet:
        fleet.create(TOPIC, 1)
        yield fleet


def test_restored_files_and_a_broker_that_was_away_elect_no_leader(fleet: Fleet, tmp_path: Path) -> None:
    """Leader and follower acknowledge records while the third broker is down. Then only the follower returns.

    Its files are from before those records: it and the third broker are a majority that lacks them.
    """
    leader, follower, third = roles(fleet.brokers)
    produce(fleet.url, 0, 100)
    third.kill()
    produce(fleet.url, 100, 100)
    image = Path(shutil.copytree(follower.data, tmp_path / "image"))
    produce(fleet.url, 200, 300)
    for broker in (leader, follower):
        broker.kill()
    restore(follower, image)
    third.start()
    follower.start()
    third.wait_alive()
    wait_until("the follower to wait or to exit", lambda: is_waiting(follower) or not follower.is_running)
    assert_no_leader(fleet.url)
    leader.start()
    leader.wait_alive()
    wait_until("the follower to give up or to catch up", lambda: is_resolved(follower, 500))
    assert [number for number in consume(fleet.url) if number >= 0] == list(range(500))


def test_restored_device_is_recognized_by_the_managers(fleet: Fleet, tmp_path: Path) -> None:
    """As above, but the files are the same ones with older content. Only managers are left that could know."""
    leader, follower, third = roles(fleet.brokers)
    produce(fleet.url, 0, 100)
    third.kill()
    image = Path(shutil.copytree(follower.data, tmp_path / "image"))
    produce(fleet.url, 100, 400)

    def is_known() -> bool:
        """Whether managers have a heartbeat from after the records."""
        reports = fleet.client.get("/v1/control/state").json()["reports"]
        return any(seen["next_offset"] == 500 for seen in reports[follower.id]["replicas"])

    wait_until("a heartbeat with the records", is_known)
    for broker in (leader, follower):
        broker.kill()
    overwrite(follower, image)
    third.start()
    follower.start()
    third.wait_alive()
    assert follower.wait() == EXIT_LOG
    assert "managers remember a later LSN" in follower.log()
    assert_no_leader(fleet.url)
    leader.start()
    leader.wait_alive()
    assert [number for number in consume(fleet.url) if number >= 0] == list(range(500))
    before = follower.id
    follower.start()
    follower.wait_alive()
    assert follower.id != before
    assert (follower.data / "log.damaged-1").is_dir(), "the old log is kept for analysis"


def test_without_managers_the_restored_broker_waits_for_its_leader(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=QUICK) as cluster:
        cluster.create(TOPIC)
        leader, follower, third = roles(cluster.brokers)
        load = Load(TOPIC, 1, cluster.brokers, random.Random(1))

        def disturb() -> None:
            load.wait_progress(30)
            third.kill()
            load.wait_progress(30)
            image = Path(shutil.copytree(follower.data, tmp_path / "image"))
            load.wait_progress(60)
            for broker in (leader, follower):
                broker.kill()
            restore(follower, image)
            third.start()
            follower.start()
            third.wait_alive()
            follower.wait_alive()
            acknowledged = load.acknowledged
            with contextlib.suppress(TimeoutError):
                cluster.leader(timeout_s=ELECTIONS_S)
                raise AssertionError("a majority without the acknowledged records elected a leader")
            assert load.acknowledged == acknowledged
            leader.start()
            leader.wait_alive()
            load.wait_progress(30)
            wait_until("the follower to give up or to catch up", lambda: is_resolved(follower, acknowledged))

        load.run_while(disturb)
        load.brokers = [broker for broker in cluster.brokers if broker.is_running]
        assert load.violations() == []


@pytest.mark.parametrize("is_idle", [True, False])
def test_clone_of_a_running_broker_ends_and_the_broker_stays(fleet: Fleet, tmp_path: Path, *, is_idle: bool) -> None:
    """Under load, the clone lacks records. If nothing was written since the copy, nothing but the token differs."""
    genuine = fleet.brokers[0]
    produce(fleet.url, 0, 100)
    clone = BrokerProcess(tmp_path / "clone", ["--managers", fleet.writer.url, *QUICK])
    shutil.copytree(genuine.data, clone.data)
    if not is_idle:
        produce(fleet.url, 100, 100)
    try:
        clone.start()
        assert clone.wait() == EXIT_LOG
        assert "log is an older copy" in clone.log() or "is running: data folder" in clone.log()
    finally:
        clone.close()
    produce(fleet.url, 200, 100)
    assert genuine.is_running
    assert genuine.get("/v1/broker")["id"] == genuine.id
    assert consume(fleet.url) == [*range(100 if is_idle else 200), *range(200, 300)]
    known = {one["id"]: one["port"] for one in fleet.client.get("/v1/control/state").json()["brokers"]}
    assert known == {broker.id: broker.port for broker in fleet.brokers}
