"""What `make run` starts, while people use it: any process is killed at any time, and nothing acknowledged is lost."""

import os
import random
import signal
import time
from pathlib import Path

import httpx

from support.cluster import wait_until
from support.crowd import Crowd, Listener, Person
from support.upprocess import UpProcess

KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "8"))
PARTITIONS = 2


class Asked:
    """Reads what the system shows through its API, in place of a broker."""

    id = "the API"

    def __init__(self, url: str) -> None:
        self._url = url

    def request(self, method: str, path: str) -> httpx.Response:
        return httpx.request(method, f"{self._url}{path.replace('&replica=any', '')}", timeout=30)


def test_any_process_may_be_killed_while_people_use_it(tmp_path: Path) -> None:
    """Guarantees 1 to 5 for people with curl: kill -9 of any process, again and again, then of everything at once."""
    rng = random.Random(5)
    with UpProcess(tmp_path / "data") as up:
        up.wait_ready()

        def post(path: str, **params: object) -> dict[str, str]:
            found: dict[str, str] = httpx.post(f"{up.url}{path}", json=params, timeout=30).raise_for_status().json()
            return found

        post("/topics", name="t", number_of_partitions=PARTITIONS)
        people = [
            Person(f"p{at}", "t", PARTITIONS, post("/producer/register", topic="t")["producer_id"], up.url)
            for at in range(3)
        ]
        listeners = [
            Listener(f"c{at}", "t", post("/consumer/register", topic="t")["consumer_id"], up.url) for at in range(2)
        ]
        crowd = Crowd("t", PARTITIONS, [Asked(up.url)], people, listeners)  # type: ignore[list-item]  # it asks alike
        kills = 0

        def kill() -> None:
            nonlocal kills
            until = time.monotonic() + KILL_SECONDS
            while time.monotonic() < until or not kills:
                crowd.wait_progress(20)
                pids = up.pids()
                for pid in pids.values() if kills == 3 else [rng.choice(list(pids.values()))]:
                    os.kill(pid, signal.SIGKILL)
                kills += 1
                wait_until("everything to run again", lambda: len(up.pids()) == 6)
            crowd.wait_progress(20)

        crowd.run_while(kill)
        assert crowd.violations() == []
        print(f"{kills} kills, {crowd.acknowledged} messages, {len(crowd.lost)} lost answers")  # noqa: T201 - long runs
        up.signal(signal.SIGTERM)
        assert up.wait() == 0
