"""`flotilla up` under load: any process is killed at any time, and no acknowledged record is lost."""

import os
import random
import signal
import time
from pathlib import Path

import httpx

from support.cluster import wait_until
from support.simpleclients import SimpleClients, SimpleConsumer, SimpleProducer
from support.upprocess import ApiReader, UpProcess

KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "8"))
PARTITIONS = 2


def test_any_process_may_be_killed_under_load(tmp_path: Path) -> None:
    """Guarantees 1 to 5 for users of curl: kill -9 of any process, repeatedly, then of all at once."""
    rng = random.Random(5)
    with UpProcess(tmp_path / "data") as up:
        up.wait_ready()

        def post(path: str, **params: object) -> dict[str, str]:
            found: dict[str, str] = httpx.post(f"{up.url}{path}", json=params, timeout=30).raise_for_status().json()
            return found

        post("/topics", name="t", number_of_partitions=PARTITIONS)
        producers = [
            SimpleProducer(f"p{at}", "t", PARTITIONS, post("/producer/register", topic="t")["producer_id"], up.url)
            for at in range(3)
        ]
        consumers = [
            SimpleConsumer(f"c{at}", "t", post("/consumer/register", topic="t")["consumer_id"], up.url)
            for at in range(2)
        ]
        clients = SimpleClients("t", PARTITIONS, [ApiReader(up.url)], producers, consumers)  # type: ignore[list-item]  # it sends the same requests
        kills = 0

        def kill() -> None:
            nonlocal kills
            until = time.monotonic() + KILL_SECONDS
            while time.monotonic() < until or not kills:
                clients.wait_progress(20)
                pids = up.pids()
                for pid in pids.values() if kills == 3 else [rng.choice(list(pids.values()))]:
                    os.kill(pid, signal.SIGKILL)
                kills += 1
                wait_until("everything to run again", lambda: len(up.pids()) == 6)
            clients.wait_progress(20)

        clients.run_while(kill)
        assert clients.violations() == []
        print(f"{kills} kills, {clients.acknowledged} messages, {len(clients.lost)} lost answers")  # noqa: T201 - long runs
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
